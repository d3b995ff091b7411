"""Exchange between datagram endpoints: order, sizes, addresses, families."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support import wait_until
from tests.support.datagrams import BURST, LARGEST, SENDS_EMPTY, Echo, endpoint, name_of, unix_pair

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.datagrams import Run


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_datagram_is_answered_from_its_destination(
    run: Run, family: socket.AddressFamily, host: str
) -> None:
    async def main() -> None:
        async with endpoint(Echo, local_addr=(host, 0)) as server:
            to = name_of(server)
            async with endpoint(remote_addr=to[:2]) as connected:
                assert connected.transport.get_extra_info("peername") == to
                connected.transport.sendto(b"connected")
                await wait_until(lambda: connected.received)
                assert connected.received == [(b"connected", to)]
            async with endpoint(family=family, local_addr=(host, 0)) as free:
                assert free.transport.get_extra_info("peername") is None
                free.transport.sendto(b"free", to)
                free.transport.sendto(bytearray(b"again"), addr=to[:2])
                free.transport.sendto(memoryview(b"-twice-")[1:-1], to)
                await wait_until(lambda: len(free.received) == 3)
                assert free.data == [b"free", b"again", b"twice"]
                assert {source for _, source in free.received} == {to}
                source = name_of(free)
            assert [s for _, s in server.received[1:]] == [source] * 3
            # The address as CPython's own socket formats it.
            assert type(source) is tuple
            assert len(source) == (2 if family == socket.AF_INET else 4)

    run(main())


def test_each_sender_keeps_its_order_in_a_burst(run: Run) -> None:
    senders = 20

    async def main() -> None:
        async with endpoint() as receiver, contextlib.AsyncExitStack() as stack:
            sock = receiver.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            to = name_of(receiver)
            made = [
                await stack.enter_async_context(endpoint(remote_addr=to)) for _ in range(senders)
            ]
            for start in range(0, BURST // senders, 10):
                for number in range(start, start + 10):
                    for sender in made:
                        sender.transport.sendto(b"%d" % number)
                # No more in flight than a default receive buffer holds: UDP may drop the rest.
                count = (start + 10) * senders
                await wait_until(lambda: len(receiver.received) == count)  # noqa: B023
            for sender in made:
                name = name_of(sender)
                numbers = [int(data) for data, source in receiver.received if source == name]
                assert numbers == list(range(BURST // senders))

    run(main())


def test_a_unix_burst_keeps_its_order_and_loses_nothing(run: Run) -> None:
    async def main() -> None:
        left, right = unix_pair()
        async with endpoint(sock=left) as sender, endpoint(sock=right) as receiver:
            sender.transport.set_write_buffer_limits(high=1 << 30)
            for number in range(BURST):
                sender.transport.sendto(b"%d" % number)
            assert sender.transport.get_write_buffer_size() > 0
            await wait_until(lambda: len(receiver.received) == BURST)
            assert [int(data) for data in receiver.data] == list(range(BURST))
            assert sender.errors == []

    run(main())


@pytest.mark.parametrize("size", [1, 4096, 65000, LARGEST])
def test_large_datagrams_arrive_whole(run: Run, size: int) -> None:
    async def main() -> None:
        async with endpoint(Echo) as server, endpoint(remote_addr=name_of(server)) as client:
            data = os.urandom(size)
            client.transport.sendto(data)
            await wait_until(lambda: client.received)
            assert client.data == [data]

    run(main())


def test_empty_datagrams_are_sent_as_by_this_version(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            sender.transport.sendto(b"")
            sender.transport.sendto(b"end")
            await wait_until(lambda: b"end" in receiver.data)
            assert receiver.data == ([b"", b"end"] if SENDS_EMPTY else [b"end"])

    run(main())


def test_empty_datagram_is_received(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for data in (b"", b"a", b""):
                    sender.sendto(data, name_of(receiver))
            await wait_until(lambda: len(receiver.received) == 3)
            assert receiver.data == [b"", b"a", b""]

    run(main())


def test_names_are_resolved_as_by_the_socket(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint() as sender:
            port = name_of(receiver)[1]
            sender.transport.sendto(b"by name", ("localhost", port))
            sender.transport.sendto(b"short form", ("127.1", port))
            await wait_until(lambda: len(receiver.received) == 2)
            assert receiver.data == [b"by name", b"short form"]
            sender.transport.sendto(b"", ("127.0.0.1", port))

    run(main())


def test_unix_datagrams_with_paths_abstract_and_no_names(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "bound")
        abstract = b"\0" + path.encode()
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            await enter(endpoint(Echo, family=socket.AF_UNIX, local_addr=path))
            hidden = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            hidden.bind(abstract)
            by_name = await enter(endpoint(Echo, sock=hidden))
            client = await enter(
                endpoint(family=socket.AF_UNIX, local_addr=str(tmp_path / "client"))
            )
            client.transport.sendto(b"path", path)
            client.transport.sendto(b"abstract", abstract)
            await wait_until(lambda: len(client.received) == 2)
            assert sorted(client.received, key=str) == sorted(
                [(b"path", path), (b"abstract", abstract)], key=str
            )
            assert by_name.received == [(b"abstract", str(tmp_path / "client"))]

    run(main())


def test_a_nameless_unix_sender_has_no_address(run: Run) -> None:
    async def main() -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with left:
            async with endpoint(sock=right) as receiver:
                left.send(b"x")
                await wait_until(lambda: receiver.received)
                assert receiver.received == [(b"x", None)]

    run(main())


@pytest.mark.parametrize("text", ["::1", "::ffff:127.0.0.1"])
def test_sources_are_formatted_as_by_the_socket_module(run: Run, text: str) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as peer:
            peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            peer.bind((text, 0))
            plain = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            plain.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            plain.bind((text, 0))
            async with endpoint(sock=plain) as receiver:
                peer.sendto(b"x", name_of(receiver))
                await wait_until(lambda: receiver.received)
                assert receiver.received == [(b"x", peer.getsockname())]
                receiver.transport.sendto(b"y", peer.getsockname())
                assert peer.recvfrom(10) == (b"y", name_of(receiver))

    run(main())


def test_broadcast_is_allowed_when_asked_for(run: Run) -> None:
    async def main() -> None:
        async with endpoint(local_addr=("127.0.0.1", 0), allow_broadcast=True) as protocol:
            sock = protocol.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
        # With it, a remote address is remembered but not connected to.
        async with endpoint() as receiver:
            to = name_of(receiver)
            async with endpoint(remote_addr=to, allow_broadcast=True) as sender:
                assert sender.transport.get_extra_info("peername") is None
                sender.transport.sendto(b"a")
                sender.transport.sendto(b"b", to)
                with pytest.raises(ValueError, match="Invalid address"):
                    sender.transport.sendto(b"c", ("127.0.0.1", 1))
                await wait_until(lambda: len(receiver.received) == 2)

    run(main())


def test_several_endpoints_share_a_port_when_asked_to(run: Run) -> None:
    async def main() -> None:
        async with endpoint(local_addr=("127.0.0.1", 0), reuse_port=True) as first:
            async with endpoint(local_addr=name_of(first), reuse_port=True) as second:
                assert name_of(second) == name_of(first)
            with pytest.raises(OSError, match="ddress already in use"):
                async with endpoint(local_addr=name_of(first)):
                    pass

    run(main())
