"""Local and remote addresses of a connection: order, families, races, and sockets passed in."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Echo, Peer, Recorder, closed, serving, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

V6 = [("2001:db8::1", 1, 0, 0), ("2001:db8::2", 1, 0, 0), ("2001:db8::3", 1, 0, 0)]
V4 = [("192.0.2.1", 1), ("192.0.2.2", 1)]


def family_of(address: tuple[Any, ...]) -> socket.AddressFamily:
    return socket.AF_INET6 if len(address) == 4 else socket.AF_INET


def resolve_by_name(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, list[tuple[Any, ...]]]
) -> None:
    async def getaddrinfo(
        _loop: object, host: str, *_arguments: object, family: int = 0, **_hints: object
    ) -> Any:
        return [
            (family_of(address), socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
            for address in names[host]
            if family in {0, family_of(address)}
        ]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)


def refuse_all(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Make every connect fail; return the addresses tried, in order."""
    tried: list[tuple[Any, ...]] = []

    async def sock_connect(_loop: object, sock: socket.socket, address: tuple[Any, ...]) -> None:
        assert sock.family == family_of(address)
        tried.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"refused by {address[0]}")

    monkeypatch.setattr(type(asyncio.get_running_loop()), "sock_connect", sock_connect)
    return tried


async def connect(**arguments: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.create_connection(Recorder, "far.invalid", 1, **arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, V6 + V4),
        ({"interleave": 1}, [V6[0], V4[0], V6[1], V4[1], V6[2]]),
        ({"interleave": 2}, [V6[0], V6[1], V4[0], V6[2], V4[1]]),
        ({"happy_eyeballs_delay": 0.25}, [V6[0], V4[0], V6[1], V4[1], V6[2]]),
        ({"happy_eyeballs_delay": 0.25, "interleave": 0}, V6 + V4),
        ({"family": socket.AF_INET}, V4),
        ({"family": socket.AF_INET6}, V6),
    ],
)
def test_order_of_the_attempts(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], expected: Any
) -> None:
    async def main() -> None:
        resolve_by_name(monkeypatch, {"far.invalid": V6 + V4})
        tried = refuse_all(monkeypatch)
        with pytest.raises(OSError, match=r"Multiple exceptions: .*refused by"):
            await connect(**arguments)
        assert tried == expected

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="all_errors is new in 3.12")
@pytest.mark.parametrize("delay", [None, 0.25])
def test_all_errors_of_a_race(
    run: Run, monkeypatch: pytest.MonkeyPatch, delay: float | None
) -> None:
    async def main() -> None:
        resolve_by_name(monkeypatch, {"far.invalid": V6 + V4})
        refuse_all(monkeypatch)
        with pytest.raises(ExceptionGroup) as caught:
            await connect(all_errors=True, happy_eyeballs_delay=delay)
        assert len(caught.value.exceptions) == len(V6 + V4)

    run(main())


def test_one_error_is_not_wrapped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        resolve_by_name(monkeypatch, {"far.invalid": V4[:1]})
        refuse_all(monkeypatch)
        with pytest.raises(ConnectionRefusedError, match=r"refused by 192\.0\.2\.1"):
            await connect()

    run(main())


def test_local_addresses_are_tried_until_one_can_be_bound(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(Recorder) as (_, address):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            names: dict[str, list[tuple[Any, ...]]] = {
                "far.invalid": [address],
                "near.invalid": [V6[0], V4[0], ("127.0.0.1", port)],
            }
            resolve_by_name(monkeypatch, names)
            transport, _ = await support.within(connect(local_addr=("near.invalid", 0)))
            assert transport.get_extra_info("sockname") == ("127.0.0.1", port)
            transport.abort()
            await closed(transport)

    run(main())


@pytest.mark.parametrize(
    ("near", "words"),
    [
        ([V4[0]], "error while attempting to bind on address"),
        ([V6[0]], "no matching local address with family="),
    ],
)
def test_no_local_address_fits(
    run: Run, monkeypatch: pytest.MonkeyPatch, near: list[tuple[Any, ...]], words: str
) -> None:
    if sys.version_info < (3, 12) and near == [V6[0]]:
        pytest.skip("3.11 tries the address of the other family, and says that it failed")

    async def main() -> None:
        resolve_by_name(monkeypatch, {"far.invalid": [("127.0.0.1", 9)], "near.invalid": near})
        with pytest.raises(OSError, match=words):
            await connect(local_addr=("near.invalid", 0))

    run(main())


# --- sockets passed in ----------------------------------------------------------------------------


def test_accepted_socket_becomes_a_connection(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        transport, protocol = await loop.connect_accepted_socket(Echo, ours)
        assert isinstance(protocol, Echo)
        assert transport.get_extra_info("peername") == theirs.getsockname()
        await peer.send(b"hello")
        assert await peer.receive(5) == b"hello"
        transport.close()
        await closed(transport)
        peer.close()

    run(main())


def test_accepted_socket_speaks_tls(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket_pair()
        theirs.setblocking(False)
        (server, _), (client, answer) = await support.within(
            asyncio.gather(
                loop.connect_accepted_socket(
                    Echo,
                    ours,
                    ssl=certificates.server(),
                    ssl_handshake_timeout=10,
                    ssl_shutdown_timeout=10,
                ),
                loop.create_connection(
                    Recorder, sock=theirs, ssl=certificates.client(), server_hostname="localhost"
                ),
            )
        )
        client.write(b"hello")
        await support.wait_until(lambda: answer.data == b"hello")
        assert server.get_extra_info("ssl_object").server_side
        client.close()
        server.close()
        await support.wait_until(lambda: ours.fileno() == theirs.fileno() == -1)

    run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"ssl_handshake_timeout": 1},
            "ssl_handshake_timeout is only meaningful with ssl",
        ),
        ({"ssl_shutdown_timeout": 1}, "ssl_shutdown_timeout is only meaningful with ssl"),
    ],
)
def test_arguments_of_tls_without_tls(run: Run, arguments: dict[str, Any], words: str) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        ours, theirs = socket_pair()
        with pytest.raises(ValueError, match=words):
            await loop.connect_accepted_socket(Recorder, ours, **arguments)
        ours.close()
        theirs.close()

    run(main())


def test_datagram_socket_is_not_accepted(run: Run) -> None:
    async def main() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
            pytest.raises(ValueError, match="A Stream Socket was expected"),
        ):
            await asyncio.get_running_loop().connect_accepted_socket(Recorder, sock)

    run(main())


def test_factory_that_raises_leaves_the_accepted_socket_open(run: Run) -> None:
    def fail() -> Recorder:
        raise LookupError("no protocol today")

    async def main() -> None:
        ours, theirs = socket_pair()
        with pytest.raises(LookupError, match="no protocol today"):
            await asyncio.get_running_loop().connect_accepted_socket(fail, ours)
        assert ours.fileno() != -1
        ours.close()
        theirs.close()

    run(main())
