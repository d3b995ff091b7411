"""Children and pipes, next to asyncio's proactor loop on Windows."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import time
import unittest
import warnings
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import Any
from unittest import mock

import ringloop
from tests.windows.loops import (
    IS_WINDOWS,
    PATIENCE_SECONDS,
    on_every_loop_with_pipes,
)

MEBIBYTE = 1 << 20
PAYLOAD = bytes(range(256)) * (MEBIBYTE // 256)
REVERSE = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
ECHO_LINES = """\
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line.upper())
    sys.stdout.buffer.flush()
"""
SLEEP = "import time; time.sleep(1000)"


async def python(code: str, *arguments: str, **keywords: Any) -> asyncio.subprocess.Process:
    """Start a child that runs `code`."""
    keywords = {"stdin": DEVNULL, **keywords}
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, *arguments, **keywords)


async def end(child: asyncio.subprocess.Process) -> None:
    """Kill a child, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    await child.wait()


def pipe_pair() -> tuple[Any, Any]:
    """Make a pipe; return its reading and its writing end, as `connect_*_pipe` take them."""
    if not IS_WINDOWS:
        reader, writer = os.pipe()
        return os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
    from asyncio import windows_utils

    utils: Any = windows_utils
    # Duplex, as a child's stdin: its writer reads to see the other end closed.
    reading, writing = utils.pipe(duplex=True)
    return utils.PipeHandle(reading), utils.PipeHandle(writing)


class Recorder(asyncio.Protocol):
    """Keeps what comes, and how it ends."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.got_data = asyncio.Event()
        self.calls = list[str]()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.got_data.set()

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(error)


class Children(unittest.TestCase):
    """Children with and without pipes."""

    @on_every_loop_with_pipes
    async def test_a_mebibyte_goes_and_comes_back(self) -> None:
        child = await python(REVERSE, stdin=PIPE, stdout=PIPE)
        output, _ = await child.communicate(PAYLOAD)
        assert output == PAYLOAD[::-1]
        assert child.returncode == 0

    @on_every_loop_with_pipes
    async def test_exit_codes_are_reported(self) -> None:
        for code in (0, 255):
            child = await python(f"import sys; sys.exit({code})")
            assert await child.wait() == child.returncode == code
            assert await child.wait() == code

    @on_every_loop_with_pipes
    async def test_stderr_comes_apart_or_merged(self) -> None:
        code = "import os; os.write(1, b'one'); os.write(2, b'two'); os.write(1, b'three')"
        child = await python(code, stdout=PIPE, stderr=PIPE)
        assert await child.communicate() == (b"onethree", b"two")
        child = await python(code, stdout=PIPE, stderr=STDOUT)
        merged, _ = await child.communicate()
        assert merged == b"onetwothree"

    @on_every_loop_with_pipes
    async def test_lines_are_answered_as_they_come(self) -> None:
        child = await python(ECHO_LINES, stdin=PIPE, stdout=PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        for number in range(20):
            child.stdin.write(b"line %d\n" % number)
            await child.stdin.drain()
            assert (await child.stdout.readline()).rstrip() == b"LINE %d" % number
        child.stdin.close()
        assert await child.stdout.read() == b""
        assert await child.wait() == 0

    @on_every_loop_with_pipes
    async def test_terminate_and_kill_end_a_child(self) -> None:
        for method in ("terminate", "kill"):
            child = await python(SLEEP, stdin=PIPE, stdout=PIPE, stderr=PIPE)
            getattr(child, method)()
            status = await child.wait()
            assert status == (1 if IS_WINDOWS else -(15 if method == "terminate" else 9))
            await child.communicate()
            # Once the transport has noticed that the pipes have ended, too.
            with self.assertRaises(ProcessLookupError):
                while True:
                    child.kill()
                    await asyncio.sleep(0.001)

    @on_every_loop_with_pipes
    async def test_child_that_closed_its_stdin_ends_the_writer(self) -> None:
        code = f"import os, time; os.close(0); os.write(1, b'closed'); {SLEEP}"
        child = await python(code, stdin=PIPE, stdout=PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        assert await child.stdout.readexactly(6) == b"closed"
        with self.assertRaises((BrokenPipeError, ConnectionResetError)):
            while True:
                child.stdin.write(PAYLOAD)
                await child.stdin.drain()
                await asyncio.sleep(0.001)
        await end(child)

    @on_every_loop_with_pipes
    async def test_input_for_a_child_that_reads_none_is_dropped(self) -> None:
        child = await python("import sys; sys.exit(3)", stdin=PIPE, stdout=PIPE)
        output, _ = await child.communicate(PAYLOAD)
        assert (output, child.returncode) == (b"", 3)

    @on_every_loop_with_pipes
    async def test_shell_runs_a_command(self) -> None:
        child = await asyncio.create_subprocess_shell(
            "echo hello&& exit 3", stdin=DEVNULL, stdout=PIPE
        )
        output, _ = await child.communicate()
        assert (output.split(), child.returncode) == ([b"hello"], 3)

    @on_every_loop_with_pipes
    async def test_missing_program_raises_file_not_found_error(self) -> None:
        with self.assertRaises(FileNotFoundError):
            await asyncio.create_subprocess_exec("there is no such program", stdout=PIPE)
        assert await (await python("pass")).wait() == 0

    @on_every_loop_with_pipes
    async def test_cancelled_read_loses_nothing(self) -> None:
        child = await python(ECHO_LINES, stdin=PIPE, stdout=PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(3):
            reading = asyncio.ensure_future(child.stdout.readline())
            await asyncio.sleep(0.01)
            reading.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await reading
        child.stdin.write(b"all of it\n")
        assert (await child.stdout.readline()).rstrip() == b"ALL OF IT"
        child.stdin.close()
        assert await child.wait() == 0

    @on_every_loop_with_pipes
    async def test_wait_can_time_out(self) -> None:
        child = await python(SLEEP)
        with self.assertRaises(TimeoutError):
            await asyncio.wait_for(child.wait(), 0.05)
        assert child.returncode is None
        await end(child)

    @on_every_loop_with_pipes
    async def test_child_outlives_its_pipes(self) -> None:
        child = await python(
            f"import os; os.close(1); os.close(2); {SLEEP}", stdout=PIPE, stderr=PIPE
        )
        assert child.stdout is not None
        assert child.stderr is not None
        assert await child.stdout.read() == await child.stderr.read() == b""
        assert child.returncode is None
        await end(child)

    @on_every_loop_with_pipes
    async def test_pipe_outlives_the_child(self) -> None:
        inner = "import time; time.sleep(1); print('last', flush=True)"
        code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
        child = await python(code, inner, stdout=PIPE)
        assert child.stdout is not None
        assert (await child.stdout.read()).split() == [b"last"]
        assert await child.wait() == 0

    @on_every_loop_with_pipes
    async def test_many_children_at_once(self) -> None:
        async def one(number: int) -> tuple[bytes, int | None]:
            child = await python(REVERSE, stdin=PIPE, stdout=PIPE)
            output, _ = await child.communicate(b"%04d" % number)
            return output, child.returncode

        answers = await asyncio.gather(*(one(number) for number in range(4)))
        assert answers == [((b"%04d" % number)[::-1], 0) for number in range(4)]

    @on_every_loop_with_pipes
    async def test_other_work_goes_on_while_a_child_runs(self) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(5))
            writer.close()

        child = await python(SLEEP, stdin=PIPE, stdout=PIPE)
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        for _ in range(10):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello")
            assert await reader.read() == b"hello"
            writer.close()
        server.close()
        assert child.returncode is None
        await end(child)

    @on_every_loop_with_pipes
    async def test_protocol_is_told_everything(self) -> None:
        loop = asyncio.get_running_loop()
        calls, lost = list[Any](), loop.create_future()

        class Protocol(asyncio.SubprocessProtocol):
            def pipe_data_received(self, fd: int, data: bytes) -> None:
                calls.append((fd, data))

            def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
                del exc
                calls.append(("lost", fd))

            def process_exited(self) -> None:
                calls.append("exited")

            def connection_lost(self, exc: Exception | None) -> None:
                calls.append("lost")
                lost.set_result(exc)

        transport, _ = await loop.subprocess_exec(
            Protocol,
            sys.executable,
            "-c",
            "import os; os.write(1, b'out'); os.write(2, b'err')",
            stdin=DEVNULL,
        )
        assert await lost is None
        assert transport.get_returncode() == 0
        assert calls[-1] == "lost"
        assert sorted(map(str, calls[:-1])) == sorted(
            map(str, [(1, b"out"), (2, b"err"), ("lost", 1), ("lost", 2), "exited"])
        )
        transport.close()

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    def test_loop_closes_while_a_child_and_its_pipes_are_open(self) -> None:
        loop = ringloop.new_event_loop()
        start = time.monotonic()
        child = loop.run_until_complete(python(SLEEP, stdin=PIPE, stdout=PIPE))
        loop.close()
        assert loop.is_closed()
        assert time.monotonic() - start < PATIENCE_SECONDS / 2
        process: Any = child._transport._proc  # type: ignore[attr-defined]
        assert process.poll() is None, "the child stays"
        process.kill()
        process.wait()
        with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook"):
            # Of the pipes, which are still open.
            warnings.simplefilter("ignore", ResourceWarning)
            del child
            gc.collect()

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    def test_new_loop_has_children_after_one_was_closed(self) -> None:
        async def main() -> bytes:
            child = await python(REVERSE, stdin=PIPE, stdout=PIPE)
            return (await child.communicate(b"123"))[0]

        for _ in range(5):
            assert ringloop.run(main()) == b"321"


class Pipes(unittest.TestCase):
    """Pipes of the program's own."""

    @on_every_loop_with_pipes
    async def test_bytes_go_from_end_to_end(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = pipe_pair()
        reader = asyncio.StreamReader()
        source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), reading
        )
        sink, writer = await loop.connect_write_pipe(Recorder, writing)
        sink.write(PAYLOAD)
        assert await reader.readexactly(MEBIBYTE) == PAYLOAD
        sink.write(b"one")
        sink.write(b"")
        sink.writelines([b"two", b"three"])
        sink.write_eof()
        assert await reader.read() == b"onetwothree"
        assert await writer.lost is None
        assert writer.calls == ["made", "pause", "resume", "lost"]
        source.close()

    @on_every_loop_with_pipes
    async def test_end_of_the_writer_is_the_end_of_the_reader(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = pipe_pair()
        source, protocol = await loop.connect_read_pipe(Recorder, reading)
        writing.close()
        assert await protocol.lost is None
        assert protocol.calls == ["made", "eof", "lost"]
        assert source.is_closing()

    @on_every_loop_with_pipes
    async def test_end_of_the_reader_is_told_to_the_writer(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = pipe_pair()
        sink, protocol = await loop.connect_write_pipe(Recorder, writing)
        reading.close()
        await protocol.lost
        assert protocol.calls == ["made", "lost"]
        assert sink.is_closing()

    @on_every_loop_with_pipes
    async def test_paused_reader_is_given_nothing(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = pipe_pair()
        source, got = await loop.connect_read_pipe(Recorder, reading)
        sink, _ = await loop.connect_write_pipe(Recorder, writing)
        source.pause_reading()
        sink.write(b"later")
        await asyncio.sleep(0.05)
        assert not got.data
        source.resume_reading()
        await got.got_data.wait()
        assert got.data == b"later"
        sink.close()
        assert await got.lost is None

    @on_every_loop_with_pipes
    async def test_closing_ends_a_read_that_waits(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = pipe_pair()
        source, protocol = await loop.connect_read_pipe(Recorder, reading)
        await asyncio.sleep(0.01)
        source.close()
        assert await protocol.lost is None
        assert protocol.calls == ["made", "lost"]
        writing.close()

    @on_every_loop_with_pipes
    async def test_abort_drops_what_is_not_written(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = pipe_pair()
        sink, protocol = await loop.connect_write_pipe(Recorder, writing)
        sink.write(PAYLOAD)
        sink.write(PAYLOAD)
        sink.abort()
        assert await protocol.lost is None
        reading.close()

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    @on_every_loop_with_pipes
    async def test_named_pipe_serves_clients(self) -> None:
        loop: Any = asyncio.get_running_loop()
        address = rf"\\.\pipe\ringloop-test-{os.getpid()}-{id(loop)}"

        class Echo(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

        async def client(data: bytes) -> bytes:
            transport, protocol = await loop.create_pipe_connection(Recorder, address)
            transport.write(data)
            await protocol.got_data.wait()
            transport.close()
            await protocol.lost
            return bytes(protocol.data)

        with self.assertRaises(FileNotFoundError):
            await client(b"too early")
        [server] = await loop.start_serving_pipe(Echo, address)
        answers = await asyncio.gather(*(client(b"%d" % number) for number in range(3)))
        assert answers == [b"0", b"1", b"2"]
        server.close()
        await asyncio.sleep(0.05)
        with self.assertRaises(FileNotFoundError):
            await client(b"too late")


@unittest.skipUnless(IS_WINDOWS, "of Windows")
class Standing(unittest.TestCase):
    """What is left behind."""

    def test_closed_loops_leave_no_handles(self) -> None:
        import ctypes

        kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]

        def handles() -> int:
            count = ctypes.c_ulong()
            assert kernel.GetProcessHandleCount(
                ctypes.c_void_p(kernel.GetCurrentProcess()), ctypes.byref(count)
            )
            return count.value

        async def main() -> None:
            child = await python("pass", stdin=PIPE, stdout=PIPE)
            await child.communicate()

        for _ in range(3):
            ringloop.run(main())
        gc.collect()
        before = handles()
        for _ in range(5):
            ringloop.run(main())
        gc.collect()
        assert handles() <= before + 4, (before, handles())
