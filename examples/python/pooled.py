"""A pool of IDs from snowflake_nextval_batch(), for a program that needs keys before it sends its rows.

One round trip takes many IDs; the program then hands them out. So rows go out in batches of any kind, without
RETURNING.

Run as a program it shows its arithmetic on a server: PGHOST, PGDATABASE, PGUSER and so on say where.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import psycopg


class Pool:
    """Hands out IDs from batches of `size`, to any number of threads."""

    def __init__(self, size: int, take_batch: Callable[[int], Iterable[int]]) -> None:
        """`take_batch(n)` returns n new IDs in ascending order."""
        self._size = size
        self._take_batch = take_batch
        self._lock = threading.Lock()
        self._ids: deque[int] = deque()

    def next_id(self) -> int:
        with self._lock:
            if not self._ids:
                self._ids.extend(self._take_batch(self._size))
            return self._ids.popleft()


def take_batch(connection: psycopg.Connection, n: int) -> list[int]:
    return [row[0] for row in connection.execute("SELECT snowflake_nextval_batch(%s)", [n])]


def main() -> None:
    with psycopg.connect(autocommit=True) as connection, psycopg.connect(autocommit=True) as other:
        round_trips = []

        def take(n: int) -> list[int]:
            # Called under the pool's lock, so by one thread at a time.
            round_trips.append(take_batch(connection, n))
            return round_trips[-1]

        # 120 IDs in batches of 50: three round trips, and 30 IDs of the last batch left.
        pool = Pool(50, take)
        ids = [pool.next_id() for _ in range(120)]
        assert [len(batch) for batch in round_trips] == [50, 50, 50]
        assert ids == sum(round_trips, [])[:120] == sorted(ids)
        print("120 IDs:", len(round_trips), "round trips, the last ID", ids[-1])

        # Two programs with a pool each, four threads in each, one-by-one calls between: no ID twice.
        others = Pool(50, lambda n: take_batch(other, n))
        with ThreadPoolExecutor(8) as threads:
            work = [threads.submit(lambda p=p: [p.next_id() for _ in range(500)]) for p in [pool, others] * 4]
            made = [made_id for job in work for made_id in job.result()]
        with psycopg.connect(autocommit=True) as third:
            made += take_batch(third, 1000)
        assert len(set(made + ids)) == len(made) + len(ids) == 8 * 500 + 1000 + 120
        print("8 threads on two pools:", len(made), "IDs, none twice")

        # A batch is taken for good, also by a transaction that rolls back: its IDs may be handed out.
        with psycopg.connect() as doomed:
            taken = take_batch(doomed, 50)
            doomed.rollback()
        assert take_batch(connection, 50)[0] > taken[-1]
        # The price: what a program that ends has not handed out is lost, and an ID is as old as its batch.
        print("all is well")


if __name__ == "__main__":
    main()
