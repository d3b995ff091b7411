"""SQLAlchemy over asyncpg: greenlets swap the C stack inside a callback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy.exc
from sqlalchemy import ForeignKey, String, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.ecosystem.smoke.services import Postgres

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50), unique=True)
    books: Mapped[list[Book]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


def test_fifty_sessions_on_a_pool_of_five(run: Run, postgres: Postgres) -> None:
    async def write(sessions: async_sessionmaker[AsyncSession], number: int) -> None:
        async with sessions() as session, session.begin():
            author = Author(name=f"author {number}")
            author.books = [Book(title=f"book {book} of {number}") for book in range(number % 5)]
            session.add(author)

    async def main() -> None:
        engine = create_async_engine(
            f"postgresql+asyncpg://{postgres.user}@/postgres",
            connect_args={"host": str(postgres.folder), "port": postgres.port},
            pool_size=5,
            max_overflow=0,
        )
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        sessions = async_sessionmaker(engine, expire_on_commit=False)
        await asyncio.gather(*(write(sessions, number) for number in range(50)))
        async with sessions() as session:
            assert await session.scalar(select(func.count(Book.id))) == 100
            query = select(Author).options(selectinload(Author.books)).order_by(Author.id)
            for author in (await session.scalars(query)).all():
                assert len(author.books) == int(author.name.split()[1]) % 5
            stream = await session.stream_scalars(select(Book.title).execution_options(yield_per=7))
            assert len([title async for title in stream]) == 100
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            await write(sessions, 1)
        # Greenlets that are discarded in the middle of a query.
        late = [asyncio.create_task(write(sessions, 100 + number)) for number in range(20)]
        await asyncio.sleep(0)
        for task in late[::2]:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        async with sessions() as session:
            written = await session.scalar(select(func.count(Author.id)).where(Author.id > 50))
            assert written is not None
            assert written >= 10
        await engine.dispose()

    run(main())
