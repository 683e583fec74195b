"""Converts a table in a migration of Alembic, undoes one that fails, and goes back in another migration.

The argument is the table. Prints the key's type and default after each.
"""

import sys

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, text

TABLE = sys.argv[1]
DEFAULT = f"""SELECT format_type(a.atttypid, NULL) || ' ' || pg_get_expr(d.adbin, d.adrelid)
    FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = '{TABLE}'::regclass AND a.attname = 'id'"""

engine = create_engine("postgresql+psycopg://")


def migrate(steps):
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"transactional_ddl": True})
        with context.begin_transaction(), Operations.context(context) as op:
            for step in steps:
                op.execute(step)
        connection.commit()


def show(what):
    with engine.connect() as connection:
        print(f"{what}: {connection.scalar(text(DEFAULT))}")


run = "DO $$ BEGIN EXECUTE (SELECT {} FROM kept_conversion); END $$"
migrate([f"CREATE TABLE {TABLE} (id serial PRIMARY KEY, name text, CHECK (name <> '%\\:x'))"])
migrate([f"CREATE TABLE kept_conversion AS SELECT * FROM snowflake_convert('{TABLE}')", run.format("script")])
show("upgraded")
try:
    migrate([run.format("back"), "SELECT 1 / 0"])
except Exception:  # noqa: BLE001
    show("failed")
migrate([run.format("back"), "DROP TABLE kept_conversion"])
show("downgraded")
