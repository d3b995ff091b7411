"""psycopg 3: libpq owns the socket and the loop only watches it, by `add_reader` and `add_writer`.

A watcher is added and removed for every answer, often on a descriptor that is already ready.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg_pool
import pytest

from tests.ecosystem.smoke.services import eventually
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.ecosystem.smoke.conftest import Certificates
    from tests.ecosystem.smoke.services import Postgres

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

LINE = b"%d\tline %d of the copy\n"
ROWS = 200_000


def address(server: Postgres, **options: Any) -> str:
    found: dict[str, Any] = {
        "host": server.folder,
        "port": server.port,
        "user": server.user,
        "dbname": "postgres",
        **options,
    }
    return " ".join(f"{key}={value}" for key, value in found.items())


async def connect(server: Postgres, **options: Any) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(address(server, **options), autocommit=True)


async def value_of(connection: psycopg.AsyncConnection[Any], query: Any, *args: Any) -> Any:
    row = await (await connection.execute(query, args or None)).fetchone()
    assert row is not None
    return row[0]


def test_transactions_commit_and_roll_back(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with await connect(postgres) as connection:
            await connection.execute("CREATE TEMP TABLE account (id int, balance int)")
            async with connection.transaction(), connection.cursor() as cursor:
                rows = [(i, i * 10) for i in range(1000)]
                await cursor.executemany("INSERT INTO account VALUES (%s, %s)", rows)
                async with connection.transaction(force_rollback=True):
                    await connection.execute("UPDATE account SET balance = 0")
            assert await value_of(connection, "SELECT sum(balance) FROM account") == 4_995_000

    run(main())


def test_pipeline_answers_in_order(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with await connect(postgres) as connection:
            async with connection.pipeline():
                cursors = [await connection.execute("SELECT %s::int", [i]) for i in range(300)]
            assert [(await cursor.fetchone()) for cursor in cursors] == [(i,) for i in range(300)]

    run(main())


def test_copy_moves_megabytes_both_ways(run: Run, postgres: Postgres) -> None:
    source = b"".join(LINE % (i, i) for i in range(ROWS))

    async def main() -> None:
        async with await connect(postgres) as connection, connection.cursor() as cursor:
            await cursor.execute("CREATE TEMP TABLE line (id int, words text)")
            async with cursor.copy("COPY line FROM STDIN") as copy:
                for start in range(0, len(source), 65_536):
                    await copy.write(source[start : start + 65_536])
            target = bytearray()
            async with cursor.copy("COPY (SELECT * FROM line ORDER BY id) TO STDOUT") as copy:
                async for block in copy:
                    target += block
            assert target == source

    run(main())


def test_listen_hears_notify(run: Run, postgres: Postgres) -> None:
    async def listen(connection: psycopg.AsyncConnection[Any]) -> list[str]:
        return [notice.payload async for notice in connection.notifies(stop_after=100)]

    async def main() -> None:
        async with await connect(postgres) as listener, await connect(postgres) as speaker:
            await listener.execute("LISTEN news")
            hearing = asyncio.create_task(listen(listener))
            for number in range(100):
                await speaker.execute("SELECT pg_notify('news', %s)", [str(number)])
            assert await within(hearing) == [str(number) for number in range(100)]

    run(main())


def test_cancelled_query_stops_in_the_server(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with await connect(postgres) as connection, await connect(postgres) as observer:
            running = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE query = 'SELECT pg_sleep(601)' AND state = 'active'"
            )
            sleeping = asyncio.create_task(connection.execute("SELECT pg_sleep(601)"))
            await eventually(lambda: value_of(observer, running), "the query")
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            assert await within(value_of(connection, "SELECT 1")) == 1
            assert await value_of(observer, running) == 0
            sleeping = asyncio.create_task(connection.execute("SELECT pg_sleep(601)"))
            await eventually(lambda: value_of(observer, running), "the query")
            await connection.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                await within(sleeping)

    run(main())


def test_pool_serves_fifty_tasks(run: Run, postgres: Postgres) -> None:
    async def work(pool: Any, number: int) -> int:
        total = 0
        for step in range(10):
            async with pool.connection() as connection:
                total += await value_of(connection, "SELECT %s::int + %s::int", number, step)
        return total

    async def main() -> None:
        async with psycopg_pool.AsyncConnectionPool(
            address(postgres), min_size=2, max_size=10, open=False
        ) as pool:
            totals = await asyncio.gather(*(work(pool, number) for number in range(50)))
        assert totals == [number * 10 + 45 for number in range(50)]

    run(main())


def test_prepared_statement_is_reused(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with await connect(postgres) as connection:
            for number in range(200):
                cursor = await connection.execute("SELECT %s::bigint * 2", [number], prepare=True)
                assert await cursor.fetchone() == (number * 2,)
            prepared = "SELECT count(*) FROM pg_prepared_statements"
            assert await value_of(connection, prepared) == 1

    run(main())


def test_tls_with_a_verified_certificate(
    run: Run, postgres: Postgres, certificates: Certificates
) -> None:
    async def main() -> None:
        tls = {"sslmode": "verify-full", "sslrootcert": certificates.authority}
        async with await connect(postgres, host="localhost", **tls) as connection:
            assert connection.pgconn.ssl_in_use
            value = bytes(range(256)) * 16_384
            assert await value_of(connection, "SELECT %b::bytea", value) == value
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            await connect(postgres, host="localhost", sslmode="verify-full", sslrootcert="system")

    run(main())
