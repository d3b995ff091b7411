"""The keywords of a child process: each takes effect or is refused, as in this version's asyncio."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import pytest

from tests.support import within

Run = Any
# Without the type annotations of the keywords.
run_program: Any = asyncio.create_subprocess_exec
run_line: Any = asyncio.create_subprocess_shell
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes user and group")


async def output(*command: Any, **keywords: Any) -> str:
    """Run a command to its end; return its output."""
    keywords = {"stdin": DEVNULL, "stdout": PIPE} | keywords
    process = await run_program(*command, **keywords)
    printed, _ = await within(process.communicate())
    assert process.returncode == 0
    return str(printed.decode())


async def python(code: str, **keywords: Any) -> str:
    return await output(sys.executable, "-I", "-S", "-c", code, **keywords)


def test_directory_environment_umask_and_program(run: Run, tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        keywords = {"cwd": tmp_path, "env": {"WORD": "here"}, "umask": 0o027}
        said = await output("/bin/sh", "-c", 'echo "$(pwd) $WORD $(umask)"', **keywords)
        assert said.split() == [str(tmp_path), "here", "0027"]
        said = await output("another name", "-c", "echo $0", executable="/bin/sh")
        assert said == "another name\n"
        # Bytes and paths, wherever text is allowed.
        path = pathlib.Path("/bin/sh")
        said = await output(path, b"-c", b"echo $WORD", cwd=b"/", env={b"WORD": b"bytes"})
        assert said == "bytes\n"

    run(main())


@pytest.mark.one_thread("writes a program and runs it: another child may hold it open")
def test_program_is_searched_in_the_path_of_its_environment(
    run: Run, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "a-program-of-this-test"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)

    async def main() -> None:
        path = f"/nonexistent:{tmp_path}"
        assert await output(program.name, env={"PATH": path}) == "found\n"
        with pytest.raises(FileNotFoundError) as caught:
            await output(program.name)
        assert caught.value.filename == program.name

    run(main())


def test_session_and_process_group(run: Run) -> None:
    async def main() -> None:
        code = "import os; print(os.getpid() == os.getpgrp(), os.getpid() == os.getsid(0))"
        assert await python(code) == "False False\n"
        assert await python(code, start_new_session=True) == "True True\n"
        assert await python(code, process_group=0) == "True False\n"
        with pytest.raises(PermissionError):
            await python(code, process_group=1)

    run(main())


def test_only_given_descriptors_are_passed(run: Run) -> None:
    async def main() -> None:
        ends = os.pipe()
        os.set_inheritable(ends[0], True)
        code = (
            "import os\n"
            f"for fd in {ends}:\n"
            "    try: os.fstat(fd); print('open', end=' ')\n"
            "    except OSError: print('closed', end=' ')"
        )
        try:
            assert await python(code) == "closed closed "
            assert await python(code, pass_fds=ends) == "open open "
            assert await python(code, pass_fds=(ends[1],)) == "closed open "
            assert await python(code, close_fds=False) == "open closed "
            with pytest.warns(RuntimeWarning, match="pass_fds overriding close_fds"):
                assert await python(code, close_fds=False, pass_fds=ends[1:]) == "closed open "
            with pytest.raises(ValueError, match="fds_to_keep"):
                await python(code, pass_fds=(-1,))
        finally:
            for fd in ends:
                os.close(fd)

    run(main())


def test_loop_and_pipe_descriptors_do_not_reach_the_child(run: Run) -> None:
    # Without closing anything: all our descriptors are close-on-exec.
    listing = ["/bin/ls", "/proc/self/fd"]
    bare = subprocess.run(listing, stdin=DEVNULL, capture_output=True, close_fds=False, check=True)

    async def main() -> None:
        process = await run_program("cat", stdin=PIPE, stdout=PIPE)
        try:
            listed = await output(*listing, close_fds=False, stderr=PIPE)
            assert listed == bare.stdout.decode()
        finally:
            assert await within(process.communicate(b"x")) == (b"x", None)

    run(main())


def test_signals_are_restored_when_asked(run: Run) -> None:
    async def main() -> None:
        shell = ["/bin/sh", "-c", "grep SigIgn /proc/self/status"]
        pipe_bit = 1 << (signal.SIGPIPE - 1)

        async def ignored(**keywords: Any) -> bool:
            return bool(int((await output(*shell, **keywords)).split()[1], 16) & pipe_bit)

        assert not await ignored()
        assert not await ignored(restore_signals=True)
        assert await ignored(restore_signals=False)

    run(main())


def test_preexec_fn_runs_in_the_child_and_its_error_is_raised(run: Run) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        said = await output("/bin/sh", "-c", "umask", preexec_fn=lambda: os.umask(0o077))
        assert said == "0077\n"
        with pytest.raises(subprocess.SubprocessError, match="preexec_fn"):
            await output("true", preexec_fn=fail)

    run(main())


@needs_root
def test_user_and_groups(run: Run) -> None:
    async def main() -> None:
        keywords = {"cwd": "/", "stderr": DEVNULL}
        said = await output("id", "-u", user=65534, **keywords)
        assert said == "65534\n"
        said = await output("id", "-g", group=65534, **keywords)
        assert said == "65534\n"
        said = await output("id", "-G", extra_groups=[1, 2], **keywords)
        assert sorted(map(int, said.split()))[-2:] == [1, 2]
        for name in ("user", "group"):
            with pytest.raises(ValueError, match="cannot be negative"):
                await output("id", **{name: -1})

    run(main())


def test_size_of_the_pipes(run: Run) -> None:
    async def main() -> None:
        process = await run_program("cat", stdin=PIPE, stdout=PIPE, pipesize=4096)
        assert process.stdin is not None
        pipe = process.stdin.transport.get_extra_info("pipe")
        assert fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) == 4096
        data = os.urandom(1 << 20)
        assert (await within(process.communicate(data)))[0] == data

    run(main())


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"universal_newlines": True}, "universal_newlines must be False"),
        ({"text": True}, "text must be False"),
        ({"encoding": "ascii"}, "encoding must be None"),
        ({"errors": "strict"}, "errors must be None"),
        ({"bufsize": 1}, "bufsize must be 0"),
        ({"shell": True}, "shell must be False"),
        ({"startupinfo": object()}, "startupinfo is only supported on Windows"),
        ({"creationflags": 1}, "creationflags is only supported on Windows"),
        ({"env": {"A=B": "c"}}, "illegal environment variable name"),
        ({"env": {"A": "nul\0"}}, "embedded null byte"),
        ({"cwd": "nul\0"}, "embedded null byte"),
    ],
)
def test_keywords_that_asyncio_refuses(run: Run, keywords: dict[str, Any], words: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=words):
            await run_program("true", **keywords)
        if "shell" not in keywords:
            with pytest.raises(ValueError, match=words):
                await run_line("true", **keywords)

    run(main())


def test_unusable_commands(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="embedded null byte"):
            await run_program("tr\0ue")
        with pytest.raises(ValueError, match="embedded null byte"):
            await run_program("true", "nul\0")
        with pytest.raises(TypeError):
            await run_program("true", 1)
        with pytest.raises(ValueError, match="cmd must be a string"):
            await run_line(["true"])
        with pytest.raises(TypeError):
            await run_program("true", no_such_keyword=1)
        loop: Any = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="shell must be True"):
            await loop.subprocess_shell(asyncio.SubprocessProtocol, "true", shell=False)

    run(main())


def test_errors_of_the_start_name_their_file(run: Run, tmp_path: pathlib.Path) -> None:
    async def failing(expected: type[OSError], *command: Any, **keywords: Any) -> OSError:
        # With pipes, to see that they are closed.
        streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
        with pytest.raises(expected) as caught:
            await run_program(*command, **streams, **keywords)
        return caught.value

    async def main() -> None:
        error = await failing(FileNotFoundError, "/nonexistent/program")
        assert (error.errno, error.filename) == (errno.ENOENT, "/nonexistent/program")
        plain = tmp_path / "plain"
        plain.write_text("no program")
        error = await failing(PermissionError, str(plain))
        assert (error.errno, error.filename) == (errno.EACCES, str(plain))
        plain.chmod(0o755)
        error = await failing(OSError, str(plain))
        assert error.errno == errno.ENOEXEC
        error = await failing(FileNotFoundError, "true", cwd="/nonexistent")
        assert error.filename == "/nonexistent"
        error = await failing(NotADirectoryError, "true", cwd=plain)
        assert error.filename == plain
        closed = tmp_path / "closed"
        closed.mkdir(mode=0)
        if os.geteuid() != 0:
            error = await failing(PermissionError, "true", cwd=closed)
            assert error.filename == closed

    run(main())


@needs_root
def test_forbidden_directory_names_it(run: Run, tmp_path: pathlib.Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)

    async def main() -> None:
        # root may enter any directory, so the unprivileged user is the shell's child.
        process = await run_line(f"cd {closed}", user=65534, cwd="/", stderr=DEVNULL)
        assert await within(process.wait()) != 0

    run(main())


def test_shell_takes_a_line_of_text_or_bytes(run: Run) -> None:
    async def main() -> None:
        for line in ("echo $((1 + 1)) | cat", b"echo $((1 + 1)) | cat"):
            process = await run_line(line, stdout=PIPE, stderr=STDOUT)
            assert await within(process.communicate()) == (b"2\n", None)
        process = await run_line("echo $0", stdout=PIPE, executable="/bin/bash")
        assert await within(process.communicate()) == (b"/bin/bash\n", None)

    run(main())


def test_default_is_pipe_and_none_inherits(run: Run) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.ended = asyncio.Event()

        def connection_lost(self, exc: BaseException | None) -> None:
            self.ended.set()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(Protocol, "cat")
        pipes = [transport.get_pipe_transport(fd) for fd in range(3)]
        assert isinstance(pipes[0], asyncio.WriteTransport)
        assert all(isinstance(pipe, asyncio.ReadTransport) for pipe in pipes[1:])
        process = transport.get_extra_info("subprocess")
        assert isinstance(process, subprocess.Popen)
        assert process.pid == transport.get_pid()
        assert process.args == ("cat",)
        pipes[0].close()
        await within(protocol.ended.wait())
        assert process.returncode == transport.get_returncode() == 0
        transport.close()
        transport, protocol = await loop.subprocess_exec(
            Protocol, "true", stdin=None, stdout=None, stderr=None
        )
        assert [transport.get_pipe_transport(fd) for fd in range(3)] == [None] * 3
        await within(protocol.ended.wait())
        transport.close()

    run(main())
