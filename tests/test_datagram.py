"""Datagram endpoints, on asyncio and on both drivers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import itertools
import logging
import os
import socket
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, None]], None]

# Both came with 3.13: "Changed in version 3.13" of DatagramTransport.sendto.
SENDS_EMPTY = sys.version_info >= (3, 13)
HEADER_LEN = 8 if SENDS_EMPTY else 0
LARGEST = 65507  # an IPv4 datagram's payload
BURST = 10_000


class Recorder(asyncio.DatagramProtocol):
    """Keep what the loop tells."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.calls: list[str] = []
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)

    @property
    def data(self) -> list[bytes]:
        return [data for data, _ in self.received]


class Echo(Recorder):
    def datagram_received(self, data: bytes, addr: Any) -> None:
        super().datagram_received(data, addr)
        self.transport.sendto(data, addr)


@contextlib.asynccontextmanager
async def endpoint(factory: type[Recorder] = Recorder, **options: Any) -> AsyncIterator[Any]:
    """An endpoint, closed at the end; 127.0.0.1 where the options say nothing."""
    if not options:
        options["local_addr"] = ("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(factory, **options)
    try:
        yield protocol
    finally:
        if not protocol.lost.done():
            transport.abort()
        await within(asyncio.shield(protocol.lost))


def name_of(protocol: Recorder) -> Any:
    return protocol.transport.get_extra_info("sockname")


_numbers = itertools.count()


def unix_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets with names: to asyncio a peer without a name is none."""
    pair = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    for sock in pair:
        sock.bind(b"\0ringloop-pair-%d-%d" % (os.getpid(), next(_numbers)))
    left, right = pair
    left.connect(right.getsockname())
    right.connect(left.getsockname())
    return left, right


def fill(transport: Any, until: Callable[[], bool]) -> int:
    """Send 100 bytes again and again; return how often."""
    for count in range(BURST):
        if until():
            return count
        transport.sendto(bytes(100))
    pytest.fail("the socket never filled up")


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_datagram_comes_back_from_the_address_it_went_to(
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
            # What CPython's own socket makes of an address, digit for digit.
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


def test_a_datagram_that_is_too_long_is_an_error_of_its_sender(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            sender.transport.sendto(bytes(LARGEST + 1))
            # Told before sendto returns.
            assert [error.errno for error in sender.errors] == [90]  # EMSGSIZE
            sender.transport.sendto(b"short")
            await wait_until(lambda: receiver.received)
            assert receiver.data == [b"short"]

    run(main())


def test_a_unix_datagram_longer_than_the_receive_size_is_cut(run: Run) -> None:
    received_max = 256 * 1024

    async def main() -> None:
        left, right = unix_pair()
        left.setsockopt(socket.SOL_SOCKET, 32, 1 << 20)  # SO_SNDBUFFORCE
        async with endpoint(sock=right) as receiver:
            with left:
                try:
                    left.send(b"x" * (received_max + 1000))
                except OSError as error:
                    pytest.skip(f"no datagram of that size here: {error}")
                left.send(b"next")
                await wait_until(lambda: len(receiver.received) == 2)
            assert [len(data) for data in receiver.data] == [received_max, 4]

    run(main())


def test_empty_datagrams_go_out_as_the_version_says(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            sender.transport.sendto(b"")
            sender.transport.sendto(b"end")
            await wait_until(lambda: b"end" in receiver.data)
            assert receiver.data == ([b"", b"end"] if SENDS_EMPTY else [b"end"])

    run(main())


def test_an_empty_datagram_is_received_and_ends_nothing(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for data in (b"", b"a", b""):
                    sender.sendto(data, name_of(receiver))
            await wait_until(lambda: len(receiver.received) == 3)
            assert receiver.data == [b"", b"a", b""]

    run(main())


def test_a_full_socket_pauses_and_resumes_the_protocol(run: Run) -> None:
    async def main() -> None:
        left, right = unix_pair()
        right.setblocking(False)
        async with endpoint(sock=left) as sender:
            with right:
                transport = sender.transport
                transport.set_write_buffer_limits(high=1000, low=200)
                assert transport.get_write_buffer_limits() == (200, 1000)
                fill(transport, lambda: transport.get_write_buffer_size() > 0)
                assert transport.get_write_buffer_size() == 100 + HEADER_LEN
                assert "pause" not in sender.calls
                queued = 1 + fill(transport, lambda: "pause" in sender.calls)
                assert queued == 1000 // (100 + HEADER_LEN) + 1
                assert transport.get_write_buffer_size() == queued * (100 + HEADER_LEN)

                def resumed() -> bool:
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            right.recv(1000)
                    return "resume" in sender.calls

                await wait_until(resumed)
                assert sender.calls == ["made", "pause", "resume"]
                if sys.version_info[:3] != (3, 13, 0):  # which forgets the headers it counted
                    await wait_until(lambda: transport.get_write_buffer_size() == 0)

    run(main())


def test_bad_limits_are_refused(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as protocol:
            with pytest.raises(ValueError, match=r"high .* must be >= low"):
                protocol.transport.set_write_buffer_limits(high=1, low=2)

    run(main())


def test_close_sends_what_is_queued_and_abort_does_not(run: Run) -> None:
    async def main() -> None:
        for ending in ("close", "abort"):
            left, right = unix_pair()
            right.setblocking(False)
            async with endpoint(sock=left) as sender:
                with right:
                    count = 0
                    while sender.transport.get_write_buffer_size() == 0:
                        assert count < BURST
                        sender.transport.sendto(b"%d" % count)
                        count += 1
                    last = count
                    sender.transport.sendto(b"%d" % last)
                    getattr(sender.transport, ending)()
                    assert sender.transport.is_closing()
                    arrived: list[int] = []

                    def drained() -> bool:
                        with contextlib.suppress(BlockingIOError):
                            while True:
                                arrived.append(int(right.recv(100)))  # noqa: B023
                        return bool(sender.lost.done())

                    await wait_until(drained)
                    assert sender.lost.result() is None
                    drained()
                    sent = last + 1 if ending == "close" else last - 1
                    assert arrived == list(range(sent))

    run(main())


def test_errors_of_the_network_reach_error_received_and_end_nothing(run: Run) -> None:
    async def main() -> None:
        closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()
        async with endpoint(remote_addr=nobody) as protocol:
            # Only now: the endpoint could have been given the free port.
            closed.close()
            protocol.transport.sendto(b"refused")
            await wait_until(lambda: protocol.errors)
            assert type(protocol.errors[0]) is ConnectionRefusedError
            assert protocol.errors[0].errno == 111
            assert not protocol.transport.is_closing()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
                peer.bind(nobody)
                peer.sendto(b"still there", name_of(protocol))
                await wait_until(lambda: protocol.received)
                assert protocol.data == [b"still there"]

    run(main())


def test_the_error_of_a_send_is_told_inside_sendto_and_what_it_raises_goes_to_the_caller(
    run: Run,
) -> None:
    class Raises(Recorder):
        def error_received(self, exc: Exception) -> None:
            raise LookupError("mine") from exc

    async def main() -> None:
        async with endpoint(Raises) as protocol:
            with pytest.raises(LookupError, match="mine"):
                protocol.transport.sendto(bytes(LARGEST + 1), ("127.0.0.1", 9))
            assert not protocol.transport.is_closing()

    run(main())


def test_names_are_resolved_as_by_the_socket_and_nonsense_is_refused(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint() as sender:
            port = name_of(receiver)[1]
            sender.transport.sendto(b"by name", ("localhost", port))
            sender.transport.sendto(b"short form", ("127.1", port))
            await wait_until(lambda: len(receiver.received) == 2)
            assert receiver.data == [b"by name", b"short form"]
            sender.transport.sendto(b"", ("127.0.0.1", port))

    run(main())


@pytest.mark.loop_errors
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (None, TypeError),
        (("127.0.0.1",), TypeError),
        (("127.0.0.1", "x"), TypeError),
        (("127.0.0.1", 70000), OverflowError),
        (("127.0.0.1", -1), OverflowError),
        (["127.0.0.1", 9], TypeError),
    ],
)
def test_what_is_no_address_ends_the_endpoint(
    run: Run, loop: asyncio.AbstractEventLoop, address: Any, kind: type[Exception]
) -> None:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    async def main() -> None:
        async with endpoint() as protocol:
            protocol.transport.sendto(b"x", address)
            assert protocol.transport.is_closing()
            assert type(await within(asyncio.shield(protocol.lost))) is kind
            assert [c["message"] for c in told] == ["Fatal write error on datagram transport"]
            assert told[0]["protocol"] is protocol
            assert protocol.errors == []

    run(main())


def test_wrong_data_and_wrong_addresses_are_refused_at_the_call(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            for wrong in ("text", 5, [1]):
                with pytest.raises(TypeError, match="must be a bytes-like object, not '"):
                    sender.transport.sendto(wrong)
            with pytest.raises(ValueError, match="Invalid address: must be None or"):
                sender.transport.sendto(b"x", ("127.0.0.1", 1))
            sender.transport.sendto(b"same", name_of(receiver))
            await wait_until(lambda: receiver.received)
            assert receiver.data == [b"same"]

    run(main())


def test_close_in_a_callback_delivers_nothing_more(run: Run) -> None:
    class ClosesAtOnce(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.close()

    async def main() -> None:
        async with endpoint(ClosesAtOnce) as receiver:
            receiver.transport.pause_reading()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(10):
                    sender.sendto(b"%d" % number, name_of(receiver))
            receiver.transport.resume_reading()
            assert await within(asyncio.shield(receiver.lost)) is None
            assert receiver.data == [b"0"]
            assert receiver.calls == ["made", "lost"]

    run(main())


def test_a_pause_holds_the_rest_of_a_batch_in_order(run: Run) -> None:
    class PausesOften(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if int(data) % 7 == 3:
                self.transport.pause_reading()

    async def main() -> None:
        async with endpoint(PausesOften) as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(100):
                    sender.sendto(b"%d" % number, name_of(receiver))
            for stop in range(4, 100, 7):
                await wait_until(lambda: not receiver.transport.is_reading())
                assert len(receiver.received) == stop
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert len(receiver.received) == stop
                receiver.transport.resume_reading()
            await wait_until(lambda: len(receiver.received) == 100)
            assert [int(data) for data in receiver.data] == list(range(100))

    run(main())


@pytest.mark.loop_errors
def test_a_protocol_that_raises_is_reported_and_goes_on(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    class Raises(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"1":
                raise LookupError("mine")

    async def main() -> None:
        async with endpoint(Raises) as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(3):
                    sender.sendto(b"%d" % number, name_of(receiver))
            await wait_until(lambda: len(receiver.received) == 3)
            assert not receiver.transport.is_closing()
            assert len(told) == 1
            assert told[0]["message"].startswith("Exception in callback ")
            assert "._read_ready()" in told[0]["message"]
            assert repr(told[0]["exception"]) == "LookupError('mine')"

    run(main())


def test_an_interrupt_leaves_the_loop_and_loses_no_datagram(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    class Interrupts(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"3":
                raise KeyboardInterrupt

    made: list[Recorder] = []

    async def begin() -> None:
        _, protocol = await loop.create_datagram_endpoint(Interrupts, local_addr=("127.0.0.1", 0))
        made.append(protocol)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(10):
                sender.sendto(b"%d" % number, name_of(protocol))

    async def end() -> None:
        await wait_until(lambda: len(made[0].received) == 10)
        assert [int(data) for data in made[0].data] == list(range(10))
        made[0].transport.close()
        await within(asyncio.shield(made[0].lost))

    run(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    run(end())


def test_sends_after_the_end_are_dropped_and_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            sender.transport.close()
            await within(asyncio.shield(sender.lost))
            with caplog.at_level(logging.WARNING, logger="asyncio"):
                for _ in range(6):
                    sender.transport.sendto(b"late")
            assert caplog.messages == ["socket.send() raised exception."] * 2
            assert sender.errors == []

    run(main())


def test_the_port_is_free_once_the_endpoint_is_closed(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as first:
            name = name_of(first)
        async with endpoint(local_addr=name) as second:
            assert name_of(second) == name

    run(main())


def test_a_transport_is_what_asyncio_says_it_is(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as protocol:
            transport = protocol.transport
            assert isinstance(transport, asyncio.Transport)
            if sys.version_info >= (3, 12):
                assert isinstance(transport, asyncio.DatagramTransport)
            sock = transport.get_extra_info("socket")
            assert type(sock) is asyncio.trsock.TransportSocket
            assert sock.getsockname() == name_of(protocol)
            assert transport.get_protocol() is protocol
            shown = f"fd={sock.fileno()} read=polling write=<idle, bufsize=0>"
            await wait_until(lambda: shown in repr(transport))
            with pytest.raises(RuntimeError, match="is used by transport"):
                asyncio.get_running_loop().add_reader(sock.fileno(), print)
            other = Recorder()
            transport.set_protocol(other)
            assert transport.get_protocol() is other
            transport.sendto(b"to myself", sock.getsockname())
            await wait_until(lambda: other.received)
            transport.set_protocol(protocol)
            transport.close()
            assert " closing " in repr(transport)

    run(main())


def test_callbacks_run_in_the_context_of_the_endpoint(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    class Looks(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            seen.append(variable.get())

        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            seen.append(variable.get())

    async def main() -> None:
        variable.set("endpoint")
        async with endpoint(Looks) as receiver:
            variable.set("later")
            receiver.transport.sendto(b"x", name_of(receiver))
            await wait_until(lambda: receiver.received)
        assert seen == ["endpoint", "endpoint"]

    run(main())


def test_unix_datagrams_with_paths_abstract_names_and_none(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "bound")
        abstract = b"\0ringloop-test-%d" % os.getpid()
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
def test_sources_are_written_as_the_socket_module_writes_them(run: Run, text: str) -> None:
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
        # With it, a remote address is remembered and not connected to.
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


def test_an_endpoint_nobody_closed_warns(loop_factory: Any) -> None:
    loop = loop_factory()

    async def main() -> None:
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        gc.collect()
    assert any("unclosed transport" in str(warning.message) for warning in caught)


def test_a_thousand_endpoints_come_and_go(run: Run) -> None:
    async def main() -> None:
        async with endpoint(Echo) as server:
            for _ in range(10):
                async with contextlib.AsyncExitStack() as stack:
                    clients = [
                        await stack.enter_async_context(endpoint(remote_addr=name_of(server)))
                        for _ in range(100)
                    ]
                    for client in clients:
                        client.transport.sendto(b"ping")
                    await wait_until(lambda: all(client.received for client in clients))  # noqa: B023
            assert len(server.received) == 1000

    run(main())
