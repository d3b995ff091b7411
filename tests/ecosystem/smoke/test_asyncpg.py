"""asyncpg: its own protocol class, driven by the transport's callbacks; it upgrades to TLS itself.

The server is real; every test except the TLS one connects over a Unix socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.ecosystem.smoke.services import eventually
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.ecosystem.smoke.conftest import Certificates
    from tests.ecosystem.smoke.services import Postgres

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

ROWS = 200_000


@contextlib.asynccontextmanager
async def connected(server: Postgres, **options: Any) -> AsyncIterator[Any]:
    address = {"host": str(server.folder), "port": server.port, "ssl": False, **options}
    connection = await asyncpg.connect(user=server.user, database="postgres", **address)
    try:
        yield connection
    finally:
        await within(connection.close())


def test_transactions_commit_and_roll_back(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with connected(postgres) as connection:
            await connection.execute("CREATE TEMP TABLE account (id int, balance int)")
            async with connection.transaction():
                await connection.executemany(
                    "INSERT INTO account VALUES ($1, $2)", [(i, i * 10) for i in range(1000)]
                )
                with contextlib.suppress(ZeroDivisionError):
                    async with connection.transaction():
                        await connection.execute("UPDATE account SET balance = 0")
                        raise ZeroDivisionError
            assert await connection.fetchval("SELECT sum(balance) FROM account") == 4_995_000
            async with connection.transaction():
                cursor = connection.cursor("SELECT id FROM account ORDER BY id", prefetch=50)
                assert [row["id"] async for row in cursor] == list(range(1000))

    run(main())


def test_copy_moves_megabytes_both_ways(run: Run, postgres: Postgres) -> None:
    source = b"".join(b"%d\tline %d of the copy\n" % (i, i) for i in range(ROWS))

    async def main() -> None:
        async with connected(postgres) as connection:
            await connection.execute("CREATE TEMP TABLE line (id int, words text)")
            answer = await connection.copy_to_table("line", source=io.BytesIO(source))
            assert answer == f"COPY {ROWS}"
            target = io.BytesIO()
            await connection.copy_from_query("SELECT * FROM line ORDER BY id", output=target)
            assert target.getvalue() == source
            records = [(i, "x" * 100) for i in range(20_000)]
            await connection.copy_records_to_table("line", records=records)
            assert await connection.fetchval("SELECT count(*) FROM line") == ROWS + 20_000

    run(main())


def test_big_values_come_back_whole(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with connected(postgres) as connection:
            value = bytes(range(256)) * 32_768
            assert await connection.fetchval("SELECT $1::bytea", value) == value

    run(main())


def test_listen_hears_notify(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        heard: list[str] = []
        async with connected(postgres) as listener, connected(postgres) as speaker:
            await listener.add_listener("news", lambda *event: heard.append(event[3]))
            for number in range(100):
                await speaker.execute("SELECT pg_notify('news', $1)", str(number))
            await wait_until(lambda: len(heard) == 100, "all notifications")
            assert heard == [str(number) for number in range(100)]

    run(main())


def test_cancelled_query_stops_in_the_server(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with connected(postgres) as connection, connected(postgres) as observer:
            running = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
            )
            sleeping = asyncio.create_task(connection.execute("SELECT pg_sleep(600)"))
            await eventually(lambda: observer.fetchval(running), "the query")
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            assert await within(connection.fetchval("SELECT 1")) == 1
            with pytest.raises(TimeoutError):
                await connection.execute("SELECT pg_sleep(600)", timeout=0.1)
            assert await within(connection.fetchval("SELECT 2")) == 2
            assert await observer.fetchval(running) == 0

    run(main())


def test_pool_serves_fifty_tasks(run: Run, postgres: Postgres) -> None:
    async def work(pool: Any, number: int) -> int:
        total = 0
        for step in range(10):
            async with pool.acquire() as connection:
                total += await connection.fetchval("SELECT $1::int + $2::int", number, step)
        return total

    async def main() -> None:
        async with asyncpg.create_pool(
            host=str(postgres.folder),
            port=postgres.port,
            user=postgres.user,
            database="postgres",
            ssl=False,
            min_size=2,
            max_size=10,
        ) as pool:
            totals = await asyncio.gather(*(work(pool, number) for number in range(50)))
        assert totals == [number * 10 + 45 for number in range(50)]

    run(main())


def test_prepared_statement_outlives_its_first_answer(run: Run, postgres: Postgres) -> None:
    async def main() -> None:
        async with connected(postgres) as connection:
            square = await connection.prepare("SELECT $1::bigint * $1")
            assert [await square.fetchval(i) for i in range(500)] == [i * i for i in range(500)]

    run(main())


def test_tls_with_a_verified_certificate(
    run: Run, postgres: Postgres, certificates: Certificates
) -> None:
    async def main() -> None:
        tls = {"host": "localhost", "ssl": certificates.client()}
        async with connected(postgres, **tls) as connection:
            assert await connection.fetchval(
                "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            )
            value = bytes(range(256)) * 16_384
            assert await connection.fetchval("SELECT $1::bytea", value) == value
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncpg.connect(
                host="localhost",
                port=postgres.port,
                user=postgres.user,
                database="postgres",
                ssl=ssl.create_default_context(),
            )

    run(main())
