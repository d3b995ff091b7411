"""Child processes: exit codes, pipes, signals, many at once; SIGCHLD belongs to the user."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024


def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], main: Any) -> Any:
    """Run a coroutine function on a fresh loop."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def test_exit_code_and_signal_are_reported(loop_factory: Any) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_shell("exit 7")
        assert await process.wait() == 7
        process = await asyncio.create_subprocess_exec("sleep", "100")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == -signal.SIGTERM
        # After the end a signal has no receiver.
        with pytest.raises(ProcessLookupError):
            process.kill()

    run(loop_factory, main)


def test_many_mebibytes_go_through_both_pipes_at_once(loop_factory: Any) -> None:
    async def main() -> None:
        data = os.urandom(8 * MIB)
        process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate(data)
        assert out == data
        assert process.returncode == 0

    run(loop_factory, main)


def test_output_written_just_before_the_end_is_complete(loop_factory: Any) -> None:
    async def main() -> None:
        for _ in range(20):
            process = await asyncio.create_subprocess_shell(
                "printf out; printf err >&2",
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert await process.communicate() == (b"out", b"err")

    run(loop_factory, main)


def test_a_hundred_children_at_once_are_all_reaped(loop_factory: Any) -> None:
    async def main() -> None:
        children = await asyncio.gather(
            *(asyncio.create_subprocess_exec("sh", "-c", f"exit {n % 50}") for n in range(100))
        )
        codes = await asyncio.gather(*(child.wait() for child in children))
        assert codes == [n % 50 for n in range(100)]

    run(loop_factory, main)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_popen_keywords_reach_the_child(loop_factory: Any, tmp_path: Any) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import os; print(os.getcwd(), os.environ['WORD'], os.getpgrp() == os.getpid())",
            cwd=tmp_path,
            env={"WORD": "here"},
            start_new_session=True,
            preexec_fn=lambda: os.umask(0o077),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert out.decode().split() == [str(tmp_path), "here", "True"]

    run(loop_factory, main)


def test_missing_program_raises_and_leaves_nothing(loop_factory: Any) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nonexistent/program")

    run(loop_factory, main)


def test_sigchld_handler_of_the_user_is_called(loop_factory: Any) -> None:
    async def main() -> None:
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, arrived.set)
        process = await asyncio.create_subprocess_exec("true")
        await asyncio.wait_for(arrived.wait(), 10)
        assert await process.wait() == 0
        loop.remove_signal_handler(signal.SIGCHLD)

    run(loop_factory, main)


def test_child_reaped_elsewhere_is_reported_as_255(
    loop_factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        if "ringloop" not in type(asyncio.get_running_loop()).__module__:
            pytest.skip("before 3.12 asyncio's thread may be first")
        process = await asyncio.create_subprocess_exec("sleep", "100")
        process.kill()
        os.waitpid(process.pid, 0)  # noqa: ASYNC222 -- it is dead, or about to be
        assert await process.wait() == 255

    run(loop_factory, main)
    assert "exit status already read" in caplog.text


def test_thread_waits_if_pidfds_are_refused(
    loop_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int, flags: int = 0) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refused)

    async def main() -> None:
        if "ringloop" not in type(asyncio.get_running_loop()).__module__:
            pytest.skip("asyncio decides once, at import")
        process = await asyncio.create_subprocess_shell("exit 3")
        assert await process.wait() == 3

    run(loop_factory, main)

    def ended() -> bool:
        return not [t for t in threading.enumerate() if t.name.startswith("ringloop-wait")]

    # It has notified the loop just before it ends.
    support.wait_until_blocking(ended, "the thread's end")


def test_pipe_transports_carry_bytes_both_ways(loop_factory: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        read_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
        )
        write_transport, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(write_end, "wb", 0)
        )
        data = os.urandom(MIB)
        write_transport.write(data)
        assert await reader.readexactly(MIB) == data
        write_transport.close()
        assert await reader.read() == b""
        read_transport.close()

    run(loop_factory, main)
