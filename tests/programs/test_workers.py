"""`ringloop.run_workers` and `python -m ringloop run --workers`, as threads and as processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from ringloop import _supervisor, _workers
from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.programs.conftest import Interpreter

KINDS = ("process", "thread")

HEAD = """
import asyncio, os, pathlib, signal, sys, threading, time
import ringloop

def own_name(worker):
    return f"{worker.number} {os.getpid()} {threading.get_ident()}"

async def serve(worker, answer=None):
    async def reply(reader, writer):
        await (answer or reader.readline)()
        writer.write(own_name(worker).encode())
        writer.close()
    server = await asyncio.start_server(reply, sock=worker.sockets[0])
    async with server:
        await worker.stopping()
"""


class Running:
    """A program that runs workers, meanwhile."""

    def __init__(self, child: subprocess.Popen[str], port: int, log: Path) -> None:
        self.child = child
        self.port = port
        self.log = log

    def text(self) -> str:
        return self.log.read_text()

    def until_logged(self, text: str, count: int = 1) -> None:
        support.wait_until_blocking(lambda: self.text().count(text) >= count, f"{text!r}")

    def ask(self) -> tuple[int, int, int]:
        """Return number, process and thread of the worker that answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=40) as peer:
            peer.sendall(b"who\n")
            answer = b""
            while data := peer.recv(100):
                answer += data
        number, process, thread = map(int, answer.split())
        return number, process, thread

    def until_answered(self) -> tuple[int, int, int]:
        answers = []

        def answered() -> bool:
            with contextlib.suppress(OSError):
                answers.append(self.ask())
            return bool(answers)

        support.wait_until_blocking(answered, "an answer")
        return answers[0]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        return self.child.wait(support.PATIENCE_SECONDS)


@pytest.fixture
def start(interpreter: Interpreter, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a program with a body of `main`, and arguments of `run_workers`."""
    running = []

    def start(body: str, count: int = 2, **arguments: Any) -> Running:
        port = support.free_port()
        given = "".join(f", {name}={value!r}" for name, value in arguments.items())
        text = f"{HEAD}\n{body}\n"
        text += f"if __name__ == '__main__':\n    sys.exit(ringloop.run_workers(main, {count}"
        text += f", listen=['127.0.0.1:{port}']{given}))\n"
        program = interpreter.program(text)
        log = tmp_path / "log"
        with log.open("wb") as file:
            child = subprocess.Popen(
                [sys.executable, program],
                cwd=interpreter.folder,
                env=interpreter.environment,
                stdout=file,
                stderr=file,
                text=True,
            )
        running.append(child)
        return Running(child, port, log)

    yield start
    for child in running:
        child.kill()
        child.wait()


MAIN = """
async def main(worker):
    print("began", worker.number, flush=True)
    await serve(worker)
    print("ended", worker.number, flush=True)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_workers_share_a_listener_and_end_on_sigterm(
    start: Callable[..., Running], kind: str
) -> None:
    running = start(MAIN, 3, kind=kind)
    running.until_logged("began", 3)
    seen: set[tuple[int, int, int]] = set()

    def all_seen() -> bool:
        seen.add(running.ask())
        return len(seen) == 3

    support.wait_until_blocking(all_seen, "all workers")
    assert {number for number, _, _ in seen} == {0, 1, 2}
    processes = {process for _, process, _ in seen}
    assert len(processes) == (3 if kind == "process" else 1)
    assert len({(process, thread) for _, process, thread in seen}) == 3
    assert running.end() == 0
    assert running.text().count("ended") == 3
    assert "Traceback" not in running.text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_loops_are_ours_with_the_driver(
    start: Callable[..., Running], kind: str, driver: str
) -> None:
    support.usable_loop(f"ringloop-{driver}")
    body = "async def main(worker):\n    print(asyncio.get_running_loop(), flush=True)\n"
    running = start(body, kind=kind, driver=driver)
    assert running.child.wait(support.PATIENCE_SECONDS) == 0
    assert running.text().count(f"<ringloop.Loop driver={driver} ") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_worker_that_raises_is_reported_and_started_again(
    start: Callable[..., Running], kind: str
) -> None:
    body = """
async def main(worker):
    if worker.number == 1 and not pathlib.Path("raised").exists():
        pathlib.Path("raised").touch()
        raise LookupError("the reason")
    print("began", worker.number, flush=True)
    await serve(worker)
"""
    running = start(body, kind=kind)
    running.until_logged("began", 2)
    text = running.text()
    assert "worker 1 failed" in text
    assert "LookupError: the reason" in text
    assert "worker 1 ended with status 1, restarting in 0.1 s" in text
    assert running.end() == 0


def test_killed_process_is_started_again(start: Callable[..., Running]) -> None:
    running = start(MAIN, kind="process")
    running.until_logged("began", 2)
    number, process, _ = running.ask()
    os.kill(process, signal.SIGKILL)
    running.until_logged("began", 3)
    assert f"worker {number} ended with SIGKILL, restarting in 0.1 s" in running.text()
    assert running.end(signal.SIGINT) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_worker_that_never_starts_ends_all(
    start: Callable[..., Running], kind: str, interpreter: Interpreter
) -> None:
    body = """
from ringloop import _supervisor
_supervisor._DELAY_MAX = 0.01
async def main(worker):
    if worker.number == 0:
        raise ValueError("never")
    await worker.stopping()
    print("asked to end", flush=True)
"""
    running = start(body, kind=kind)
    assert running.child.wait(support.PATIENCE_SECONDS) == 1
    assert "the 10th time in a row: ending all workers" in running.text()
    assert "asked to end" in running.text()


@pytest.mark.parametrize("kind", KINDS)
def test_worker_that_does_not_ask_is_cancelled(start: Callable[..., Running], kind: str) -> None:
    body = """
async def main(worker):
    try:
        print("began", flush=True)
        await asyncio.sleep(1000)
    finally:
        print("cleaned up", flush=True)
"""
    running = start(body, kind=kind)
    running.until_logged("began", 2)
    assert running.end() == 0
    assert running.text().count("cleaned up") == 2
    assert "Traceback" not in running.text()


@pytest.mark.parametrize("kind", KINDS)
def test_requests_under_way_end_and_deadline_cuts_off(
    start: Callable[..., Running], kind: str
) -> None:
    body = """
async def main(worker):
    print("began", flush=True)
    await worker.stopping()
    if worker.number == 0:
        await asyncio.sleep(0.2)
        print("in time", flush=True)
    else:
        await asyncio.sleep(1000)
"""
    running = start(body, kind=kind, grace=1.0)
    running.until_logged("began", 2)
    assert running.end() == 1
    assert "in time" in running.text()
    assert "worker 1 did not end in time and is cut off" in running.text()
    assert "worker 0 did not end" not in running.text()


@pytest.mark.parametrize("kind", KINDS)
def test_second_signal_ends_a_blocked_worker(start: Callable[..., Running], kind: str) -> None:
    body = """
async def main(worker):
    print("began", flush=True)
    time.sleep(1000)
"""
    running = start(body, kind=kind)
    running.until_logged("began", 2)
    running.child.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two signals at once would be one
    began = time.monotonic()
    assert running.end(signal.SIGINT) == 1
    assert time.monotonic() - began < support.PATIENCE_SECONDS
    assert "worker 0 did not end and is killed" in running.text()
    if kind == "thread":
        assert "worker 0 cannot be ended and is abandoned" in running.text()


@pytest.mark.parametrize("kind", KINDS)
def test_second_signal_cancels(start: Callable[..., Running], kind: str) -> None:
    body = """
async def main(worker):
    print("began", flush=True)
    try:
        await worker.stopping()
        print("asked", flush=True)
        await asyncio.sleep(1000)
    finally:
        print("cleaned", flush=True)
"""
    running = start(body, kind=kind, grace=float("1e9"))
    running.until_logged("began", 2)
    running.child.send_signal(signal.SIGTERM)
    running.until_logged("asked", 2)
    assert running.end(signal.SIGTERM) == 1
    assert running.text().count("cleaned") == 2
    assert "by force" not in running.text()


def test_signal_to_the_whole_group_is_one_signal(start: Callable[..., Running]) -> None:
    """A service manager signals each process, and the supervisor passes its own on, too."""
    body = """
async def main(worker):
    print("began", os.getpid(), flush=True)
    await worker.stopping()
    print("asked", flush=True)
    while not os.path.exists("finish"):
        await asyncio.sleep(0.01)
    print("finished", flush=True)
"""
    running = start(body, kind="process")
    running.until_logged("began", 2)
    workers = [int(line.split()[1]) for line in running.text().splitlines() if "began" in line]
    for process in (*workers, running.child.pid, *workers):
        os.kill(process, signal.SIGTERM)
    running.until_logged("asked", 2)
    time.sleep(0.2)  # a hasty end would come now
    Path(f"/proc/{running.child.pid}/cwd").resolve().joinpath("finish").touch()
    assert running.child.wait(support.PATIENCE_SECONDS) == 0
    assert running.text().count("finished") == 2


def test_endless_grace(start: Callable[..., Running]) -> None:
    running = start("inf = float('inf')" + MAIN, kind="thread", grace=float("inf"))
    running.until_logged("began", 2)
    assert running.end() == 0
    assert running.text().count("ended") == 2


def test_signal_of_a_process_that_is_being_forked_is_not_lost(
    start: Callable[..., Running],
) -> None:
    """The child is told to end before it has set its own handlers."""
    body = """
import multiprocessing.process as process
bootstrap = process.BaseProcess._bootstrap
def late(self, *args, **kwargs):
    os.kill(os.getpid(), signal.SIGTERM)
    print("told", flush=True)
    return bootstrap(self, *args, **kwargs)
process.BaseProcess._bootstrap = late
from ringloop import _supervisor
_supervisor._DELAY_MAX = 0.01
async def main(worker):
    print("ran", flush=True)
    await worker.stopping()
"""
    running = start(body, 1, kind="process")
    # SIGTERM ends it, so that it is started again; were it lost, the worker would run.
    assert running.child.wait(support.PATIENCE_SECONDS) == 1
    assert running.text().count("told") == 10
    assert "ended with SIGTERM" in running.text()
    assert "ran" not in running.text().split()


@pytest.mark.parametrize("kind", KINDS)
def test_signal_that_comes_with_its_handler_is_not_lost(
    start: Callable[..., Running], kind: str
) -> None:
    body = """
install = signal.signal

def at_once(number, handler):
    before = install(number, handler)
    if number == signal.SIGTERM:
        signal.signal = install
        signal.raise_signal(number)
    return before

signal.signal = at_once

async def main(worker):
    await worker.stopping()
"""
    running = start(body, kind=kind)
    assert running.child.wait(support.PATIENCE_SECONDS) == 0, running.text()


def test_processes_end_with_their_supervisor(start: Callable[..., Running]) -> None:
    running = start(MAIN, kind="process")
    running.until_logged("began", 2)
    running.child.kill()
    running.until_logged("ended", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_return_end_the_run(start: Callable[..., Running], kind: str) -> None:
    body = "async def main(worker):\n    print('worked', worker.number, worker.count, flush=True)"
    running = start(body, 4, kind=kind)
    assert running.child.wait(support.PATIENCE_SECONDS) == 0
    lines = [line for line in running.text().splitlines() if line.startswith("worked")]
    assert sorted(lines) == [f"worked {number} 4" for number in range(4)]


def test_default_kind_is_what_fits_the_interpreter() -> None:
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    expected = _supervisor.ProcessUnit if is_locked else _supervisor.ThreadUnit
    assert _supervisor.kind_of(None) is expected


# --- arguments ------------------------------------------------------------------------------------


async def nothing(worker: ringloop.Worker) -> None:
    """Return at once."""


@pytest.mark.one_thread("run_workers is for the main thread")
def test_wrong_arguments_are_refused_by_name() -> None:
    for arguments, error, text in (
        ({"count": 0}, ValueError, "count is 0: 1 to"),
        ({"count": True}, TypeError, "count is True: give a whole number"),
        ({"count": 1, "kind": "fiber"}, ValueError, "kind is 'fiber': give 'thread' or 'process'"),
        ({"count": 1, "grace": -1}, ValueError, "grace is -1: give seconds"),
        (
            {"count": 1, "listen": ["nowhere"]},
            ValueError,
            "'nowhere' is not an address: give HOST:PORT",
        ),
        ({"count": 1, "listen": ["unix:"]}, ValueError, "'unix:' is not an address"),
        ({"count": 1, "listen": [("localhost", 65_536)]}, ValueError, "65536.* is not an address"),
        ({"count": 1, "listen": [("localhost", -1)]}, ValueError, "-1.* is not an address"),
        ({"count": 1, "listen": [("localhost", "80")]}, ValueError, "'80'.* is not an address"),
        ({"count": 1, "listen": [("localhost",)]}, ValueError, "is not an address"),
        ({"count": 1, "listen": [5]}, ValueError, "5 is not an address"),
        ({"count": 1, "listen": ["unix:/no/such/folder"]}, OSError, r"\(unix:/no/such/folder\)"),
        (
            {"count": 1, "driver": "epoll", "loop_factory": ringloop.new_event_loop},
            ValueError,
            "exclude each other",
        ),
    ):
        with pytest.raises(error, match=text):
            ringloop.run_workers(nothing, **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="main is 5: give a coroutine function"):
        ringloop.run_workers(5, 1)  # type: ignore[arg-type]

    async def inside() -> None:
        ringloop.run_workers(nothing, 1)

    with pytest.raises(RuntimeError, match="call it outside a running loop"):
        ringloop.run(inside())

    async def in_thread() -> None:
        await asyncio.to_thread(ringloop.run_workers, nothing, 1)

    with pytest.raises(RuntimeError, match="call it from the main thread"):
        ringloop.run(in_thread())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:443", ("::1", 443)),
        (":8000", ("", 8000)),
        (("localhost", 1), ("localhost", 1)),
        ((None, 65_535), ("", 65_535)),
    ],
)
def test_addresses(address: Any, expected: tuple[str, int]) -> None:
    assert _workers.parse_address(address) == expected


def test_bound_sockets_are_closed_and_given_ones_kept(tmp_path: Path) -> None:
    own = socket.create_server(("127.0.0.1", 0))
    path = str(tmp_path / "socket")
    with own, _workers.bound([own, "127.0.0.1:0", ":0", f"unix:{path}"]) as sockets:
        assert sockets[0] is own
        for sock in sockets:
            assert not sock.getblocking()
            family = socket.AF_UNIX if sock.family == socket.AF_UNIX else sock.family
            address: Any = (
                path if family == socket.AF_UNIX else ("localhost", sock.getsockname()[1])
            )
            if sock.family == socket.AF_INET:
                with socket.create_connection(("127.0.0.1", sock.getsockname()[1])):
                    continue
            if family == socket.AF_UNIX:
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(address)
        assert own.fileno() != -1
    assert own.fileno() == -1


def test_socket_file_is_removed_and_one_that_was_left_is_replaced(tmp_path: Path) -> None:
    """A second start failed: the address was in use by the file of the first."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert path.is_socket()
    for _ in range(2):
        with _workers.bound(f"unix:{path}") as sockets:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(path))
            sockets[0].accept()[0].close()
        assert not path.exists()
    with _workers.bound(f"unix:{path}"):
        path.unlink()
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"
    with pytest.raises(OSError, match="in use"), _workers.bound(f"unix:{path}"):
        pass
    assert path.read_text() == "somebody else's"


@pytest.mark.one_thread("run_workers is for the main thread")
@pytest.mark.parametrize("kind", KINDS)
def test_start_that_the_system_refuses_is_tried_again(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A supervisor whose process or thread could not be made for the second time ended."""
    unit: Any = _supervisor.ProcessUnit if kind == "process" else _supervisor.ThreadUnit
    start, starts = unit.start, []

    def refused_once(self: Any, lifeline: tuple[int, int]) -> None:
        starts.append(1)
        if len(starts) == 2:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        start(self, lifeline)

    monkeypatch.setattr(unit, "start", refused_once)

    async def main(worker: ringloop.Worker) -> None:
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("the first time")

    literal: Any = kind
    assert ringloop.run_workers(main, 1, kind=literal) == 0
    assert len(starts) == 3
    assert "a start that failed" in caplog.text


# --- the command line -----------------------------------------------------------------------------

RUN = ("-m", "ringloop", "run")

MODULE = HEAD + MAIN + "async def short(worker):\n    print(f'short {worker.number}\\n', end='')\n"


@pytest.mark.parametrize("kind", KINDS)
def test_function_of_a_module_runs_in_workers(interpreter: Interpreter, kind: str) -> None:
    interpreter.program(MODULE, "app.py")
    done = interpreter(*RUN, "--workers", "3", "--kind", kind, "app:short", python=("-u",))
    assert sorted(done.lines) == ["short 0", "short 1", "short 2"]
    unix = interpreter.folder / "socket"
    bind = ("--bind", f"unix:{unix}", "--bind", "127.0.0.1:0")
    program = "async def main(worker): print(f'{len(worker.sockets)}\\n', end='', flush=True)"
    interpreter.program(program, "socks.py")
    done = interpreter(*RUN, "--workers=2", f"--kind={kind}", *bind, "socks:main")
    assert done.lines == ["2", "2"]


def test_program_runs_in_processes(interpreter: Interpreter) -> None:
    program = interpreter.program(
        "import os, sys; print(os.environ['RINGLOOP_WORKER'], sys.argv[1:], __name__, flush=True)"
    )
    done = interpreter(*RUN, "--workers", "2", program, "a", "-b")
    assert sorted(done.lines) == ["0 ['a', '-b'] __main__", "1 ['a', '-b'] __main__"]
    failing = interpreter.program(
        "import os, pathlib\n"
        "if os.environ['RINGLOOP_WORKER'] == '1' and not pathlib.Path('failed').exists():\n"
        "    pathlib.Path('failed').touch()\n    1 / 0\nprint('done', flush=True)\n",
        "failing.py",
    )
    done = interpreter(*RUN, "--workers", "2", failing)
    assert done.lines == ["done"] * 2
    assert done.errors.count("ZeroDivisionError") == 1
    assert "worker 1 ended with status 1, restarting in 0.1 s" in done.errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--workers", "0", "app:short"), "count is 0: 1 to 1024 workers"),
        (("--workers", "2", "app:absent"), "module 'app' has no 'absent'"),
        (("--workers", "2", "absent:main"), "No module named 'absent'"),
        (("--workers", "2", "app:short", "more"), "app:short takes no arguments: more"),
        (("--workers", "2", "--kind", "thread", "app.py"), "threads run a function"),
        (("--workers", "2", "--bind", ":0", "app.py"), "--bind needs MODULE:FUNCTION"),
        (("--workers", "2", "--bind", "nowhere", "app:short"), "'nowhere' is not an address"),
        (("--workers", "2", "absent.py"), "can't open file 'absent.py'"),
        (("--kind", "thread", "app.py"), "give --workers N, too"),
    ],
)
def test_command_line_errors(
    interpreter: Interpreter, arguments: tuple[str, ...], text: str
) -> None:
    interpreter.program(MODULE, "app.py")
    assert text in interpreter(*RUN, *arguments, status=2).errors


def test_program_as_worker_ends_with_its_supervisor(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    program = interpreter.program(
        "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, *RUN, "--workers", "1", program],
        env=interpreter.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        worker = int(child.stdout.readline())
        child.kill()
        support.wait_until_blocking(lambda: not is_alive(worker), "the worker's end")


def is_alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
