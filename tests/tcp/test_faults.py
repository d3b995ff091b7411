"""TCP transports: exceptions in the protocol, and misuse by the application."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Peer,
    Recorder,
    closed,
    connected,
    exceptions_of,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


# --- exceptions in callbacks ----------------------------------------------------------------------


class FaultError(Exception):
    """The exception that the protocols of these tests raise."""


def faulty(method: str, error: BaseException) -> Recorder:
    """Create a recorder whose `method` records its call and raises."""

    def raises(*_arguments: object) -> None:
        protocol.note(method)
        raise error

    protocol = Recorder()
    if method == "connection_made":
        original = protocol.connection_made

        def made(transport: asyncio.BaseTransport) -> None:
            original(transport)
            raise error

        protocol.connection_made = made  # type: ignore[method-assign]
    else:
        setattr(protocol, method, raises)
    return protocol


def test_exception_in_connection_made_is_reported(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        protocol = faulty("connection_made", FaultError())
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (transport, peer):
                assert isinstance(contexts[0]["exception"], FaultError)
                # The connection stays open.
                await peer.send(b"x")
                await support.wait_until(lambda: protocol.data, "the data")
                assert not transport.is_closing()
            assert len(contexts) == 1

    run(main())


def test_exception_in_data_received_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty("data_received", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (transport, peer):
                await peer.send(bytes(200_000))
                await protocol.until_lost()
                assert protocol.reason is error
                assert protocol.events == ["connection_made", "data_received", "connection_lost"]
            (context,) = contexts
            assert context["exception"] is error
            assert context["message"] == "Fatal error: protocol.data_received() call failed."
            assert context["transport"] is transport
            assert context["protocol"] is protocol

    run(main())


def test_exception_in_eof_received_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty("eof_received", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                peer.shut_down()
                await protocol.until_lost()
                assert protocol.reason is error
            (context,) = contexts
            assert context["message"] == "Fatal error: protocol.eof_received() call failed."

    run(main())


def test_os_error_in_data_received_ends_the_connection_quietly(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = OSError(errno.ENOSPC, "no space")
        protocol = faulty("data_received", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                await peer.send(b"x")
                await protocol.until_lost()
                assert protocol.reason is error
            # asyncio treats every OSError as the end of the connection, logged in debug mode only.
            assert contexts == []

    run(main())


@pytest.mark.parametrize("method", ["pause_writing", "resume_writing"])
def test_exception_in_flow_control_is_reported_and_harmless(
    loop: asyncio.AbstractEventLoop, run: Run, method: str
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty(method, error)
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        with exceptions_of(loop) as contexts:
            async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
                transport.write(data)
                assert await peer.receive(len(data)) == data
                await support.wait_until(
                    lambda: "resume_writing" in protocol.events, "resume_writing"
                )
                assert not transport.is_closing()
            (context,) = contexts
            assert context["exception"] is error
            assert context["message"] == f"protocol.{method}() failed"

    run(main())


def test_exception_in_connection_lost_is_reported_and_the_socket_closed(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty("connection_lost", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (transport, peer):
                transport.close()
                assert await peer.receive_all() == b""
                await closed(transport)
            (context,) = contexts
            assert context["exception"] is error
            assert protocol.events.count("connection_lost") == 1

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("size", [1, 300_000])
def test_interrupt_in_data_received_leaves_the_loop_and_nothing_is_lost(
    loop: asyncio.AbstractEventLoop, error: type[BaseException], size: int
) -> None:
    ours, theirs = socket_pair()

    class Interrupted(Recorder):
        def data_received(self, data: bytes) -> None:
            first = not self.data
            super().data_received(data)
            if first:
                raise error

    protocol = Interrupted()
    ran: list[int] = []

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        return transport

    async def rest(transport: Any, peer: Peer) -> None:
        await support.wait_until(lambda: len(protocol.data) == size + 4, "all bytes")
        assert protocol.data == pattern(size) + b"more"
        await support.wait_until(lambda: ran == [1, 2], "the other callbacks")
        transport.close()
        await closed(transport)
        peer.close()

    transport = loop.run_until_complete(begin())
    theirs.sendall(pattern(size))
    loop.call_soon(ran.append, 1)
    loop.call_later(0, ran.append, 2)
    with pytest.raises(error):
        loop.run_forever()
    theirs.sendall(b"more")
    loop.run_until_complete(rest(transport, Peer(theirs)))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_by_buffered_bytes_leaves_the_connection_reading(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    ours, theirs = socket_pair()

    class Interrupted(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data == b"1":
                raise error

    protocol = Interrupted()

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        # The read is in flight.
        await asyncio.sleep(0.01)
        transport.pause_reading()
        theirs.sendall(b"1")
        await asyncio.sleep(0.02)
        return transport

    async def rest(transport: Any) -> None:
        await support.wait_until(lambda: protocol.data == b"12", "the second byte")
        transport.close()
        await closed(transport)

    transport = loop.run_until_complete(begin())
    transport.resume_reading()
    with pytest.raises(error):
        loop.run_forever()
    theirs.sendall(b"2")
    loop.run_until_complete(rest(transport))
    theirs.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_resume_writing_leaves_the_rest_in_flight(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)

    class Interrupted(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            raise error

    protocol = Interrupted()
    peer = Peer(theirs)
    payload = pattern(MORE_THAN_THE_KERNEL_TAKES)

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        # `resume_writing` is called before the second half is sent.
        transport.set_write_buffer_limits(high=len(payload), low=len(payload))
        transport.write(payload)
        await asyncio.sleep(0)
        transport.write(payload)
        return transport

    async def take() -> bytes:
        return await peer.receive(2 * len(payload))

    transport = loop.run_until_complete(begin())
    task = loop.create_task(take())
    with pytest.raises(error):
        loop.run_until_complete(task)
    assert loop.run_until_complete(support.within(task)) == payload + payload
    transport.abort()
    loop.run_until_complete(closed(transport))
    peer.close()


def test_eof_received_result_whose_bool_raises(loop: asyncio.AbstractEventLoop) -> None:
    class Untrue:
        def __bool__(self) -> bool:
            raise ValueError("neither true nor false")

    class Faulty(Recorder):
        def eof_received(self) -> Any:
            super().eof_received()
            return Untrue()

    async def main() -> None:
        protocol = Faulty()
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                peer.sock.shutdown(socket.SHUT_WR)
                await support.wait_until(lambda: contexts, "the report")
        assert isinstance(contexts[0]["exception"], ValueError)

    loop.run_until_complete(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("method", ["connection_made", "connection_lost", "eof_received"])
def test_interrupt_in_other_callbacks_leaves_the_loop(
    loop: asyncio.AbstractEventLoop, error: type[BaseException], method: str
) -> None:
    ours, theirs = socket_pair()
    protocol = faulty(method, error())

    async def main() -> None:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        if method == "eof_received":
            theirs.shutdown(socket.SHUT_WR)
        else:
            transport.close()
        await asyncio.sleep(10)

    task = loop.create_task(main())
    with pytest.raises(error):
        loop.run_until_complete(task)
    setattr(protocol, method, lambda *_: protocol.note("again"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    if method == "eof_received":
        # EOF is not lost either.
        loop.run_until_complete(protocol.until_lost())
        assert protocol.events[-2:] == ["again", "connection_lost"]
    transport = protocol.transport
    transport.abort()
    loop.run_until_complete(closed(transport))
    theirs.close()


# --- misuse by the application --------------------------------------------------------------------


def test_unclosed_transport_warns_after_its_loop(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair()
    loop = loop_factory()

    async def main() -> None:
        running = asyncio.get_running_loop()
        await running.create_connection(Recorder, sock=ours)

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        del loop
        gc.collect()
    assert sum("unclosed transport" in str(warning.message) for warning in caught) == 1
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        assert theirs.recv(10) == b""


def test_unclosed_transport_with_a_send_in_flight(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
    loop = loop_factory()

    async def main() -> None:
        running = asyncio.get_running_loop()
        transport, _ = await running.create_connection(Recorder, sock=ours)
        transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        del loop
        gc.collect()
    assert any("unclosed transport" in str(w.message) for w in caught)
    theirs.close()


def test_transport_of_a_closed_loop_is_harmless(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair()
    loop = loop_factory()

    async def main() -> Any:
        running = asyncio.get_running_loop()
        transport, _ = await running.create_connection(Recorder, sock=ours)
        return transport

    transport = loop.run_until_complete(main())
    loop.close()
    assert "Transport" in repr(transport)
    with pytest.raises(RuntimeError, match="closed"):
        transport.close()
    assert transport.is_closing()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del transport, loop
        gc.collect()
    theirs.close()


def test_closing_transport_on_a_closed_loop_closes_its_socket(
    loop_factory: support.LoopFactory,
) -> None:
    ours, theirs = socket_pair()
    loop = loop_factory()

    async def main() -> None:
        running = asyncio.get_running_loop()
        transport, _ = await running.create_connection(Recorder, sock=ours)
        running.call_soon(transport.close)
        running.call_soon(running.stop)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.close()
        del loop
        gc.collect()
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        assert theirs.recv(10) == b""


def test_descriptor_closed_under_the_transport(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        protocol = Recorder()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: protocol, sock=ours
        )
        ours.close()
        transport.write(b"x")
        transport.abort()
        await protocol.until_lost()
        peer.close()

    run(main())


def test_descriptor_detached_under_the_transport(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        protocol = Recorder()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: protocol, sock=ours
        )
        with socket.socket(fileno=ours.detach()) as detached:
            transport.abort()
            await protocol.until_lost()
            # The transport must not close a detached descriptor.
            assert detached.fileno() >= 0
            detached.setblocking(True)
            detached.sendall(b"mine")
            assert await peer.receive(4) == b"mine"
        peer.close()

    run(main())


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
def test_descriptor_of_a_transport_cannot_be_watched(
    loop: asyncio.AbstractEventLoop, run: Run, method: str
) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            fd = transport.get_extra_info("socket").fileno()
            with pytest.raises(RuntimeError, match="is used by transport"):
                getattr(loop, method)(fd, lambda: None)
            with pytest.raises(RuntimeError, match="is used by transport"):
                getattr(loop, method.replace("add", "remove"))(fd)

    run(main())


def test_transport_is_freed_without_the_collector(loop_name: str, run: Run) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's transport refers to itself")

    class Bare(asyncio.Protocol):
        pass

    async def main() -> None:
        ours, theirs = socket_pair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Bare, sock=ours)
        seen = weakref.ref(transport)
        transport.close()
        await closed(transport)
        theirs.close()
        del transport, ours
        await support.wait_until(lambda: seen() is None, "the transport to be freed")

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_unreferenced_paused_transport(run: Run) -> None:
    """asyncio lets a paused transport be collected; its user must keep and close it."""

    async def main() -> None:
        ours, theirs = socket_pair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        transport.pause_reading()
        seen = weakref.ref(transport)
        del transport, ours
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
            if (kept := seen()) is not None:
                kept.abort()
                await closed(kept)
                del kept
            gc.collect()
        theirs.settimeout(support.PATIENCE_SECONDS)
        assert theirs.recv(10) == b""
        theirs.close()

    run(main())


def test_many_connections_at_once(run: Run) -> None:
    count = 300

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pairs = [socket_pair() for _ in range(count)]
        protocols = [Recorder() for _ in pairs]

        async def one(number: int) -> Any:
            transport, _ = await loop.create_connection(
                lambda: protocols[number], sock=pairs[number][0]
            )
            return transport

        transports = await asyncio.gather(*map(one, range(count)))
        for number, (_, theirs) in enumerate(pairs):
            theirs.sendall(pattern(40_000, number))
        time.sleep(0.01)  # noqa: ASYNC251 - the bytes shall all wait for the loop at once
        for _, theirs in pairs:
            theirs.shutdown(socket.SHUT_WR)
        for number, protocol in enumerate(protocols):
            await protocol.until_lost()
            assert protocol.data == pattern(40_000, number)
        await asyncio.gather(*map(closed, transports))
        for _, theirs in pairs:
            theirs.close()

    run(main())
