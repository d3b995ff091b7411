"""The write end of a pipe: timing of writes, flow control, a reader that closes."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pytest

from tests.support import TEST_BYTES, wait_until
from tests.support.pipes import LOST, reading, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_many_bytes_through_a_pipe(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        # All of it is in memory, several times; the service's test transfers more.
        data = os.urandom(1 << 20) * (min(TEST_BYTES, 64 << 20) >> 20)
        reader, read = await reading(loop, ends[0])
        writer, wrote = await writing(loop, ends[1])
        writer.write(data)
        assert wrote.calls == ["made", "pause"]
        assert 0 < writer.get_write_buffer_size() < len(data)
        writer.write_eof()
        assert writer.is_closing()
        await wait_until(lambda: LOST in read.calls, timeout=60)
        assert read.data == data
        assert wrote.calls == ["made", "pause", "resume", LOST]
        assert writer.get_write_buffer_size() == 0
        assert reader.is_closing()

    run(main())


def test_writes_of_one_iteration_arrive_in_order(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        _, read = await reading(loop, ends[0])
        writer, wrote = await writing(loop, ends[1])
        expected = b"".join(b"%d," % n for n in range(1000))
        for n in range(1000):
            writer.write(b"%d," % n)
        await wait_until(lambda: read.data == expected)
        assert writer.get_write_buffer_size() == 0
        # The contents at the time of the write count, even if the buffer changes.
        changing = bytearray(b"before")
        writer.write(b"first ")
        writer.write(changing)
        changing[:] = b"after."
        writer.writelines([b" li", memoryview(b"nes"), bytearray(b".")])
        writer.write(b"")
        await wait_until(lambda: read.data == expected + b"first before lines.")
        # Closing in the same iteration loses nothing.
        writer.write(b"la")
        writer.write(b"st")
        writer.close()
        await wait_until(lambda: LOST in read.calls)
        assert read.data.endswith(b"last")
        assert wrote.calls == ["made", LOST]

    run(main())


def test_each_write_is_in_the_pipe_at_once(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        for word in (b"now", b"and", b"now"):
            writer.write(word)
            assert os.read(ends[0].fileno(), 100) == word
        writer.writelines([b"two ", b"lines"])
        assert os.read(ends[0].fileno(), 100) == b"two lines"
        assert writer.get_write_buffer_size() == 0
        writer.abort()
        await wait_until(lambda: LOST in wrote.calls)

    run(main())


def test_direct_writes_to_the_descriptor_keep_order(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        writer.write(b"header ")
        writer.write(b"body ")
        os.write(ends[1].fileno(), b"print ")
        writer.write(b"trailer")
        assert os.read(ends[0].fileno(), 100) == b"header body print trailer"
        writer.abort()
        await wait_until(lambda: LOST in wrote.calls)

    run(main())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_writes_nothing_of_its_parents(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        for word in (b"1", b"2", b"3"):
            writer.write(word)
        if not (pid := os.fork()):
            try:
                writer.close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)  # noqa: ASYNC222 -- it ends at once
        assert os.read(ends[0].fileno(), 100) == b"123"
        writer.abort()
        await wait_until(lambda: LOST in wrote.calls)

    run(main())


def test_writes_while_the_loop_is_stopped_are_in_the_pipe(loop: Loop, run: Run, ends: Any) -> None:
    writer, wrote = run(writing(loop, ends[1]))
    for word in (b"one ", b"two"):
        writer.write(word)
    assert os.read(ends[0].fileno(), 100) == b"one two"
    writer.close()
    run(wait_until(lambda: LOST in wrote.calls))


def test_data_written_before_an_abort_is_in_the_pipe(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        writer.write(b"one ")
        writer.write(b"two")
        writer.abort()
        await wait_until(lambda: LOST in wrote.calls)
        assert os.read(ends[0].fileno(), 100) == b"one two"
        assert os.read(ends[0].fileno(), 100) == b""

    run(main())


def test_abort_drops_queued_bytes(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        writer.write(b"x" * 1_000_000)
        assert writer.get_write_buffer_size() > 0
        writer.close()
        await asyncio.sleep(0.005)
        assert LOST not in wrote.calls
        writer.abort()
        assert writer.get_write_buffer_size() == 0
        await wait_until(lambda: LOST in wrote.calls)
        assert wrote.calls == ["made", "pause", LOST]

    run(main())


def test_flow_control_follows_its_marks(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
        writer, wrote = await writing(loop, ends[1])
        assert writer.get_write_buffer_limits() == (16_384, 65_536)
        writer.set_write_buffer_limits(high=1000)
        assert writer.get_write_buffer_limits() == (250, 1000)
        writer.write(b"x" * 4096)
        writer.write(b"y" * 1000)
        assert (wrote.calls, writer.get_write_buffer_size()) == (["made"], 1000)
        writer.write(b"z")
        assert wrote.calls == ["made", "pause"]
        writer.set_write_buffer_limits(high=2000, low=1500)
        os.read(ends[0].fileno(), 4096)
        await wait_until(lambda: "resume" in wrote.calls)
        assert wrote.calls == ["made", "pause", "resume"]
        await wait_until(lambda: writer.get_write_buffer_size() == 0)
        with pytest.raises(ValueError, match="must be >= low"):
            writer.set_write_buffer_limits(high=1, low=2)
        writer.abort()
        await wait_until(lambda: LOST in wrote.calls)

    run(main())


def test_reader_that_closes_is_noticed_without_a_write(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        ends[0].close()
        await wait_until(lambda: LOST in wrote.calls)
        assert writer.is_closing()
        assert ends[1].closed

    run(main())


def test_reader_that_closes_with_bytes_queued_is_a_broken_pipe(
    loop: Loop, run: Run, ends: Any
) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        writer.write(b"x" * 1_000_000)
        ends[0].close()
        await wait_until(lambda: ("lost", BrokenPipeError) in wrote.calls)
        assert wrote.calls == ["made", "pause", ("lost", BrokenPipeError)]

    run(main())


def test_write_to_a_closed_reader_fails_the_transport(
    loop: Loop, run: Run, ends: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        ends[0].close()
        writer.write(b"x")
        assert writer.is_closing()
        for _ in range(6):
            writer.write(b"dropped")
        await wait_until(lambda: len(wrote.calls) == 2)
        assert wrote.calls == ["made", ("lost", BrokenPipeError)]

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(main())
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == ["pipe closed by peer or os.write(pipe, data) raised exception."] * 2


def test_only_bytes_are_written(loop: Loop, run: Run, ends: Any) -> None:
    async def main() -> None:
        writer, wrote = await writing(loop, ends[1])
        with pytest.raises(AssertionError, match=r"^'text'$"):
            writer.write("text")
        assert writer.can_write_eof() is True
        writer.write_eof()
        writer.write_eof()
        writer.close()
        await wait_until(lambda: LOST in wrote.calls)
        assert wrote.calls == ["made", LOST]

    run(main())
