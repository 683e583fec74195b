"""snowflake_id with SQLAlchemy 2, over psycopg 3.

Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.
"""

from datetime import datetime, timedelta, timezone

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (
    BigInteger,
    FetchedValue,
    ForeignKey,
    Text,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from pooled import Pool


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "sqlalchemy_orders"

    # server_default says that the database fills the column: SQLAlchemy leaves it out of INSERT and adds
    # RETURNING. Without it, SQLAlchemy takes a lone integer key for a serial, and CREATE TABLE makes one.
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=func.snowflake_nextval())
    customer: Mapped[str] = mapped_column(Text)
    items: Mapped[list["Item"]] = relationship(back_populates="order")


class Item(Base):
    __tablename__ = "sqlalchemy_items"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=func.snowflake_nextval())
    # The type comes from the column that it points to: never write Integer here.
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))
    order: Mapped[Order] = relationship(back_populates="items")


class Base2(DeclarativeBase):
    """The same table as other programs may map it."""


class ExistingOrder(Base2):
    """A migration made the table: that there is a default is all that is to be said."""

    __tablename__ = "sqlalchemy_orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=FetchedValue())
    customer: Mapped[str] = mapped_column(Text)


class Base3(DeclarativeBase):
    pass


class PooledOrder(Base3):
    """For many objects at a time: their IDs come from a pool of this program's own."""

    __tablename__ = "sqlalchemy_orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, default=lambda: pool.next_id())
    customer: Mapped[str] = mapped_column(Text)


engine = create_engine("postgresql+psycopg://")


def take_batch(n: int) -> list[int]:
    # On a connection of its own: a default may be asked for while the session's is busy.
    with engine.connect() as connection:
        return list(connection.scalars(select(func.snowflake_nextval_batch(n))))


pool = Pool(500, take_batch)


def removed_tables(**options) -> list[str]:
    """The tables that Alembic's autogenerate would drop."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        diffs = compare_metadata(context, Base.metadata)
    return [diff[1].name for diff in diffs if diff[0] == "remove_table"]


def main() -> None:
    inserts = []

    @event.listens_for(engine, "before_cursor_execute")
    def count_inserts(connection, cursor, statement, parameters, context, executemany):
        if statement.startswith("INSERT"):
            inserts.append(statement)

    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    began = datetime.now(timezone.utc)

    with Session(engine) as session:
        # One row: the ID is there after flush() or commit().
        first = Order(customer="Ada", items=[Item(), Item()])
        session.add(first)
        session.commit()
        print("one row:", first.id)
        assert isinstance(first.id, int) and first.id > 2**53
        assert all(item.order_id == first.id for item in first.items)

        # Many objects: the session must know which ID is whose, and an INSERT of many rows returns them in any
        # order. So it sends one INSERT a row. (SQLAlchemy 2.1 would send one for all if the default were
        # func.snowflake_nextval(monotonic=True), and sort what comes back. Do not: a step back of the clock in
        # the middle of the statement can make IDs descend once, and objects would get each other's IDs.)
        inserts.clear()
        orders = [Order(customer=f"customer {i}") for i in range(100)]
        session.add_all(orders)
        session.commit()
        ids = [order.id for order in orders]
        print("many objects:", len(ids), "from", min(ids), "to", max(ids), "in", len(inserts), "statements")
        assert len(set(ids)) == 100 and min(ids) > first.id and len(inserts) == 100

        # With IDs from a pool the objects have them beforehand, and go out a thousand to a statement.
        inserts.clear()
        orders = [PooledOrder(customer=f"pooled {i}") for i in range(1000)]
        session.add_all(orders)
        session.commit()
        ids = [order.id for order in orders]
        print("pooled objects:", len(ids), "from", min(ids), "to", max(ids), "in", len(inserts), "statement(s)")
        assert len(set(ids)) == 1000 and min(ids) > first.id and len(inserts) == 1

        # Without objects, RETURNING a column of yours beside the ID tells which is whose, in one statement.
        inserts.clear()
        rows = session.execute(
            insert(Order).returning(Order.id, Order.customer), [{"customer": f"bulk {i}"} for i in range(1000)]
        ).all()
        session.commit()
        id_of = {row.customer: row.id for row in rows}
        print("bulk:", len(id_of), "from", min(id_of.values()), "to", max(id_of.values()), "in", len(inserts), "statement(s)")
        assert len(set(id_of.values())) == 1000 and len(inserts) == 1

        existing = ExistingOrder(customer="Grace")
        session.add(existing)
        session.commit()
        print("a table made elsewhere:", existing.id)
        assert existing.id > max(id_of.values())

        # Rows of a span of time, by the primary key. An ID may be ahead of the clock by max_ahead, so a span
        # that is to hold everything up to now has no upper end. (As a parameter it would be sent as a varchar.)
        since = began - timedelta(minutes=1)
        found = session.scalar(
            select(func.count()).select_from(Order).where(func.snowflake_between(Order.id, since, text("'infinity'")))
        )
        made = session.scalar(select(func.snowflake_timestamp(Order.id)).where(Order.id == first.id))
        print("by time:", found, "since a minute ago; the first at", made)
        assert found == 1 + 100 + 1000 + 1000 + 1 and abs(made - began) < timedelta(minutes=1)

    # Alembic's autogenerate takes no table of the extension for one that the models no longer have. (The portable
    # generator may have its tables in the schema of the application.)
    with engine.connect() as connection:
        has_extension = connection.scalar(text("SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_id'"))
    assert not has_extension or not [table for table in removed_tables() if table.startswith("snowflake")]
    print("all is well")


if __name__ == "__main__":
    main()
