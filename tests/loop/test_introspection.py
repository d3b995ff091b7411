"""Introspection: classes, reprs, weak references, call graphs, and `python -m asyncio ps`."""

from __future__ import annotations

import asyncio
import gc
import inspect
import io
import os
import re
import socket
import subprocess
import sys
import textwrap
import types
import warnings
import weakref
from asyncio import trsock
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from tests import support
from tests.support.tcp import Recorder, closed, connected, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

since_3_14 = pytest.mark.skipif(sys.version_info < (3, 14), reason="new in CPython 3.14")


class Protocol(asyncio.SubprocessProtocol, asyncio.Protocol, asyncio.DatagramProtocol):
    """Fits every transport."""


async def make_stream(loop: Any) -> Any:
    left, right = socket.socketpair()
    transport, _ = await loop.create_connection(Protocol, sock=left)
    right.close()
    return transport


async def make_datagram(loop: Any) -> Any:
    return (await loop.create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", 0)))[0]


async def make_read_pipe(loop: Any) -> Any:
    read_end, write_end = os.pipe()
    transport, _ = await loop.connect_read_pipe(Protocol, os.fdopen(read_end, "rb", buffering=0))
    os.close(write_end)
    return transport


async def make_write_pipe(loop: Any) -> Any:
    read_end, write_end = os.pipe()
    transport, _ = await loop.connect_write_pipe(Protocol, os.fdopen(write_end, "wb", buffering=0))
    os.close(read_end)
    return transport


async def make_subprocess(loop: Any) -> Any:
    transport, _ = await loop.subprocess_exec(
        Protocol, "true", stdin=None, stdout=None, stderr=None
    )
    await transport._wait()
    return transport


TRANSPORTS: dict[str, tuple[Callable[[Any], Any], type]] = {
    "stream": (make_stream, asyncio.Transport),
    "datagram": (make_datagram, asyncio.DatagramTransport),
    "read pipe": (make_read_pipe, asyncio.ReadTransport),
    "write pipe": (make_write_pipe, asyncio.WriteTransport),
    "subprocess": (make_subprocess, asyncio.SubprocessTransport),
}


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_transport_is_of_asyncios_classes_and_weakly_referable(
    loop: Any, run: Run, kind: str
) -> None:
    make, base = TRANSPORTS[kind]
    if kind == "datagram" and sys.version_info < (3, 12):
        pytest.skip("3.11's own datagram transport is no DatagramTransport")

    async def main() -> None:
        transport = await make(loop)
        assert isinstance(transport, asyncio.BaseTransport)
        assert isinstance(transport, base)
        assert weakref.ref(transport)() is transport
        assert re.match(r"<\w*Transport[^<>]*(<[^<>]*>)?>$", repr(transport)), repr(transport)
        assert transport.get_extra_info("no such thing") is None
        assert transport.get_extra_info("no such thing", 5) == 5
        assert getattr(transport, "_start_tls_compatible", False) is (kind == "stream")
        mode = getattr(transport, "_sendfile_compatible", None)
        assert (mode is asyncio.constants._SendfileMode.TRY_NATIVE) is (kind == "stream")
        transport.close()
        # User attributes are kept, as on any instance.
        transport.mine = 1
        await asyncio.sleep(0.01)

    run(main())


def test_weak_references_to_the_loop_and_its_objects(loop_factory: LoopFactory) -> None:
    loop: Any = loop_factory()
    gone = weakref.ref(loop)
    assert gone() is not None
    for handle in (loop.call_soon(print), loop.call_later(1, print)):
        assert weakref.ref(handle)() is handle
        assert isinstance(handle, asyncio.Handle)
        handle.cancel()

    async def main() -> None:
        async with serving(Recorder) as (server, _):
            assert weakref.ref(server)() is server

    loop.run_until_complete(main())
    loop.close()
    del loop, handle, main
    gc.collect()
    assert gone() is None


# --- extra info -----------------------------------------------------------------------------------


def test_extra_info_socket_is_a_transport_socket(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            shown: Any = transport.get_extra_info("socket")
            assert type(shown) is trsock.TransportSocket
            assert shown.fileno() == transport._sock_fd
            assert shown.getpeername() == transport.get_extra_info("peername")
            assert shown.getsockname() == transport.get_extra_info("sockname")
            assert (shown.family, shown.type) == (socket.AF_INET, socket.SOCK_STREAM)
            assert shown.gettimeout() == 0
            shown.setblocking(False)
            for method in ("recv", "send", "close", "makefile"):
                with pytest.raises(AttributeError):
                    getattr(shown, method)
            with pytest.raises(ValueError, match="only 0"):
                shown.settimeout(1)
            duplicate = shown.dup()
            duplicate.close()
            assert "asyncio.TransportSocket" in repr(shown)
            with pytest.raises(TypeError, match="Cannot serialize"):
                shown.__getstate__()

    run(main())


def test_sockets_of_a_server(run: Run) -> None:
    async def main() -> None:
        async with serving(Recorder) as (server, _):
            (shown,) = server.sockets
            assert isinstance(shown, trsock.TransportSocket)
            assert isinstance(server.sockets, tuple)
            assert re.fullmatch(
                r"<Server sockets=\(<asyncio\.TransportSocket fd=\d+, .*>,\)>", repr(server)
            ), repr(server)
        assert server.sockets == ()
        assert repr(server) == "<Server sockets=()>"

    run(main())


# --- reprs ----------------------------------------------------------------------------------------


def normal(text: str) -> str:
    """Replace our names and the numbers of this run."""
    text = re.sub(r"_?(Unix)?(Selector)?(EventLoop|Loop)\b", "LOOP", text)
    text = re.sub(r"ringloop\.LOOP driver=\w+", "LOOP", text)
    text = re.sub(" reason='[^']*'", "", text)
    text = text.replace("_SelectorSocketTransport", "SocketTransport")
    text = text.replace("_SelectorDatagramTransport", "DatagramTransport")
    return re.sub(r"(fd|when|:)=?[\d.]+", r"\1=N", text)


def test_reprs_of_the_loop(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    seen = [repr(loop)]

    async def main() -> None:
        seen.append(repr(loop))
        loop.set_debug(True)
        seen.append(repr(loop))

    loop.run_until_complete(main())
    loop.close()
    seen.append(repr(loop))
    assert [normal(text) for text in seen] == [
        "<LOOP running=False closed=False debug=False>",
        "<LOOP running=True closed=False debug=False>",
        "<LOOP running=True closed=False debug=True>",
        "<LOOP running=False closed=True debug=True>",
    ]


def test_reprs_of_handles(loop: Any) -> None:
    handle, timer = loop.call_soon(print, 1, "two"), loop.call_later(100, print)
    # Releases since 3.13 hide the arguments outside debug mode, each in its own way.
    assert re.fullmatch(r"<Handle print\((1, 'two'|\.\.\.)?\)>", repr(handle)), repr(handle)
    assert re.fullmatch(r"<TimerHandle when=[\d.]+ print\(\)>", repr(timer)), repr(timer)
    handle.cancel()
    timer.cancel()
    assert repr(handle) == "<Handle cancelled>"
    assert re.fullmatch(r"<TimerHandle cancelled when=[\d.]+>", repr(timer)), repr(timer)
    from_thread = loop.call_soon_threadsafe(print)
    name = "_ThreadSafeHandle" if sys.version_info >= (3, 14) else "Handle"
    assert repr(from_thread) == f"<{name} print()>"
    from_thread.cancel()


def test_reprs_of_a_transport(run: Run) -> None:
    async def main() -> list[str]:
        async with connected(Recorder()) as (transport, _):
            await asyncio.sleep(0.001)
            seen = [repr(transport)]
            transport.pause_reading()
            await asyncio.sleep(0.001)
            seen.append(repr(transport))
            transport.close()
            seen.append(repr(transport))
            await closed(transport)
            seen.append(repr(transport))
            return seen

    assert [normal(text) for text in run(main())] == [
        "<SocketTransport fd=N read=polling write=<idle, bufsize=0>>",
        "<SocketTransport fd=N read=idle write=<idle, bufsize=0>>",
        "<SocketTransport closing fd=N read=idle write=<idle, bufsize=0>>",
        "<SocketTransport closed fd=N>",
    ]


def test_members_of_a_native_type_take_only_its_instances() -> None:
    """`Handle.cancel(something else)` is a TypeError and does not read foreign memory."""
    from ringloop import _native

    natives = [value for value in vars(_native).values() if isinstance(value, type)]
    members = [
        (member, name)
        for native in natives
        for name, member in vars(native).items()
        if not name.startswith("__") or name == "__repr__"
    ]
    refused = []
    for member, name in members:
        match member:
            case types.MethodDescriptorType() | types.WrapperDescriptorType():
                with pytest.raises(TypeError):
                    member(object())
                refused.append(name)
            case types.GetSetDescriptorType():
                with pytest.raises(TypeError):
                    member.__get__(object())
                refused.append(name)
    assert {"cancel", "write", "call_soon", "is_closing"} <= set(refused), refused


# --- private attributes used by libraries ---------------------------------------------------------


def test_private_names_that_libraries_read(loop: Any, run: Run) -> None:
    assert loop._debug is False
    assert loop._thread_id is None
    assert loop._default_executor is None
    assert len(loop._asyncgens) == 0
    assert loop._closed is False
    assert loop._stopping is False
    assert loop._task_factory is None
    assert loop._exception_handler is None
    assert loop._check_closed() is None

    async def main() -> None:
        import threading

        assert loop._thread_id == threading.get_ident()
        with pytest.raises(RuntimeError, match="already running"):
            loop._check_running()
        await loop.run_in_executor(None, len, "")
        assert loop._default_executor is not None

    run(main())
    run(loop.shutdown_default_executor())


def test_queues_of_other_loops_are_absent(loop_name: str, loop: Any) -> None:
    """uvloop has none of these either; a list that is always empty would swallow callbacks."""
    if loop_name == support.ORACLE:
        pytest.skip("these are asyncio's own")
    for name in ("_ready", "_selector"):
        assert not hasattr(loop, name)
        assert not hasattr(type(loop), name)
        with pytest.raises(
            AttributeError, match=f"'{name}': .* native, .* asyncio.SelectorEventLoop"
        ):
            getattr(loop, name)
    with pytest.raises((AttributeError, NotImplementedError)):
        loop._run_once()
    with pytest.raises(NotImplementedError):
        loop._process_events([])


def test_patch_for_nested_runs_is_refused_before_it_is_applied(loop_name: str, loop: Any) -> None:
    """What nest_asyncio does with a loop: it marks it first, then patches its class."""
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's can be patched")
    with pytest.raises(ValueError, match=r"Can't patch loop of type .*SelectorEventLoop"):
        hasattr(loop, "_nest_patched")
    # And other code that reads a loop's attributes is not affected.
    assert "_nest_patched" not in dir(loop)
    assert not hasattr(type(loop), "_nest_patched")
    for kind in (loop, type(loop)):
        inspect.getmembers(kind)
        mock.create_autospec(kind)


# --- replaced classes -----------------------------------------------------------------------------


def test_replaced_task_and_future_classes_are_used(
    loop: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nest_asyncio and others replace classes in asyncio's modules."""

    class Task(asyncio.Task[Any]):
        pass

    class Future(asyncio.Future[Any]):
        pass

    async def main() -> None:
        made = [loop.create_task(asyncio.sleep(0))]
        monkeypatch.setattr(asyncio.tasks, "Task", Task)
        monkeypatch.setattr(asyncio.futures, "Future", Future)
        made.append(loop.create_task(asyncio.sleep(0, 5), name="by name"))
        assert made[1].get_name() == "by name"
        made.append(asyncio.create_task(asyncio.sleep(0)))
        assert type(loop.create_future()) is Future
        monkeypatch.undo()
        made.append(loop.create_task(asyncio.sleep(0)))
        # A loop does not use what the package re-exports.
        monkeypatch.setattr(asyncio, "Task", Task)
        made.append(loop.create_task(asyncio.sleep(0)))
        assert [type(task) is Task for task in made] == [False, True, True, False, False]
        assert await asyncio.gather(*made) == [None, 5, None, None, None]

    run(main())


def test_a_replaced_task_class_gets_the_arguments_of_this_version(
    loop: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    real = asyncio.tasks.Task

    def make(*args: Any, **kwargs: Any) -> Any:
        given.append((len(args), kwargs.get("loop") is loop, set(kwargs)))
        return real(*args, **kwargs)

    async def nothing() -> None:
        pass

    async def main() -> None:
        monkeypatch.setattr(asyncio.tasks, "Task", make)
        await loop.create_task(nothing())
        await loop.create_task(nothing(), name="named")
        await asyncio.create_task(nothing())
        await asyncio.ensure_future(nothing())

    run(main())
    monkeypatch.undo()
    assert [arguments[:2] for arguments in given] == [(1, True)] * 4
    assert all(keywords <= {"loop", "name", "context"} for _, _, keywords in given)


# --- call graphs ----------------------------------------------------------------------------------


async def innermost(asleep: asyncio.Future[None]) -> None:
    await asleep


async def middle(asleep: asyncio.Future[None]) -> None:
    await innermost(asleep)


@since_3_14
def test_call_graph_of_a_task(loop: Any, run: Run) -> None:
    async def main() -> None:
        asleep = loop.create_future()
        task = asyncio.create_task(middle(asleep), name="the sleeper")

        async def waits() -> None:
            await task

        waiter = asyncio.create_task(waits(), name="the waiter")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        graph: Any = asyncio.capture_call_graph(task)  # type: ignore[attr-defined]
        assert [entry.frame.f_code.co_name for entry in graph.call_stack] == ["innermost", "middle"]
        (awaiting,) = graph.awaited_by
        assert awaiting.future is waiter
        text = io.StringIO()
        asyncio.print_call_graph(task, file=text)  # type: ignore[attr-defined]
        assert "* Task(name='the sleeper', id=" in text.getvalue()
        assert "async innermost()" in text.getvalue()
        assert "* Task(name='the waiter', id=" in text.getvalue()
        own: Any = asyncio.capture_call_graph()  # type: ignore[attr-defined]
        assert any(entry.frame.f_code.co_name == "main" for entry in own.call_stack)
        # A future of the loop takes part like a task.
        asyncio.future_add_to_awaited_by(asleep, waiter)  # type: ignore[attr-defined]
        assert asyncio.capture_call_graph(asleep).awaited_by  # type: ignore[attr-defined]
        asyncio.future_discard_from_awaited_by(asleep, waiter)  # type: ignore[attr-defined]
        asleep.set_result(None)
        await waiter

    run(main())


PROGRAM = """
import asyncio, os, sys
from tests import support

async def innermost(asleep):
    # Said by the loop, once every task waits: one that runs is not seen whole from outside. The loop
    # itself runs for a moment after that.
    asyncio.get_running_loop().call_soon(lambda: print("asleep", flush=True))
    await asleep

async def middle(asleep):
    await innermost(asleep)

async def main():
    asleep = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        group.create_task(middle(asleep), name="the sleeper")

with asyncio.Runner(loop_factory=support.loop_factory({loop_name!r})) as runner:
    runner.run(main())
"""


def is_asleep(pid: int) -> bool:
    """Say whether a process sleeps in the kernel (proc(5), stat: the state follows the name)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


@since_3_14
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", ["ps", "pstree"])
def test_tasks_of_another_process(loop_name: str, command: str) -> None:
    """`python -m asyncio ps PID` reads the tasks from the memory of a running process."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM.format(loop_name=loop_name))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "asleep\n"
            for _ in range(3):
                support.wait_until_blocking(lambda: is_asleep(process.pid), "the process's sleep")
                done = subprocess.run(
                    [sys.executable, "-m", "asyncio", command, str(process.pid)],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                # It may have slept before reaching the wait; retry.
                if "the sleeper" in done.stdout:
                    break
        finally:
            process.kill()
    refused = ("Operation not permitted", "Permission denied", "not permitted")
    if done.returncode != 0 and any(words in done.stderr + done.stdout for words in refused):
        pytest.skip("this machine lets no process read another's memory (ptrace)")
    assert done.returncode == 0, done.stderr
    assert "the sleeper" in done.stdout
    assert "Task-1" in done.stdout
    assert re.search(r"innermost.*middle|middle[\s\S]*innermost", done.stdout), done.stdout


FIRST_TASK = """
import asyncio, gc

gc.disable()
from tests import support

async def main():
    print(asyncio.current_task().get_name(), len(asyncio.all_tasks()))

with asyncio.Runner(loop_factory=support.loop_factory({loop_name!r})) as runner:
    runner.run(main())
from asyncio import tasks
left = getattr(tasks, "_scheduled_tasks", ())
print(len(left), [kept for kept in gc.get_objects() if isinstance(kept, asyncio.Task)])
"""


def test_first_task_of_a_process_is_the_programs(loop_name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TASK.format(loop_name=loop_name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines() == ["Task-1 1", "0 []"], done.stderr


# --- deprecations ---------------------------------------------------------------------------------


def test_connections_use_nothing_deprecated(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.write(b"x")
            assert await peer.receive(1) == b"x"
            transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())
