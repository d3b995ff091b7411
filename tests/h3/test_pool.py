"""The pool of `ringloop.h3`: one connection an origin, replaced, limited, closed."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from ringloop._native import h3 as native
from ringloop.h3 import _pool
from tests.h3.support import served, silent_port
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


class Site:
    """A server that notes the connections and fields of its requests, and a pool for it."""

    def __init__(self, server: h3.Server, pool: h3.Pool) -> None:
        self.server = server
        self.pool = pool
        self.port = server.address[1]
        self.url = f"https://localhost:{self.port}"

    async def get(self, path: str = "/", **keywords: Any) -> bytes:
        response = await self.pool.request("GET", self.url + path, **keywords)
        return await response.read()

    @property
    def connection_count(self) -> int:
        return self.server.stats().completed


async def name_path(request: h3.Request) -> None:
    await request.respond(200, {}, f"{request.path} {len(await request.read())}".encode())


@asynccontextmanager
async def pooled(
    certificates: Certificates,
    handler: Callable[[h3.Request], Awaitable[object]] = name_path,
    server: dict[str, Any] | None = None,
    **keywords: Any,
) -> AsyncIterator[Site]:
    async with (
        served(certificates, handler, **(server or {})) as endpoint,
        h3.Pool(ca_file=certificates.authority, **keywords) as pool,
    ):
        yield Site(endpoint, pool)


def test_first_requests_at_once_share_one_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with pooled(certificates) as site:
            bodies = await within(asyncio.gather(*[site.get(f"/{i}?q") for i in range(200)]))
            assert bodies == [b"/%d?q 0" % i for i in range(200)]
            assert site.connection_count == 1

    run(main())


def test_address_that_is_silent_is_overtaken(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with pooled(certificates) as site:
            kind = socket.AF_INET, socket.SOCK_DGRAM, 17, ""
            found = [(*kind, (host, site.port)) for host in ("127.0.0.2", "127.0.0.1")]

            async def look_up(*_arguments: object, **_keywords: object) -> list[Any]:
                return found

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
                silent.bind(("127.0.0.2", site.port))
                assert await within(asyncio.gather(*map(site.get, ["/a", "/b"]))) == [
                    b"/a 0",
                    b"/b 0",
                ]
                silent.setblocking(False)
                assert silent.recv(2048)
            assert site.connection_count == 1

    run(main())


def test_origins_have_connections_of_their_own(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with pooled(certificates) as site, served(certificates, name_path) as other:
            async with asyncio.TaskGroup() as group:
                for port in (site.port, other.address[1]):
                    for _ in range(3):
                        url = f"https://LOCALHOST:{port}/a b?é#gone"
                        group.create_task(within(site.pool.request("PUT", url, body=b"xyz")))
            assert site.connection_count == 1
            assert other.stats().completed == 1
            response = await within(site.pool.request("GET", f"{site.url}/a b?é#gone"))
            assert await within(response.read()) == b"/a%20b?%C3%A9 0"

    run(main())


def test_closed_connection_is_replaced(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with pooled(certificates) as site:
            for count in (1, 2, 3):
                assert await within(site.get()) == b"/ 0"
                assert site.connection_count == count
                for connection in site.server.connections:
                    connection.close()
                (place,) = site.pool._places.values()
                client = place.client
                assert client is not None
                await wait_until(partial(getattr, client.connection, "is_closed"))

    run(main())


def test_connection_that_was_idle_for_too_long_is_replaced(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with pooled(certificates, idle_timeout=0.1) as site:
            assert await within(site.get()) == b"/ 0"
            (place,) = site.pool._places.values()
            await wait_until(lambda: place.client and place.client.connection.is_closed)
            assert await within(site.get()) == b"/ 0"
            assert site.connection_count == 2

    run(main())


def test_connection_near_the_end_of_its_idle_time_gets_no_request(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = 0.0
    monkeypatch.setattr(quic.Connection, "idle_for", lambda _: idle)

    async def main() -> None:
        nonlocal idle
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def handler(request: h3.Request) -> None:
            if request.path == "/slow":
                begun.set()
                await may_end.wait()
            await name_path(request)

        # The server's limit is the smaller one. A second is left, or half of a short time.
        for timeout, last_use in ((8.0, 7.0), (1.0, 0.5)):
            idle = 0.0
            async with pooled(certificates, handler, {"idle_timeout": timeout}) as site:
                assert await within(site.get()) == b"/ 0"
                (place,) = site.pool._places.values()
                assert place.client is not None
                assert place.client.connection.idle_timeout == timeout
                idle = last_use - 0.01
                assert await within(site.get()) == b"/ 0"
                assert site.connection_count == 1
                # One under way goes on, on the connection that is left.
                slow = asyncio.ensure_future(site.get("/slow"))
                await within(begun.wait())
                idle = last_use + 0.01
                assert await within(site.pool._connected(("localhost", site.port)))
                assert site.connection_count == 2
                may_end.set()
                assert await within(slow) == b"/slow 0"
            begun.clear()
            may_end.clear()

    run(main())


def test_connections_without_an_idle_time_are_kept(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quic.Connection, "idle_for", lambda _: 1e9)

    async def main() -> None:
        unlimited: dict[str, Any] = {"idle_timeout": None}
        async with pooled(certificates, server=unlimited, **unlimited) as site:
            for _ in range(3):
                assert await within(site.get()) == b"/ 0"
            assert site.connection_count == 1

    run(main())


def test_no_request_meets_the_end_of_the_idle_time(run: Run, certificates: Certificates) -> None:
    """Requests at all distances from the last one: none is lost with the connection it goes to.

    The server forgets a connection without a word, and answers what comes then by a stateless reset.
    """

    async def main() -> None:
        # As short as the idle time may be on a busy machine: the server must not forget between two
        # of its own turns.
        async with served(certificates, name_path, idle_timeout=1.0) as server:

            async def at(pause: float) -> int:
                async with h3.Pool(ca_file=certificates.authority) as pool:
                    url = f"https://localhost:{server.address[1]}"
                    for _ in range(3):
                        response = await pool.request("POST", url, body=b"abc")
                        assert await response.read() == b"/ 3"
                        await asyncio.sleep(pause)
                    return len(pool._places)

            pauses = [0.1 * step for step in range(1, 13)]
            assert await within(asyncio.gather(*map(at, pauses))) == [1] * len(pauses)

    run(main())


def test_server_that_goes_away_is_asked_on_a_new_connection(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()
        connections: list[quic.Connection] = []

        async def handler(request: h3.Request) -> None:
            if request.connection not in connections:
                connections.append(request.connection)
            if request.path == "/slow":
                begun.set()
                await may_end.wait()
            await request.respond(200, {}, b"%d" % connections.index(request.connection))

        async with pooled(certificates, handler, {"max_streams_bidi": 1}) as site:
            slow = asyncio.ensure_future(site.get("/slow"))
            await within(begun.wait())
            # It waits for the server to allow another stream, and is sent again elsewhere.
            waiting = asyncio.ensure_future(site.get("/"))
            await asyncio.sleep(0)
            native.go_away(connections[0])
            assert await within(waiting) == b"1"
            assert await within(site.get("/")) == b"1"
            may_end.set()
            assert await within(slow) == b"0"
            assert site.connection_count == 2
            # Opening the next connection closes the retired one, which has no requests.
            (left,) = site.pool._leaving
            connections[1].close()
            (place,) = site.pool._places.values()
            await wait_until(lambda: place.client and place.client.connection.is_closed)
            assert await within(site.get("/")) == b"2"
            assert left.connection.is_closed
            assert not site.pool._leaving

    run(main())


def test_rejected_request_is_sent_again_if_its_body_is_there(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        rejections = 0

        async def handler(request: h3.Request) -> None:
            nonlocal rejections
            if rejections:
                rejections -= 1
                request.cancel(h3.RequestRejected.code)
                return
            await name_path(request)

        async def pieces() -> AsyncIterator[bytes]:
            yield b"abc"

        async with pooled(certificates, handler) as site:
            rejections = 2
            response = await within(site.pool.request("POST", site.url, body=b"abc"))
            assert await within(response.read()) == b"/ 3"
            rejections = 3
            with pytest.raises(h3.RequestRejected):
                await within(site.get())
            assert rejections == 0
            rejections = 1
            with pytest.raises(h3.RequestRejected):
                await within(site.pool.request("POST", site.url, body=pieces()))
            response = await within(site.pool.request("POST", site.url, body=pieces()))
            assert await within(response.read()) == b"/ 3"

    run(main())


def test_request_that_may_have_been_processed_is_not_sent_again(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        count = 0

        async def handler(request: h3.Request) -> None:
            nonlocal count
            count += 1
            request.connection.close(0x100)

        async with pooled(certificates, handler) as site:
            with pytest.raises(quic.ConnectionClosed):
                await within(site.get())
            assert count == 1

    run(main())


def test_idle_connections_past_the_limit_are_closed(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with (
            pooled(certificates, connections_max=2) as site,
            served(certificates, name_path) as second,
            served(certificates, name_path) as third,
        ):
            ports = [site.port, second.address[1], third.address[1]]

            async def get(port: int) -> None:
                response = await within(site.pool.request("GET", f"https://localhost:{port}"))
                await within(response.read())

            for port in ports:
                await get(port)
            assert [port for _, port in site.pool._places] == ports[1:]
            # Used again, the second is no longer the one unused for the longest time.
            await get(ports[1])
            await get(ports[0])
            assert [port for _, port in site.pool._places] == [ports[1], ports[0]]
            assert [it.stats().completed for it in (site.server, second, third)] == [2, 1, 1]

    run(main())


def test_origins_that_fail_are_forgotten(run: Run) -> None:
    async def main() -> None:
        async with h3.Pool(connections_max=3) as pool:
            for port in range(1, 10):
                with pytest.raises(quic.Unreachable):
                    await within(pool.request("GET", f"https://127.0.0.1:{port}/"))
            await wait_until(lambda: not pool._tasks)
            assert len(pool._places) <= 4

    run(main())


def test_busy_connections_are_not_closed(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow(request: h3.Request) -> None:
            begun.set()
            await may_end.wait()
            await request.respond(200, {}, b"done")

        async with (
            pooled(certificates, slow, connections_max=1) as site,
            served(certificates, name_path) as other,
        ):
            asking = asyncio.ensure_future(site.get())
            await within(begun.wait())
            response = await within(
                site.pool.request("GET", f"https://localhost:{other.address[1]}")
            )
            may_end.set()
            assert await within(asking) == b"done"
            assert await within(response.read()) == b"/ 0"

    run(main())


def test_cancelled_first_request_leaves_the_others(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with pooled(certificates) as site:
            requests = [asyncio.ensure_future(site.get()) for _ in range(3)]
            await asyncio.sleep(0)
            requests[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await within(requests[0])
            assert await within(asyncio.gather(*requests[1:])) == [b"/ 0"] * 2
            assert site.connection_count == 1

    run(main())


def test_connection_that_fails_fails_all_that_wait_and_is_tried_again(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with pooled(certificates, verify=True, alpn=["other"]) as site:
            requests = [site.get() for _ in range(3)]
            for error in await within(asyncio.gather(*requests, return_exceptions=True)):
                assert isinstance(error, quic.TlsError)
            assert site.server.stats().failed == 1
            with pytest.raises(quic.TlsError):
                await within(site.get())
            assert site.server.stats().failed == 2

    run(main())


def test_closing_ends_requests_and_handshakes(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handler(request: h3.Request) -> None:
            begun.set()
            await request.receive_datagram()

        async with pooled(certificates, handler) as site:
            asking = asyncio.ensure_future(site.get())
            await within(begun.wait())
            with silent_port() as port:
                url = f"https://localhost:{port}"
                opening = asyncio.ensure_future(site.pool.request("GET", url))
                await wait_until(lambda: len(site.pool._places) == 2)
                await within(site.pool.aclose())
            with pytest.raises(quic.ConnectionClosed):
                await within(asking)
            for request in (opening, site.get()):
                with pytest.raises(RuntimeError, match=r"pool (is|was) closed"):
                    await within(request)
            await within(site.pool.aclose())
            assert not site.pool._tasks

    run(main())


def test_alternative_is_asked_first_and_told_who_it_is(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        seen: list[tuple[Any, ...]] = []

        async def handler(request: h3.Request) -> None:
            seen.append((request.authority, request.header("alt-used")))
            await request.respond(200, {}, b"alternative")

        async def origin(request: h3.Request) -> None:
            field = f'h3="127.0.0.1:{other.address[1]}"'
            await request.respond(200, {"alt-svc": field}, b"origin")

        async with (
            served(certificates, handler) as other,
            pooled(certificates, origin) as site,
        ):
            assert await within(site.get()) == b"origin"
            # The connection that is there goes on.
            assert await within(site.get()) == b"origin"
            for connection in site.server.connections:
                connection.close()
            (place,) = site.pool._places.values()
            await wait_until(lambda: place.client and place.client.connection.is_closed)
            assert await within(site.get()) == b"alternative"
            assert seen == [(f"localhost:{site.port}", f"127.0.0.1:{other.address[1]}")]

    run(main())


def test_alternative_that_does_not_serve_the_origin_is_forgotten(
    run: Run, certificates: Certificates
) -> None:
    async def misdirected(request: h3.Request) -> None:
        await request.respond(421)

    async def main() -> None:
        async with served(certificates, misdirected) as other, pooled(certificates) as site:
            origin = ("localhost", site.port)
            site.pool.alternatives.store(origin, f'h3="127.0.0.1:{other.address[1]}"')
            assert await within(site.get()) == b"/ 0"
            assert other.stats().completed == 1
            assert site.pool.alternatives.find(origin) == []

    run(main())


def test_alternative_that_cannot_be_reached_is_left_alone(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pool, "_ALTERNATIVE_SECONDS", 0.05)

    async def main() -> None:
        async with pooled(certificates) as site:
            origin = ("localhost", site.port)
            with silent_port() as port:
                field = f'h3="127.0.0.1:{port}"; ma=100'
                site.pool.alternatives.store(origin, field)
                assert await within(site.get()) == b"/ 0"
            assert site.pool.alternatives.find(origin) == []

    run(main())


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://localhost/", "not an https URL"),
        ("localhost/a", "not an https URL"),
        ("https:///a", "not an https URL"),
        ("https://user:secret@localhost/", "is not sent"),
        ("https://localhost:99999/", "ort"),
        ("https://localhost:x/", "ort"),
    ],
)
def test_bad_urls_are_refused(run: Run, url: str, problem: str) -> None:
    async def main() -> None:
        async with h3.Pool() as pool:
            with pytest.raises(ValueError, match=problem):
                await pool.request("GET", url)

    run(main())


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="connections_max is 0: give 1 or more"):
        h3.Pool(connections_max=0)
    with pytest.raises(TypeError, match="Did you mean 'ca_file'"):
        h3.Pool(cafile="x")  # type: ignore[call-arg]


@contextmanager
def served_elsewhere(certificates: Certificates) -> Iterator[str]:
    """Serve on a loop of another thread; give the URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = served(certificates, name_path)

    def run_there(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    try:
        server = run_there(serving.__aenter__())
        yield f"https://localhost:{server.address[1]}/"
        run_there(serving.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_pool_is_of_one_loop_at_a_time(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], certificates: Certificates
) -> None:
    pool = h3.Pool(ca_file=certificates.authority)

    async def fetched(url: str) -> bytes:
        response = await within(pool.request("GET", url))
        return await within(response.read())

    with served_elsewhere(certificates) as url:
        for _ in range(2):
            loop, other = loop_factory(), loop_factory()
            try:
                assert loop.run_until_complete(fetched(url)) == b"/ 0"
                for use in (fetched(url), pool.aclose()):
                    with pytest.raises(RuntimeError, match="used by another event loop"):
                        other.run_until_complete(use)
            finally:
                loop.close()
                other.close()
        last = loop_factory()
        try:
            last.run_until_complete(pool.aclose())
            with pytest.raises(RuntimeError, match="the pool is closed"):
                last.run_until_complete(fetched(url))
        finally:
            last.close()
