"""Inserts 200 objects in one flush, with the model from before a conversion or with the one that the manual demands.

The argument is `unchanged` or `server_default`. Prints how many objects have the ID of another object's row.
"""

import sys

from sqlalchemy import BigInteger, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Song(Base):
    __tablename__ = "songs"
    if sys.argv[1] == "unchanged":
        id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    else:
        id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=func.snowflake_nextval())
    name: Mapped[str]


with Session(create_engine("postgresql+psycopg://")) as session:
    songs = [Song(name=f"song {i}") for i in range(200)]
    session.add_all(songs)
    session.flush()
    stored = {id: name for id, name in session.execute(select(Song.id, Song.name))}
    print("mistaken:", sum(stored[song.id] != song.name for song in songs), "of", len(songs))
