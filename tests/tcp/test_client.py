"""`loop.create_connection`: every way to reach a server, and every way to fail."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import random
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, closed, serving, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def refusing() -> Iterator[tuple[str, int]]:
    """An address that refuses connections: bound, so that it stays free, and not listening."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()


async def finish(transport: Any) -> None:
    transport.close()
    await closed(transport)


async def connect_and_finish(*address: Any, **arguments: Any) -> Any:
    """Connect; return the names of both ends."""
    loop = asyncio.get_running_loop()
    transport, protocol = await support.within(
        loop.create_connection(Recorder, *address, **arguments)
    )
    assert protocol.transport is transport
    assert protocol.events == ["connection_made"]
    names = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    await finish(transport)
    return names


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connects(run: Run, host: str) -> None:
    async def main() -> None:
        async with serving(Recorder) as (_, address):
            _, peername = await connect_and_finish(host, address[1])
            assert peername == address

    run(main())


def test_refused(run: Run, refusing: tuple[str, int]) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionRefusedError) as caught:
            await asyncio.get_running_loop().create_connection(Recorder, *refusing)
        assert caught.value.errno == errno.ECONNREFUSED
        assert str(refusing[1]) in str(caught.value)

    run(main())


def test_unreachable(run: Run) -> None:
    async def main() -> None:
        # TCP has no broadcast: the kernel refuses immediately.
        with pytest.raises(OSError, match=r"unreachable|denied|Connect") as caught:
            await asyncio.get_running_loop().create_connection(Recorder, "255.255.255.255", 80)
        assert caught.value.errno in (errno.ENETUNREACH, errno.EACCES)

    run(main())


def test_unknown_host(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(socket.gaierror):
            await asyncio.get_running_loop().create_connection(Recorder, "256.256.256.256", 80)

    run(main())


def test_factory_that_raises_leaves_no_descriptor(run: Run) -> None:
    def factory() -> Recorder:
        raise ZeroDivisionError

    async def main() -> None:
        server = Recorder()
        async with serving(lambda: server) as (_, address):
            with pytest.raises(ZeroDivisionError):
                await asyncio.get_running_loop().create_connection(factory, *address)

    # Before 3.15 asyncio leaves the socket to the garbage collector, which warns.
    leaves_it = pytest.warns(ResourceWarning)
    with contextlib.nullcontext() if sys.version_info >= (3, 15) else leaves_it:
        run(main())
        gc.collect()


@pytest.mark.parametrize("turns", range(8))
def test_cancelled_connect_leaves_no_descriptor(run: Run, loop_name: str, turns: int) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's server leaves what it accepts while it closes to the collector")

    async def main() -> None:
        async with serving(Recorder) as (_, address):
            task = asyncio.ensure_future(
                asyncio.get_running_loop().create_connection(Recorder, *address)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                transport, _ = await task
            except asyncio.CancelledError:
                pass
            else:
                await finish(transport)

    run(main())


def test_timed_out_connect_leaves_no_descriptor(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # A full backlog: further connects hang.
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(0)
            fillers = []
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(listening.getsockname())
                fillers.append(filler)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(
                    loop.create_connection(Recorder, *listening.getsockname()), 0.05
                )
            for filler in fillers:
                filler.close()

    run(main())


def test_local_address(run: Run) -> None:
    async def main() -> None:
        # A random loopback address: other programs that ask for a port get it on another one.
        host = ".".join(map(str, (127, *(random.randrange(1, 255) for _ in range(3)))))
        with socket.socket() as sock:
            sock.bind((host, 0))
            wanted = sock.getsockname()
        async with serving(Recorder) as (_, address):
            sockname, _ = await connect_and_finish(*address, local_addr=wanted)
            assert sockname == wanted

    run(main())


def test_local_address_in_use(run: Run) -> None:
    async def main() -> None:
        async with serving(Recorder) as (_, address):
            with pytest.raises(OSError, match="error while attempting to bind") as caught:
                await connect_and_finish(*address, local_addr=address)
            assert caught.value.errno == errno.EADDRINUSE

    run(main())


def test_given_socket(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Recorder, sock=ours)
        assert transport.get_extra_info("peername") == theirs.getsockname()
        await finish(transport)
        assert ours.fileno() == -1
        theirs.close()

    run(main())


def test_given_pair_of_unix_sockets(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Recorder, sock=ours)
        theirs.send(b"hello")
        await support.wait_until(lambda: protocol.data == b"hello", "the data")
        transport.write(b"answer")
        await finish(transport)
        assert theirs.recv(10) == b"answer"
        theirs.close()

    run(main())


def test_given_socket_that_blocks_is_made_non_blocking(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        ours.setblocking(True)
        transport, _ = await asyncio.get_running_loop().create_connection(Recorder, sock=ours)
        assert ours.gettimeout() == 0
        await finish(transport)
        theirs.close()

    run(main())


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"host": "127.0.0.1", "sock": object()},
        {"server_hostname": "x", "host": "127.0.0.1", "port": 1},
        {"ssl": True},
        {"ssl_handshake_timeout": 1.0, "host": "127.0.0.1", "port": 1},
    ],
)
def test_wrong_arguments(run: Run, arguments: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(ValueError):
            await asyncio.get_running_loop().create_connection(Recorder, **arguments)

    run(main())


def test_datagram_socket_is_refused(run: Run) -> None:
    async def main() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
            pytest.raises(ValueError, match="Stream Socket"),
        ):
            await asyncio.get_running_loop().create_connection(Recorder, sock=sock)

    run(main())


# --- several addresses ----------------------------------------------------------------------------


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    """Resolve every name to these addresses."""

    async def getaddrinfo(_loop: object, *_arguments: object, **_names: object) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
            for address in addresses
        ]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("delay", [None, 0.001, 10])
def test_the_second_address_is_tried(
    run: Run, monkeypatch: pytest.MonkeyPatch, refusing: tuple[str, int], delay: float | None
) -> None:
    async def main() -> None:
        async with serving(Recorder) as (_, address):
            resolve_to(monkeypatch, refusing, address)
            _, peername = await connect_and_finish("example.invalid", 1, happy_eyeballs_delay=delay)
            assert peername == address

    run(main())


def test_happy_eyeballs_overtakes_a_hanging_address(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with socket.socket() as hangs:
            hangs.bind(("127.0.0.1", 0))
            hangs.listen(0)
            fillers = []
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(hangs.getsockname())
                fillers.append(filler)
            async with serving(Recorder) as (_, address):
                resolve_to(monkeypatch, hangs.getsockname(), address)
                _, peername = await connect_and_finish(
                    "example.invalid", 1, happy_eyeballs_delay=0.01, interleave=1
                )
                assert peername == address
            for filler in fillers:
                filler.close()

    run(main())


def test_all_addresses_fail(
    run: Run, monkeypatch: pytest.MonkeyPatch, refusing: tuple[str, int]
) -> None:
    async def main() -> None:
        resolve_to(monkeypatch, refusing, refusing)
        loop = asyncio.get_running_loop()
        with pytest.raises(OSError, match=r"Connect call failed|Multiple exceptions"):
            await loop.create_connection(Recorder, "example.invalid", 1)

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="all_errors is new in 3.12")
def test_all_errors(run: Run, monkeypatch: pytest.MonkeyPatch, refusing: tuple[str, int]) -> None:
    async def main() -> None:
        resolve_to(monkeypatch, refusing, refusing)
        loop = asyncio.get_running_loop()
        arguments: dict[str, Any] = {"all_errors": True}
        with pytest.raises(ExceptionGroup) as caught:
            await loop.create_connection(Recorder, "example.invalid", 1, **arguments)
        errors = caught.value.exceptions
        assert [type(error) for error in errors] == 2 * [ConnectionRefusedError]

    run(main())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="all_errors is new in 3.12")
def test_all_errors_is_rejected_by_versions_without_it(run: Run) -> None:
    async def main() -> None:
        arguments: dict[str, Any] = {"all_errors": True}
        with pytest.raises(TypeError, match="all_errors"):
            await asyncio.get_running_loop().create_connection(
                Recorder, "127.0.0.1", 1, **arguments
            )

    run(main())


def test_no_address_at_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        resolve_to(monkeypatch)
        with pytest.raises(OSError, match="empty list"):
            await asyncio.get_running_loop().create_connection(Recorder, "example.invalid", 1)

    run(main())


def test_many_connects_at_once(run: Run) -> None:
    async def main() -> None:
        accepted: list[Recorder] = []

        def factory() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        async with serving(factory, backlog=300) as (_, address):
            names = await asyncio.gather(*(connect_and_finish(*address) for _ in range(200)))
            assert len({sockname for sockname, _ in names}) == 200
            await support.wait_until(lambda: len(accepted) == 200, "all connections")
            for protocol in accepted:
                await protocol.until_lost()

    run(main())
