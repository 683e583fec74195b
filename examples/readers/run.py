"""Runs ENGINE.sql of this folder in its engine, on a table of the IDs on standard input, and prints rows with commas."""

import csv
import pathlib
import sqlite3
import sys

engine = sys.argv[1]
query = (pathlib.Path(__file__).parent / f"{engine}.sql").read_text()
ids = ",".join(f"({line.strip()})" for line in sys.stdin)

if engine == "clickhouse":
    from chdb.session import Session

    session = Session()
    session.query("CREATE TABLE orders (id Int64) ENGINE = Memory")
    session.query(f"INSERT INTO orders VALUES {ids}")
    sys.stdout.write(str(session.query(query, "CSV")).replace('"', ""))
else:
    if engine == "duckdb":
        import duckdb

        connection = duckdb.connect()
    else:
        connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE orders (id bigint)")
    connection.execute(f"INSERT INTO orders VALUES {ids}")
    csv.writer(sys.stdout, lineterminator="\n").writerows(connection.execute(query).fetchall())
