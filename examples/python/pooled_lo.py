"""A pooled allocator over snowflake_nextval_range(), as Hibernate's pooled-lo optimizer over a sequence.

One round trip takes a range of IDs that lie next to each other; the program then counts through it. So a key
is known before its row is sent, and rows go out in batches of any kind, without RETURNING.

Run as a program it shows its arithmetic on a server: PGHOST, PGDATABASE, PGUSER and so on say where.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg


class PooledLo:
    """Hands out IDs from ranges of `size`, to any number of threads."""

    def __init__(self, size: int, take_range: Callable[[int], tuple[int, int]]) -> None:
        """`take_range(n)` returns the first and the last of n new IDs in a row."""
        self._size = size
        self._take_range = take_range
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0  # one past the last: nothing is left when _next has come to it

    def next_id(self) -> int:
        with self._lock:
            if self._next == self._end:
                first, last = self._take_range(self._size)
                # The first is the low end and is handed out itself. Hibernate's plain "pooled" takes the
                # number that it reads for the high end: over this function it would hand out IDs that
                # belong to others.
                self._next, self._end = first, last + 1
            self._next += 1
            return self._next - 1


def take_range(connection: psycopg.Connection, n: int) -> tuple[int, int]:
    return connection.execute("SELECT first, last FROM snowflake_nextval_range(%s)", [n]).fetchone()


def main() -> None:
    with psycopg.connect(autocommit=True) as connection, psycopg.connect(autocommit=True) as other:
        round_trips = []

        def take(n: int) -> tuple[int, int]:
            # Called under the allocator's lock, so by one thread at a time.
            first, last = take_range(connection, n)
            assert last - first + 1 == n
            round_trips.append((first, last))
            return first, last

        # 120 IDs in ranges of 50: three round trips, and 30 IDs of the last range left.
        pool = PooledLo(50, take)
        ids = [pool.next_id() for _ in range(120)]
        assert len(round_trips) == 3
        expected = [first + i for first, _ in round_trips for i in range(50)][:120]
        assert ids == expected and ids[0] == round_trips[0][0] and ids[49] == round_trips[0][1]
        print("120 IDs:", len(round_trips), "round trips, the last ID", ids[-1], "of a range to", round_trips[2][1])

        # A range is of one tick and one worker.
        [parts] = connection.execute(
            "SELECT count(DISTINCT (snowflake_timestamp(id), snowflake_worker(id))) FROM unnest(%s::bigint[]) AS id",
            [ids[:50]],
        ).fetchone()
        assert parts == 1

        # Two programs with a pool each, four threads in each, one-by-one calls between: no ID twice.
        others = PooledLo(50, lambda n: take_range(other, n))
        with ThreadPoolExecutor(8) as threads:
            work = [threads.submit(lambda p=p: [p.next_id() for _ in range(500)]) for p in [pool, others] * 4]
            made = [made_id for job in work for made_id in job.result()]
        with psycopg.connect(autocommit=True) as third:
            made += [row[0] for row in third.execute("SELECT snowflake_nextval_batch(1000)")]
        assert len(set(made + ids)) == len(made) + len(ids) == 8 * 500 + 1000 + 120
        print("8 threads on two pools:", len(made), "IDs, none twice")

        # A range is taken for good, also by a transaction that rolls back: its IDs may be handed out.
        with psycopg.connect() as doomed:
            first, last = take_range(doomed, 50)
            doomed.rollback()
        again, _ = take_range(connection, 50)
        assert again > last
        # The price: what a program that ends has not handed out is lost, and an ID is as old as its range.

        # A range must fit into a tick: 1 to 4,096 IDs with the default layout.
        try:
            take_range(connection, 5000)
        except psycopg.errors.InvalidParameterValue as error:
            print("too many:", error.diag.message_primary, "-", error.diag.message_detail)
        else:
            raise AssertionError("a range of 5000 was given")
        print("all is well")


if __name__ == "__main__":
    main()
