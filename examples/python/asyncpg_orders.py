"""snowflake_id with asyncpg.

Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.
"""

import asyncio

import asyncpg


async def main() -> None:
    connection = await asyncpg.connect()
    await connection.execute("DROP TABLE IF EXISTS asyncpg_orders")
    await connection.execute(
        "CREATE TABLE asyncpg_orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text NOT NULL)"
    )
    order_id = await connection.fetchval("INSERT INTO asyncpg_orders (customer) VALUES ($1) RETURNING id", "Ada")
    print("one row:", order_id)
    assert isinstance(order_id, int) and order_id > 2**53

    # executemany() returns nothing, so an array gets the IDs of many rows.
    rows = await connection.fetch(
        "INSERT INTO asyncpg_orders (customer) SELECT unnest($1::text[]) RETURNING id, customer",
        [f"customer {i}" for i in range(1000)],
    )
    print("many rows:", len(rows), "from", rows[0]["id"], "to", rows[-1]["id"])
    assert len({row["id"] for row in rows}) == 1000

    # COPY returns nothing either: take the IDs first.
    taken = [row[0] for row in await connection.fetch("SELECT snowflake_nextval_batch($1)", 500)]
    copied = [(copied_id, f"copied {i}") for i, copied_id in enumerate(taken)]
    await connection.copy_records_to_table("asyncpg_orders", records=copied, columns=["id", "customer"])
    await connection.close()
    print("all is well")


if __name__ == "__main__":
    asyncio.run(main())
