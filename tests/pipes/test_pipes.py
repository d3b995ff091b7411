"""connect_read_pipe and connect_write_pipe, on pipes, sockets and terminals."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import functools
import gc
import os
import pty
import socket
import tempfile
import tty
import weakref
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pytest

from tests.support import ORACLE, wait_until, within
from tests.support.collected import warnings_until_collected
from tests.support.pipes import LOST, Recorder, reading, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Loop = asyncio.AbstractEventLoop
Run = Any


@pytest.fixture
def ends() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Create both ends of a pipe as files."""
    reader, writer = os.pipe()
    files = os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
    yield cast("tuple[BinaryIO, BinaryIO]", files)
    for file in files:
        file.close()


def test_bytes_arrive_then_eof_then_lost(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        transport, protocol = await reading(loop, ends[0])
        assert isinstance(transport, asyncio.ReadTransport)
        assert not isinstance(transport, asyncio.WriteTransport)
        assert transport.get_extra_info("pipe") is ends[0]
        assert transport.get_extra_info("nothing", 7) == 7
        assert transport.get_protocol() is protocol
        assert transport.is_reading()
        assert not transport.is_closing()
        os.write(ends[1].fileno(), b"hello")
        await wait_until(lambda: protocol.data == b"hello")
        ends[1].close()
        await wait_until(lambda: LOST in protocol.calls)
        assert protocol.calls == ["made", "eof", LOST]
        assert transport.is_closing()
        assert not transport.is_reading()
        assert ends[0].closed

    run(main())


def test_both_ends_are_made_nonblocking(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        for end, connect in ((ends[0], reading), (ends[1], writing)):
            assert os.get_blocking(end.fileno())
            transport, protocol = await connect(loop, end)
            assert not os.get_blocking(end.fileno())
            transport.close()
            await wait_until(functools.partial(protocol.calls.__contains__, LOST))

    run(main())


def test_files_are_refused_as_by_asyncio(loop: Loop, run: Run) -> None:
    async def main() -> None:
        with tempfile.TemporaryFile() as file:
            with pytest.raises(ValueError, match=r"^Pipe transport is for pipes/sockets only\.$"):
                await reading(loop, file)
            words = "^Pipe transport is only for pipes, sockets and character devices$"
            with pytest.raises(ValueError, match=words):
                await writing(loop, file)
            assert os.get_blocking(file.fileno())
            assert not file.closed

    run(main())


def test_closed_descriptor_is_ebadf(loop: Loop, run: Run, loop_name: str) -> None:
    if loop_name == ORACLE:
        pytest.skip("asyncio's half-made transport fails again in its finaliser")

    class Closed:
        def fileno(self) -> int:
            return 1 << 24

    async def main() -> None:
        for connect in (reading, writing):
            with pytest.raises(OSError) as caught:
                await connect(loop, Closed())
            assert caught.value.errno == errno.EBADF

    run(main())


@pytest.mark.loop_errors
def test_a_device_that_cannot_be_polled(loop: Loop, run: Run, loop_log: Any) -> None:
    async def main() -> None:
        with os.fdopen(os.open("/dev/null", os.O_RDWR), "r+b", 0) as null:
            transport, protocol = await writing(loop, null)
            transport.write(b"x" * 100_000)
            assert transport.get_write_buffer_size() == 0
            transport.close()
            await wait_until(lambda: LOST in protocol.calls)
        # For a reader the loop warns that it will never receive anything.
        with os.fdopen(os.open("/dev/null", os.O_RDONLY), "rb", 0) as null:
            transport, protocol = await reading(loop, null)
            assert protocol.calls == ["made"]
            transport.close()
            await wait_until(lambda: LOST in protocol.calls)

    run(main())
    (record,) = loop_log.records
    assert "Exception in callback" in record.getMessage()
    assert isinstance(record.exc_info[1], PermissionError)


def test_sockets_are_pipes_too(loop: Loop, run: Run) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        writer, wrote = await writing(loop, left)
        reader, read = await reading(loop, right)
        writer.write(b"over a socket")
        await wait_until(lambda: read.data == b"over a socket")
        reader.close()
        # The other end is closed: a writer is notified without writing.
        await wait_until(lambda: LOST in wrote.calls)
        assert wrote.calls == ["made", LOST]
        assert writer.is_closing()
        assert left.fileno() == right.fileno() == -1

    run(main())


def test_terminal_hangup_goes_to_the_protocol(loop: Loop, run: Run) -> None:
    async def main() -> None:
        master, slave = pty.openpty()
        tty.setraw(slave)
        transport, protocol = await reading(loop, os.fdopen(master, "rb", 0))
        os.write(slave, b"typed")
        await wait_until(lambda: protocol.data == b"typed")
        os.close(slave)
        # EIO goes to the protocol, not to the exception handler.
        await wait_until(lambda: ("lost", OSError) in protocol.calls)
        assert protocol.calls == ["made", ("lost", OSError)]
        assert transport.is_closing()

    run(main())


def test_pause_keeps_bytes_in_the_pipe(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        transport, protocol = await reading(loop, ends[0])
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        os.write(ends[1].fileno(), b"held")
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert not protocol.data
        transport.resume_reading()
        transport.resume_reading()
        assert transport.is_reading()
        await wait_until(lambda: protocol.data == b"held")
        # Paused by the protocol itself, with more to read.
        protocol.data_received = lambda data: (
            transport.pause_reading(),
            protocol.data.extend(data),
        )
        os.write(ends[1].fileno(), b"x" * 65_536)
        await wait_until(lambda: len(protocol.data) > 4)
        first = len(protocol.data)
        await asyncio.sleep(0.005)
        assert len(protocol.data) == first
        del protocol.data_received
        transport.resume_reading()
        await wait_until(lambda: len(protocol.data) == 65_540)
        transport.close()
        transport.pause_reading()
        transport.resume_reading()
        assert not transport.is_reading()
        await wait_until(lambda: LOST in protocol.calls)

    run(main())


def test_paused_before_the_first_read(loop: Loop, run: Run, ends: Any) -> None:
    class Paused(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    async def main() -> None:
        os.write(ends[1].fileno(), b"early")
        transport, protocol = await reading(loop, ends[0], Paused())
        await asyncio.sleep(0.005)
        assert not protocol.data
        transport.resume_reading()
        await wait_until(lambda: protocol.data == b"early")
        transport.close()
        await wait_until(lambda: LOST in protocol.calls)

    run(main())


def test_pipe_switches_to_another_protocol(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        reader, first = await reading(loop, ends[0])
        writer, wrote = await writing(loop, ends[1])
        writer.write(b"first")
        await wait_until(lambda: first.data == b"first")
        second = Recorder()
        reader.set_protocol(second)
        assert reader.get_protocol() is second
        writer.set_protocol(other := Recorder())
        writer.write(b"second")
        await wait_until(lambda: second.data == b"second")
        writer.close()
        await wait_until(lambda: LOST in second.calls)
        assert (first.calls, second.calls) == (["made"], ["eof", LOST])
        assert (wrote.calls, other.calls) == (["made"], [LOST])
        assert reader.get_protocol() is None

    run(main())


@pytest.mark.loop_errors
def test_exception_of_the_protocol_does_not_end_the_transport(
    loop: Loop, run: Run, ends: Any, loop_log: Any
) -> None:
    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.data) == 1:
                raise ZeroDivisionError

    async def main() -> None:
        transport, protocol = await reading(loop, ends[0], Failing())
        os.write(ends[1].fileno(), b"1")
        await wait_until(lambda: protocol.data == b"1")
        os.write(ends[1].fileno(), b"2")
        await wait_until(lambda: protocol.data == b"12")
        transport.close()
        await wait_until(lambda: LOST in protocol.calls)

    run(main())
    (record,) = loop_log.records
    assert record.getMessage().startswith("Exception in callback")
    assert "PipeTransport._read_ready" in record.getMessage()


@pytest.mark.loop_errors
def test_protocol_without_eof_received_is_reported(
    loop: Loop, run: Run, ends: Any, loop_log: Any
) -> None:
    async def main() -> None:
        transport, _ = await reading(loop, ends[0], asyncio.BaseProtocol())
        ends[1].close()
        await wait_until(transport.is_closing)
        await wait_until(lambda: loop_log.records)
        transport._call_connection_lost(None)

    run(main())
    assert "AttributeError" in str(loop_log.records[0].exc_info)


def test_interrupt_leaves_the_loop_and_the_pipe_reads_on(loop: Loop, run: Run, ends: Any) -> None:
    class Interrupting(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.data) == 1:
                raise KeyboardInterrupt

    transport, protocol = run(reading(loop, ends[0], Interrupting()))
    os.write(ends[1].fileno(), b"1")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    os.write(ends[1].fileno(), b"2")
    run(wait_until(lambda: protocol.data == b"12"))
    transport.close()
    run(wait_until(lambda: LOST in protocol.calls))


def test_callbacks_run_in_the_callers_context(loop: Loop, run: Run, ends: Any) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: dict[str, str] = {}

    class Looking(Recorder):
        def data_received(self, data: bytes) -> None:
            seen[data.decode()] = variable.get()

        def resume_writing(self) -> None:
            seen["resume"] = variable.get()

    async def main() -> None:
        variable.set("creator")
        reader, read = await reading(loop, ends[0], Looking())
        writer, wrote = await writing(loop, ends[1], Looking())
        variable.set("main")
        os.write(ends[1].fileno(), b"data")
        await wait_until(lambda: "data" in seen)
        reader.pause_reading()

        async def other() -> None:
            variable.set("other")
            reader.resume_reading()
            reader.pause_reading()
            writer.write(b"x" * 1_000_000)

        await asyncio.create_task(other())
        read.data_received = read.data.extend
        reader.resume_reading()
        await wait_until(lambda: "resume" in seen)
        await wait_until(lambda: len(read.data) == 1_000_000)
        writer.close()
        await wait_until(lambda: LOST in wrote.calls and LOST in read.calls)

    run(main())
    assert seen == {"data": "creator", "resume": "other"}


def test_unclosed_transport_warns_and_closes(loop_factory: Callable[[], Loop], ends: Any) -> None:
    loop = loop_factory()
    for end, connect in zip(ends, (reading, writing), strict=True):
        loop.run_until_complete(connect(loop, end))
    loop.close()
    with pytest.warns(ResourceWarning, match="unclosed transport <.*PipeTransport") as caught:
        del loop
        gc.collect()
    assert len([w for w in caught if "unclosed transport" in str(w.message)]) == 2
    assert ends[0].closed
    assert ends[1].closed


def test_unreferenced_paused_pipe_is_collected(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> weakref.ref[Any]:
        transport, _ = await reading(loop, ends[0])
        transport.pause_reading()
        return weakref.ref(transport)

    async def warned() -> list[str]:
        return await warnings_until_collected(await main())

    assert any("unclosed transport" in text for text in run(warned()))


def test_repr_of_a_pipe_shows_its_state(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        reader, _ = await reading(loop, ends[0])
        fd = ends[1].fileno()
        assert repr(writer).endswith(f"WritePipeTransport fd={fd} idle bufsize=0>")
        assert repr(reader).endswith(f"ReadPipeTransport fd={ends[0].fileno()} polling>")
        reader.pause_reading()
        assert repr(reader).endswith("idle>")
        writer.write(b"x" * 1_000_000)
        assert f"fd={fd} polling bufsize=" in repr(writer)
        writer.abort()
        assert f" closing fd={fd} idle bufsize=0" in repr(writer)
        await wait_until(lambda: LOST in wrote.calls)
        assert repr(writer).endswith(f"WritePipeTransport closed fd={fd} closed>")
        reader.close()
        await asyncio.sleep(0.001)

    run(main())


def test_streams_of_the_standard_library_work_on_pipes(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        stream = asyncio.StreamReader(limit=4096)
        reader, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), ends[0]
        )
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, ends[1]
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)

        async def produce() -> None:
            for n in range(2000):
                writer.write(b"%08d\n" % n * 10)
                await writer.drain()
            writer.close()

        producing = asyncio.create_task(produce())
        lines = [line async for line in stream]
        await within(producing)
        assert lines == [b"%08d\n" % n for n in range(2000) for _ in range(10)]
        reader.close()

    run(main())
