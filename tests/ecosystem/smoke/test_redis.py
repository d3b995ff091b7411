"""redis-py: streams over a Unix socket and over TLS, with deliberately cancelled reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio
import redis.backoff

from tests.ecosystem.smoke.services import eventually
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.ecosystem.smoke.conftest import Certificates
    from tests.ecosystem.smoke.services import Redis

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def client(server: Redis, **options: Any) -> Any:
    return redis.asyncio.Redis(unix_socket_path=str(server.path), **options)


def test_pipeline_of_ten_thousand_commands(run: Run, redis_server: Redis) -> None:
    async def main() -> None:
        async with client(redis_server) as store:
            await store.flushall()
            async with store.pipeline(transaction=True) as pipe:
                for number in range(10_000):
                    pipe.incrby("sum", number)
                answers = await pipe.execute()
            assert answers[-1] == sum(range(10_000))
            assert await store.get("sum") == b"49995000"

    run(main())


def test_big_values_come_back_whole(run: Run, redis_server: Redis) -> None:
    async def main() -> None:
        async with client(redis_server) as store:
            value = bytes(range(256)) * 65_536
            await store.set("big", value)
            assert await store.get("big") == value

    run(main())


def test_every_subscriber_gets_every_message(run: Run, redis_server: Redis) -> None:
    async def listen(store: Any, ready: asyncio.Event) -> list[int]:
        heard: list[int] = []
        async with store.pubsub() as channel:
            await channel.subscribe("news")
            async for message in channel.listen():
                if message["type"] == "subscribe":
                    ready.set()
                    continue
                heard.append(int(message["data"]))
                if len(heard) == 500:
                    return heard
        return heard

    async def main() -> None:
        async with client(redis_server) as store:
            ready = [asyncio.Event() for _ in range(5)]
            listeners = [asyncio.create_task(listen(store, event)) for event in ready]
            await within(asyncio.gather(*(event.wait() for event in ready)))
            for number in range(500):
                assert await store.publish("news", number) == 5
            for heard in await within(asyncio.gather(*listeners)):
                assert heard == list(range(500))

    run(main())


def test_cancelled_blocking_pop_takes_nothing(run: Run, redis_server: Redis) -> None:
    async def blocked(store: Any, count: int) -> bool:
        return count == sum("b" in entry["flags"] for entry in await store.client_list())

    async def main() -> None:
        async with client(redis_server) as store:
            await store.flushall()
            for round_number in range(20):
                popping = asyncio.create_task(store.blpop("queue", 60))
                await eventually(lambda: blocked(store, 1), "the blocked client")
                popping.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await popping
                await eventually(lambda: blocked(store, 0), "the end of its connection")
                await store.rpush("queue", round_number)
                answer = await within(store.blpop("queue", 60))
                assert answer == (b"queue", str(round_number).encode())

    run(main())


def test_producers_and_consumers_lose_nothing(run: Run, redis_server: Redis) -> None:
    async def consume(store: Any, taken: list[int]) -> None:
        while True:
            _, value = await store.brpop("work")
            taken.append(int(value))

    async def main() -> None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            f"unix://{redis_server.path}", max_connections=20, timeout=20
        )
        async with redis.asyncio.Redis(connection_pool=pool) as store:
            await store.flushall()
            taken: list[int] = []
            consumers = [asyncio.create_task(consume(store, taken)) for _ in range(10)]
            await asyncio.gather(*(store.lpush("work", number) for number in range(1000)))
            await wait_until(lambda: len(taken) == 1000, "all work")
            for task in consumers:
                task.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
            assert sorted(taken) == list(range(1000))
        await pool.aclose()

    run(main())


def test_lua_script_runs_in_the_server(run: Run, redis_server: Redis) -> None:
    async def main() -> None:
        async with client(redis_server) as store:
            await store.flushall()
            script = store.register_script(
                "local n = redis.call('INCRBY', KEYS[1], ARGV[1]) return n * 2"
            )
            answers = [await script(keys=["n"], args=[5]) for _ in range(100)]
            assert answers == [10 * step for step in range(1, 101)]

    run(main())


def test_optimistic_lock_retries_until_it_wins(run: Run, redis_server: Redis) -> None:
    async def add_one(store: Any) -> None:
        async with store.pipeline() as pipe:
            while True:
                try:
                    await pipe.watch("count")
                    count = int(await pipe.get("count") or 0)
                    pipe.multi()
                    pipe.set("count", count + 1)
                    await pipe.execute()
                except redis.exceptions.WatchError:
                    continue
                return

    async def main() -> None:
        async with client(redis_server) as store:
            await store.flushall()
            await asyncio.gather(*(add_one(store) for _ in range(20)))
            assert await store.get("count") == b"20"

    run(main())


def test_tls_with_a_verified_certificate(
    run: Run, redis_server: Redis, certificates: Certificates
) -> None:
    if not redis_server.tls:
        pytest.skip("this redis-server is built without TLS")

    options = {"host": "localhost", "port": redis_server.port, "ssl": True}

    async def main() -> None:
        trusted = str(certificates.authority)
        async with redis.asyncio.Redis(**options, ssl_ca_certs=trusted) as store:
            value = bytes(range(256)) * 16_384
            await store.set("big", value)
            assert await store.get("big") == value
            answers = await asyncio.gather(*(store.echo(str(i)) for i in range(8)))
            assert answers == [str(i).encode() for i in range(8)]
        once = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
        async with redis.asyncio.Redis(**options, retry=once) as store:
            with pytest.raises(redis.exceptions.ConnectionError, match="CERTIFICATE_VERIFY"):
                await store.ping()

    run(main())
