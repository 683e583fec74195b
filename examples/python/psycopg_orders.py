"""snowflake_id with psycopg 3.

Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.
"""

from datetime import datetime, timedelta, timezone

import psycopg


def main() -> None:
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS psycopg_orders")
        connection.execute(
            """CREATE TABLE psycopg_orders (
                id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
                customer text NOT NULL
            )"""
        )
        began = datetime.now(timezone.utc)

        # One row: leave the ID out and ask for it back.
        [order_id] = connection.execute(
            "INSERT INTO psycopg_orders (customer) VALUES (%s) RETURNING id", ["Ada"]
        ).fetchone()
        print("one row:", order_id)
        # A Python int has any size: nothing is lost on the way.
        assert isinstance(order_id, int) and order_id > 2**53

        # Many rows and their IDs in one round trip: one statement over an array, in the array's order.
        customers = [f"customer {i}" for i in range(1000)]
        rows = connection.execute(
            """INSERT INTO psycopg_orders (customer)
               SELECT customer FROM unnest(%s::text[]) WITH ORDINALITY AS u (customer, n) ORDER BY n
               RETURNING id, customer""",
            [customers],
        ).fetchall()
        ids = [row[0] for row in rows]
        print("many rows:", len(ids), "from", ids[0], "to", ids[-1])
        assert [row[1] for row in rows] == customers
        assert ids == sorted(set(ids)) and ids[0] > order_id

        # executemany() gives its rows only when it is asked to, and then one result set a row.
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO psycopg_orders (customer) VALUES (%s) RETURNING id",
                [["Grace"], ["Edsger"]],
                returning=True,
            )
            pair = [result.fetchone()[0] for result in cursor.results()]
        print("executemany:", pair[0], "and", pair[1])
        assert ids[-1] < pair[0] < pair[1]

        # COPY returns nothing, so take the IDs first and write them yourself.
        taken = [row[0] for row in connection.execute("SELECT snowflake_nextval_batch(%s)", [500])]
        with connection.cursor() as cursor:
            with cursor.copy("COPY psycopg_orders (id, customer) FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["int8", "text"])
                for i, copied_id in enumerate(taken):
                    copy.write_row((copied_id, f"copied {i}"))
        print("COPY:", len(taken), "from", taken[0], "to", taken[-1])

        # Rows of a span of time, by the primary key. An ID may be ahead of the clock by max_ahead, so a
        # span that is to hold everything up to now has no upper end.
        found = connection.execute(
            "SELECT count(*) FROM psycopg_orders WHERE snowflake_between(id, %s, 'infinity')",
            [began - timedelta(minutes=1)],
        ).fetchone()[0]
        none = connection.execute(
            "SELECT count(*) FROM psycopg_orders WHERE snowflake_between(id, %s, %s)",
            [began - timedelta(days=2), began - timedelta(days=1)],
        ).fetchone()[0]
        print("by time:", found, "since a minute ago,", none, "of yesterday")
        assert found == 1 + 1000 + 2 + 500 and none == 0

        # When an order was made, and its ID as a parameter. psycopg sends an int in the smallest type that
        # holds it, which is bigint for an ID.
        [created_at, customer] = connection.execute(
            "SELECT snowflake_timestamp(id), customer FROM psycopg_orders WHERE id = %s", [order_id]
        ).fetchone()
        assert customer == "Ada" and abs(created_at - began) < timedelta(minutes=1)

        # A small number goes out as smallint, so that PostgreSQL finds snowflake_timestamp(bigint) only
        # because it widens the argument. An array of IDs wants the cast: an empty one has no type.
        [orders] = connection.execute(
            "SELECT count(*) FROM psycopg_orders WHERE id = ANY(%s::bigint[])", [[order_id, *pair]]
        ).fetchone()
        assert orders == 3
        print("all is well")


if __name__ == "__main__":
    main()
