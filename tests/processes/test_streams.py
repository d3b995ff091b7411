"""The standard streams of a child process: pipes of many MiB, files, nothing, closed early."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import pytest

from tests.support import TEST_BYTES, wait_until, within

Run = Any
# typeshed declares both outputs as bytes.
run_program: Any = asyncio.create_subprocess_exec
run_line: Any = asyncio.create_subprocess_shell
MIB = 1 << 20


def test_many_mebibytes_through_many_children_at_once(run: Run) -> None:
    async def main() -> None:
        data = os.urandom(MIB) * 4

        async def one() -> None:
            process = await run_program("cat", stdin=PIPE, stdout=PIPE)
            out, _ = await process.communicate(data)
            assert out == data

        await within(asyncio.gather(*(one() for _ in range(6))), 60)

    run(main())


def test_output_of_a_child_is_delivered_before_its_exit(run: Run) -> None:
    class Noting(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.notes: list[str] = []

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            self.notes.append("data")

        def process_exited(self) -> None:
            self.notes.append("end")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_shell(
            Noting, "sleep 0.05; echo hi", stdin=None, stderr=None
        )
        # Output and exit are both pending when the loop polls.
        time.sleep(0.2)  # noqa: ASYNC251
        await wait_until(lambda: len(protocol.notes) == 2, "the child")
        assert protocol.notes == ["data", "end"]
        transport.close()

    run(main())


def test_both_outputs_are_read_while_the_input_is_written(run: Run) -> None:
    async def main() -> None:
        data = os.urandom(MIB) * min(16, TEST_BYTES >> 20)
        process = await run_program(
            *("sh", "-c", "tee /dev/stderr"), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        out, err = await within(process.communicate(data), 60)
        assert out == data
        assert err == data
        assert process.returncode == 0

    run(main())


def test_writer_is_paused_by_a_child_that_does_not_read(run: Run) -> None:
    async def main() -> None:
        process = await run_program("sleep", "100", stdin=PIPE)
        process.stdin.write(b"x" * MIB)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.stdin.drain(), 0.05)
        process.kill()
        # The reader is gone: drain() raises.
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            await within(process.stdin.drain())
        assert await within(process.wait()) == -9

    run(main())


def test_input_that_the_child_does_not_read_is_dropped(run: Run) -> None:
    async def main() -> None:
        for command in ("exec <&-; exit 3", "exit 3"):
            process = await run_line(command, stdin=PIPE, stdout=PIPE)
            # communicate() ignores the broken pipe.
            assert await within(process.communicate(b"x" * 4 * MIB)) == (b"", None)
            assert process.returncode == 3

    run(main())


def test_child_that_closes_its_input_is_noticed(run: Run) -> None:
    async def main() -> None:
        process = await run_line("exec <&-; echo closed; exec sleep 100", stdin=PIPE, stdout=PIPE)
        assert await within(process.stdout.readline()) == b"closed\n"
        await wait_until(process.stdin.is_closing)
        await within(process.stdin.wait_closed())
        process.kill()
        assert await within(process.wait()) == -9

    run(main())


def test_input_by_lines_is_answered_by_lines(run: Run) -> None:
    async def main() -> None:
        process = await run_program("cat", stdin=PIPE, stdout=PIPE)
        for n in range(200):
            process.stdin.write(b"%d " % n)
            process.stdin.write(b"line\n")
            await process.stdin.drain()
            assert await within(process.stdout.readline()) == b"%d line\n" % n
        process.stdin.write_eof()
        assert await within(process.stdout.read()) == b""
        assert await within(process.wait()) == 0

    run(main())


def test_empty_and_missing_input(run: Run) -> None:
    async def main() -> None:
        # Before 3.12 the stream is closed only if there is input.
        for data in (None, b"") if sys.version_info >= (3, 12) else (b"",):
            process = await run_program("cat", stdin=PIPE, stdout=PIPE)
            assert await within(process.communicate(data)) == (b"", None)
        process = await run_program("cat", stdin=DEVNULL, stdout=PIPE)
        assert process.stdin is None
        assert await within(process.communicate()) == (b"", None)

    run(main())


def test_outputs_into_files_nothing_and_each_other(run: Run) -> None:
    async def main() -> None:
        script = "echo out; echo err >&2"
        with tempfile.TemporaryFile() as file:
            process = await run_line(script, stdout=file, stderr=STDOUT)
            assert (process.stdout, process.stderr) == (None, None)
            assert await within(process.communicate()) == (None, None)
            file.seek(0)
            assert file.read() == b"out\nerr\n"
            file.seek(0)
            process = await run_program("cat", stdin=file, stdout=PIPE)
            assert await within(process.communicate()) == (b"out\nerr\n", None)
            # Also by number.
            file.truncate(0)
            process = await run_line(script, stdout=DEVNULL, stderr=file.fileno())
            await within(process.wait())
            file.seek(0)
            assert file.read().endswith(b"err\n")
        process = await run_line(script, stdout=PIPE, stderr=STDOUT)
        assert await within(process.communicate()) == (b"out\nerr\n", None)
        process = await run_line(script, stdout=PIPE, stderr=DEVNULL)
        assert await within(process.communicate()) == (b"out\n", None)

    run(main())


def test_outputs_are_inherited(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        process = await run_line("echo out; echo err >&2")
        assert await within(process.wait()) == 0

    run(main())
    assert capfd.readouterr() == ("out\n", "err\n")


def test_two_children_in_a_pipeline(run: Run) -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        first = await run_program("seq", "100000", stdout=writer)
        os.close(writer)
        second = await run_program("wc", "-l", stdin=reader, stdout=PIPE)
        os.close(reader)
        out, _ = await within(second.communicate())
        assert int(out) == 100_000
        assert await within(first.wait()) == 0

    run(main())


def test_output_held_by_a_grandchild_is_read_to_eof(run: Run) -> None:
    async def main() -> None:
        process = await run_line("(sleep 0.2; echo late) & echo early", stdout=PIPE)
        assert await within(process.stdout.readline()) == b"early\n"
        await wait_until(lambda: process.returncode == 0)
        assert await within(process.stdout.read()) == b"late\n"
        assert await within(process.wait()) == 0

    run(main())


def test_long_lines_are_refused_and_the_child_continues(run: Run) -> None:
    async def main() -> None:
        process = await run_line(
            "head -c 10000 /dev/zero; echo; echo short", stdout=PIPE, limit=1000
        )
        with pytest.raises(ValueError, match="limit"):
            await within(process.stdout.readline())
        rest = await within(process.stdout.read())
        assert rest.endswith(b"short\n")
        assert await within(process.wait()) == 0

    run(main())


def test_protocol_gets_every_stream_in_order(run: Run) -> None:
    calls: list[Any] = []

    class Protocol(asyncio.SubprocessProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            calls.append("made")

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            calls.append((fd, data))

        def pipe_connection_lost(self, fd: int, exc: BaseException | None) -> None:
            calls.append((fd, exc))

        def process_exited(self) -> None:
            calls.append("exited")

        def connection_lost(self, exc: BaseException | None) -> None:
            calls.append(("lost", exc))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.subprocess_shell(Protocol, "read word; echo $word; exit 4")
        pipe = transport.get_pipe_transport(0)
        pipe.write(b"he")  # type: ignore[union-attr]
        pipe.write(b"llo\n")  # type: ignore[union-attr]
        await wait_until(lambda: ("lost", None) in calls)
        assert transport.get_returncode() == 4
        transport.close()

    run(main())
    assert calls[0] == "made"
    assert calls[-1] == ("lost", None)
    assert calls.index((1, b"hello\n")) < calls.index((1, None))
    assert sorted(map(repr, calls[1:-1])) == sorted(
        map(repr, [(1, b"hello\n"), (0, None), (1, None), (2, None), "exited"])
    )
