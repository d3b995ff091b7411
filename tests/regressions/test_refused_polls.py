"""epoll refuses to watch what a transport, a server, a child or a call of the loop waits for.

Each of them was stuck, or asked again and again with a whole processor: a listener had stopped for
good, a transport's poll for room was taken for room, a pipe was open and nothing read it. The error
is the caller's or the protocol's now, and nothing is left open. See `test_refused_watches` for
watchers, and `test_refused_for_a_while` for what goes on once the kernel has memory again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import datagrams, pipes, refuse, tcp
from tests.support.tcp import MORE_THAN_THE_KERNEL_TAKES, SOCKET_BUFFER_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.support import LoopFactory
    from tests.support.tls import Certificates

pytestmark = [
    pytest.mark.skipif(not refuse.NUMBERS, reason="no numbers of system calls for this machine"),
]
# How long a connection that is never accepted may be pending: a ring waits for it.
PENDING_SECONDS = 0.3


class Refusal:
    """The kernel's, from `begin()` on; and what the loop's exception handler has got."""

    def __init__(self, loop: asyncio.AbstractEventLoop, error: int) -> None:
        self.loop = loop
        self.error = error
        self.reported: list[int | None] = []
        loop.set_exception_handler(self._handler)

    def begin(self) -> None:
        refuse.deny_watching(self.error)

    def _handler(self, _: object, context: dict[str, Any]) -> None:
        self.reported.append(getattr(context.get("exception"), "errno", None))

    async def reason(self, recorder: Any, arrived: Callable[[], object]) -> int | None:
        """Wait until a protocol has lost its connection, or got what it waits for."""
        await support.wait_until(
            lambda: recorder.is_lost or arrived() or self.reported, "an error, or data"
        )
        return getattr(recorder.reason, "errno", None) if recorder.is_lost else None


def outcome(
    loop_factory: LoopFactory, error: int, work: Callable[[Refusal], Awaitable[int | None]]
) -> tuple[int | None, list[int | None]]:
    """Run `work` in a thread of its own; return the errno that it saw, and those reported."""
    results: list[tuple[int | None, list[int | None]]] = []

    async def main(refusal: Refusal) -> int | None:
        try:
            return await support.within(work(refusal))
        except OSError as seen:
            return seen.errno

    def in_thread() -> None:
        loop = loop_factory()
        try:
            refusal = Refusal(loop, error)
            results.append((loop.run_until_complete(main(refusal)), refusal.reported))
        finally:
            support.close_loop(loop)

    # A filter ends with its thread.
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    return results[0]


@contextlib.contextmanager
def full_listener() -> Iterator[tuple[str, int]]:
    """Listen with a backlog that is full: a further connection stays pending."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield listening.getsockname()


class Ended:
    """Of a protocol: how its connection was lost."""

    reason: BaseException | None = None
    is_lost = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self.reason, self.is_lost = exc, True
        super().connection_lost(exc)  # type: ignore[misc]


class OfDatagrams(Ended, datagrams.Recorder):
    pass


class OfPipe(Ended, pipes.Recorder):
    pass


async def begun() -> None:
    """Let what was made begin to read, without a descriptor of its own."""
    for _ in range(5):
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def pair(recorder: Any, refusal: Refusal) -> AsyncIterator[tuple[Any, socket.socket]]:
    """Make a transport of one end of a pair; both are closed at the end."""
    ours, theirs = tcp.socket_pair(SOCKET_BUFFER_BYTES)
    with theirs:
        transport, _ = await refusal.loop.create_connection(lambda: recorder, sock=ours)
        await begun()
        try:
            yield transport, theirs
        finally:
            transport.abort()
            await tcp.closed(transport)


@contextlib.contextmanager
def soon(refusal: Refusal, callback: Callable[..., object], *args: Any) -> Iterator[None]:
    """Call it in a moment, unless the body has ended by then and closed what is used."""
    timer = refusal.loop.call_later(0.01, callback, *args)
    try:
        yield
    finally:
        timer.cancel()


# --- connections --------------------------------------------------------------------------------------


async def _until_pending(awaitable: Awaitable[Any]) -> None:
    try:
        await asyncio.wait_for(awaitable, PENDING_SECONDS)
    except TimeoutError as error:
        # Of `wait_for`, without an errno; one of the kernel is the work's result.
        if error.errno is not None:
            raise


async def pending_connection(refusal: Refusal) -> None:
    with full_listener() as address:
        refusal.begin()
        await _until_pending(refusal.loop.create_connection(asyncio.Protocol, *address))


async def pending_sock_connect(refusal: Refusal) -> None:
    with full_listener() as address, socket.socket() as sock:
        sock.setblocking(False)
        refusal.begin()
        await _until_pending(refusal.loop.sock_connect(sock, address))


async def pending_streams(refusal: Refusal) -> None:
    with full_listener() as address:
        refusal.begin()
        await _until_pending(asyncio.open_connection(*address))


async def pending_fast_streams(refusal: Refusal) -> None:
    import ringloop

    with full_listener() as address:
        refusal.begin()
        await _until_pending(ringloop.open_connection(*address))


async def accepted_by_sock_accept(refusal: Refusal) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        refusal.begin()
        with socket.socket() as client:
            client.setblocking(False)
            with soon(refusal, client.connect_ex, listening.getsockname()):
                accepted, _ = await refusal.loop.sock_accept(listening)
            accepted.close()


async def sent_by_sock_sendall(refusal: Refusal) -> None:
    ours, theirs = tcp.socket_pair(SOCKET_BUFFER_BYTES)
    with ours, theirs:
        refusal.begin()
        sending = asyncio.ensure_future(
            refusal.loop.sock_sendall(ours, bytes(MORE_THAN_THE_KERNEL_TAKES))
        )
        reader = tcp.Peer(theirs)
        while not sending.done():
            reader.received()
            await asyncio.sleep(0)
        await sending


async def received_by_sock_recv_into(refusal: Refusal) -> None:
    ours, theirs = tcp.socket_pair()
    with ours, theirs:
        refusal.begin()
        with soon(refusal, theirs.send, b"bytes"):
            assert await refusal.loop.sock_recv_into(ours, bytearray(100)) == 5


# --- stream transports --------------------------------------------------------------------------------


async def new_transport(refusal: Refusal) -> int | None:
    recorder = tcp.Recorder()
    refusal.begin()
    async with pair(recorder, refusal) as (_, theirs):
        theirs.send(b"data")
        return await refusal.reason(recorder, lambda: recorder.data)


async def new_buffered_transport(refusal: Refusal) -> int | None:
    class Buffered(asyncio.BufferedProtocol):
        reason: BaseException | None = None
        is_lost = has_data = False

        def get_buffer(self, _: int) -> bytearray:
            return bytearray(100)

        def buffer_updated(self, _: int) -> None:
            self.has_data = True

        def connection_lost(self, exc: BaseException | None) -> None:
            self.reason, self.is_lost = exc, True

    recorder = Buffered()
    refusal.begin()
    async with pair(recorder, refusal) as (_, theirs):
        theirs.send(b"data")
        return await refusal.reason(recorder, lambda: recorder.has_data)


async def resumed_reading(refusal: Refusal) -> int | None:
    recorder = tcp.Recorder()
    async with pair(recorder, refusal) as (transport, theirs):
        theirs.send(b"data")
        await support.wait_until(lambda: recorder.data, "the first data")
        transport.pause_reading()
        # The poll ends with the pause.
        await begun()
        theirs.send(b" and more")
        refusal.begin()
        transport.resume_reading()
        return await refusal.reason(recorder, lambda: len(recorder.data) > 4)


async def wait_for_room(refusal: Refusal) -> int | None:
    recorder = tcp.Recorder()
    async with pair(recorder, refusal) as (transport, theirs):
        refusal.begin()
        transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
        reader = tcp.Peer(theirs)

        def is_sent() -> bool:
            reader.received()
            return not (transport.is_closing() or transport.get_write_buffer_size())

        return await refusal.reason(recorder, is_sent)


async def drained_writer(refusal: Refusal) -> None:
    ours, theirs = tcp.socket_pair(SOCKET_BUFFER_BYTES)
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        await begun()
        refusal.begin()
        peer = tcp.Peer(theirs)
        reading = asyncio.ensure_future(peer.receive(MORE_THAN_THE_KERNEL_TAKES))
        try:
            writer.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            await writer.drain()
            await reading
        finally:
            reading.cancel()
            writer.transport.abort()
            del reader
            await tcp.closed(writer.transport)


async def read_by_a_fast_stream(refusal: Refusal) -> None:
    import ringloop

    ours, theirs = tcp.socket_pair()
    with theirs:
        refusal.begin()
        reader, writer = await ringloop.open_connection(sock=ours)
        try:
            theirs.send(b"line\n")
            assert await reader.readline() == b"line\n"
        finally:
            writer.transport.abort()
            await tcp.closed(writer.transport)


async def accepted_by_a_server(refusal: Refusal) -> int | None:
    factory = tcp.Factory()
    seen = []
    async with tcp.serving(factory) as (_, address):
        assert await tcp.ask(address) == b"ping"
        refusal.begin()
        # Each connection ends with the error, and the server goes on to the next.
        for number in (1, 2):
            with socket.create_connection(address) as client:
                client.send(b"ping")
                await factory.connections(number + 1)
                recorder: Any = factory.made[-1]
                seen.append(await refusal.reason(recorder, lambda: recorder.data))  # noqa: B023
                recorder.transport.abort()
                await tcp.closed(recorder.transport)
    assert seen[0] == seen[1]
    return seen[0]


async def accepted_by_a_unix_server(refusal: Refusal) -> int | None:
    factory = tcp.Factory()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0ringloop-{threading.get_native_id()}")
        server = await refusal.loop.create_unix_server(factory, sock=listening)
        refusal.begin()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(listening.getsockname())
            client.send(b"ping")
            await factory.connections(1)
            recorder: Any = factory.made[-1]
            reason = await refusal.reason(recorder, lambda: recorder.data)
            recorder.transport.abort()
            await tcp.closed(recorder.transport)
        server.close()
        await support.within(server.wait_closed())
    return reason


async def new_server(refusal: Refusal) -> None:
    refusal.begin()
    server = await refusal.loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    server.close()
    await server.wait_closed()


# --- datagrams, pipes, children -----------------------------------------------------------------------


async def new_endpoint(refusal: Refusal) -> int | None:
    refusal.begin()
    async with datagrams.endpoint(OfDatagrams) as recorder:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.sendto(b"data", recorder.transport.get_extra_info("sockname"))
            return await refusal.reason(recorder, lambda: recorder.data)


async def wait_for_room_for_datagrams(refusal: Refusal) -> int | None:
    ours, theirs = datagrams.unix_pair()
    theirs.setblocking(False)
    with theirs:
        recorder = OfDatagrams()
        transport, _ = await refusal.loop.create_datagram_endpoint(lambda: recorder, sock=ours)
        await begun()
        refusal.begin()

        def is_sent() -> bool:
            with contextlib.suppress(BlockingIOError):
                while True:
                    theirs.recv(1 << 16)
            return not (transport.is_closing() or transport.get_write_buffer_size())

        def is_full() -> bool:
            return transport.is_closing() or transport.get_write_buffer_size() > 0

        try:
            datagrams.fill(transport, is_full)
            return await refusal.reason(recorder, is_sent)
        finally:
            transport.abort()
            await tcp.closed(transport)


@contextlib.contextmanager
def pipe() -> Iterator[tuple[Any, Any]]:
    reader, writer = os.pipe()
    with open(reader, "rb", 0) as reading, open(writer, "wb", 0) as writing:
        yield reading, writing


async def _lost(recorder: Any) -> None:
    await support.wait_until(lambda: recorder.is_lost, "connection_lost")


async def read_pipe(refusal: Refusal) -> int | None:
    recorder = OfPipe()
    with pipe() as (reading, writing):
        refusal.begin()
        try:
            await refusal.loop.connect_read_pipe(lambda: recorder, reading)
            writing.write(b"data")
            return await refusal.reason(recorder, lambda: recorder.data)
        finally:
            recorder.transport.close()
            await _lost(recorder)


async def resumed_pipe(refusal: Refusal) -> int | None:
    recorder = OfPipe()
    with pipe() as (reading, writing):
        transport, _ = await refusal.loop.connect_read_pipe(lambda: recorder, reading)
        transport.pause_reading()
        writing.write(b"data")
        await begun()
        refusal.begin()
        try:
            transport.resume_reading()
            return await refusal.reason(recorder, lambda: recorder.data)
        finally:
            transport.close()
            await _lost(recorder)


async def write_pipe(refusal: Refusal) -> int | None:
    recorder = OfPipe()
    with pipe() as (reading, writing):
        refusal.begin()
        try:
            await refusal.loop.connect_write_pipe(lambda: recorder, writing)
            # Its poll is for the end of the reader.
            refusal.loop.call_later(0.01, reading.close)
            return await refusal.reason(recorder, lambda: False)
        finally:
            recorder.transport.abort()
            await _lost(recorder)


async def full_pipe(refusal: Refusal) -> int | None:
    recorder = OfPipe()
    with pipe() as (reading, writing):
        transport, _ = await refusal.loop.connect_write_pipe(lambda: recorder, writing)
        await begun()
        os.set_blocking(reading.fileno(), False)
        refusal.begin()

        def is_written() -> bool:
            reading.read(1 << 20)
            return not (transport.is_closing() or transport.get_write_buffer_size())

        try:
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            return await refusal.reason(recorder, is_written)
        finally:
            transport.abort()
            await _lost(recorder)


async def child(refusal: Refusal) -> None:
    refusal.begin()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('it ran')", stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output == b"it ran\n"


async def quic_client(refusal: Refusal) -> None:
    from ringloop import quic

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        refusal.begin()
        await _until_pending(
            quic.open_connection(*silent.getsockname(), alpn=["test"], verify=False)
        )


async def sent_by_sendfile(refusal: Refusal) -> None:
    recorder = tcp.Recorder()
    async with pair(recorder, refusal) as (transport, theirs):
        with open(sys.executable, "rb") as file:  # noqa: ASYNC230 - a local file
            reader = tcp.Peer(theirs)
            refusal.begin()
            sending = asyncio.ensure_future(
                refusal.loop.sendfile(transport, file, count=MORE_THAN_THE_KERNEL_TAKES)
            )
            while not sending.done():
                reader.received()
                await asyncio.sleep(0)
            await sending


# In which asyncio's loop only reports the error, and the connection, or the pipe, is dead.
REPORTED = (
    new_transport,
    new_buffered_transport,
    accepted_by_a_server,
    accepted_by_a_unix_server,
    new_endpoint,
    read_pipe,
    write_pipe,
)
RAISED = (
    pending_connection,
    pending_sock_connect,
    pending_streams,
    accepted_by_sock_accept,
    sent_by_sock_sendall,
    received_by_sock_recv_into,
    resumed_reading,
    wait_for_room,
    drained_writer,
    wait_for_room_for_datagrams,
    resumed_pipe,
    full_pipe,
    sent_by_sendfile,
)
# What asyncio does not have, or leaves a socket or a child of.
OURS = (pending_fast_streams, read_by_a_fast_stream, new_server, child, quic_client)


@pytest.mark.parametrize("work", [*RAISED, *REPORTED, *OURS])
@pytest.mark.parametrize("error", [errno.ENOMEM, errno.ENOSPC])
def test_refused_poll_is_an_error_of_what_waits(
    loop_name: str, loop_factory: LoopFactory, work: Any, error: int
) -> None:
    is_oracle = loop_name == support.ORACLE
    if is_oracle and work in OURS:
        pytest.skip("asyncio does not have it, or leaves something open")
    seen, reported = outcome(loop_factory, error, work)
    if loop_name == "ringloop-uring":
        # A ring polls by itself.
        assert (seen, reported) == (None, [])
    elif is_oracle and work in REPORTED:
        assert set(reported) == {error}
    elif is_oracle:
        assert seen == error
    else:
        assert (seen, reported) == (error, [])


def test_refused_poll_ends_a_handshake_of_tls(
    loop_name: str, loop_factory: LoopFactory, certificates: Certificates
) -> None:
    context = certificates.client()

    async def handshake(refusal: Refusal) -> None:
        ours, theirs = tcp.socket_pair()
        with theirs:
            refusal.begin()
            await _until_pending(
                refusal.loop.create_connection(
                    asyncio.Protocol, sock=ours, ssl=context, server_hostname="localhost"
                )
            )

    seen, reported = outcome(loop_factory, errno.ENOMEM, handshake)
    if loop_name == "ringloop-epoll":
        assert (seen, reported) == (errno.ENOMEM, [])
    else:
        # asyncio's waits for its end: reading has not begun, which it only reports.
        assert (seen, set(reported)) == (None, {errno.ENOMEM} if reported else set())
