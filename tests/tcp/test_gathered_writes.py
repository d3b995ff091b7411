"""Gathered writes are not observable: they are sent before anything could observe them.

The loop gathers the writes of sockets that it created, once a connection has been written to in
several iterations. Each test here writes to such a connection and continues in the same callback; the
same holds on asyncio, which never gathers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, closed, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

# Longer than a connection's start, during which every write is sent immediately.
TURNS = 20

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def is_quiet(peer: socket.socket) -> bool:
    """Say whether nothing has arrived so far."""
    return not select.select([peer], [], [], 0)[0]


def arrived(peer: socket.socket, count: int) -> bytes:
    """Read `count` bytes while the loop is blocked: a busy kernel delivers a little late."""
    data = b""
    while len(data) < count and select.select([peer], [], [], support.PATIENCE_SECONDS)[0]:
        chunk = peer.recv(count - len(data))
        if not chunk:
            break
        data += chunk
    assert is_quiet(peer)
    return data


async def in_traffic(transport: Any, peer: socket.socket) -> None:
    """Write to a connection in several consecutive iterations."""
    for _ in range(TURNS):
        transport.write(b".")
        await asyncio.sleep(0)
    assert arrived(peer, TURNS) == b"." * TURNS


@contextlib.asynccontextmanager
async def accepted(protocol: Any = None) -> AsyncIterator[tuple[Any, socket.socket]]:
    """A connection accepted by a server of the loop, and its blocking peer."""
    protocol = protocol or Recorder()
    async with serving(lambda: protocol) as (_, address):
        with socket.create_connection(address) as peer:
            await support.wait_until(lambda: protocol.transport, "the connection")
            try:
                yield protocol.transport, peer
            finally:
                protocol.transport.abort()
                await closed(protocol.transport)


@contextlib.asynccontextmanager
async def by_address(family: int, address: Any) -> AsyncIterator[tuple[Any, socket.socket]]:
    """A connection made by the loop to a listener of the test."""
    loop = asyncio.get_running_loop()
    with socket.socket(family) as listening:
        listening.bind(address)
        listening.listen()
        if family == socket.AF_UNIX:
            connecting: Any = loop.create_unix_connection(Recorder, address)
        else:
            connecting = loop.create_connection(Recorder, *listening.getsockname())
        transport, _ = await support.within(connecting)
        peer, _ = listening.accept()
        with peer:
            try:
                yield transport, peer
            finally:
                transport.abort()
                await closed(transport)


@pytest.fixture(params=["accepted", "tcp", "unix"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Open a connection of one kind, on a socket that the loop created."""
    if request.param == "accepted":
        return accepted
    if request.param == "tcp":
        return lambda: by_address(socket.AF_INET, ("127.0.0.1", 0))
    return lambda: by_address(socket.AF_UNIX, str(tmp_path / "s"))


# --- start of a connection, and the choice --------------------------------------------------------


def test_opening_writes_leave_at_once(run: Run, connection: Any) -> None:
    async def main() -> None:
        async with connection() as (transport, peer):
            for word in (b"one", b"two", b"three"):
                transport.write(word)
                assert arrived(peer, len(word)) == word
            transport.writelines([b"fo", b"ur"])
            assert arrived(peer, len(b"four")) == b"four"

    run(main())


def test_only_traffic_is_gathered(run: Run, loop_name: str, connection: Any) -> None:
    async def main() -> None:
        async with connection() as (transport, peer):
            await in_traffic(transport, peer)
            transport.write(b"one ")
            transport.write(b"two")
            if loop_name != support.ORACLE:
                assert is_quiet(peer)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert arrived(peer, 7) == b"one two"

    run(main())


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_eager_loop_gathers_nothing(
    loop_name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio has no such choice")
    import ringloop

    driver: Any = loop_name.removeprefix("ringloop-")
    if way == "environment":
        monkeypatch.setenv("RINGLOOP_WRITES", "eager")
    arguments: Any = {"writes": "eager"} if way == "argument" else {}

    async def main() -> None:
        async with accepted() as (transport, peer):
            await in_traffic(transport, peer)
            for word in (b"one", b"two"):
                transport.write(word)
                assert arrived(peer, len(word)) == word

    with asyncio.Runner(loop_factory=lambda: ringloop.Loop(driver=driver, **arguments)) as runner:
        runner.run(main())


def test_choice_is_checked_by_name(loop_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio has no such choice")
    import ringloop

    with pytest.raises(ValueError, match=r"^writes must be .*, not 'lazy'"):
        ringloop.Loop(writes="lazy")  # type: ignore[arg-type]
    monkeypatch.setenv("RINGLOOP_WRITES", "never")
    with pytest.raises(ValueError, match=r"^RINGLOOP_WRITES must be .*, not 'never'"):
        ringloop.Loop()
    ringloop.Loop(writes="gathered").close()


# --- steps in the same callback -------------------------------------------------------------------


def option(transport: Any) -> None:
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def fork(transport: Any) -> None:
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)


def sleep(transport: Any) -> None:
    if sys.version_info < (3, 13):
        pytest.skip("time.sleep() has an audit event since 3.13")
    time.sleep(0)


def connect(transport: Any) -> None:
    with socket.socket() as other:
        other.connect_ex(("127.0.0.1", 1))


def datagram(transport: Any) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.sendto(b"look", ("127.0.0.1", 1))


STEPS: dict[str, Callable[[Any], Any]] = {
    "option": option,
    "question": lambda t: t.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
    "descriptor": lambda t: t.get_extra_info("socket").fileno(),
    "duplicate": lambda t: t.get_extra_info("socket").dup().close(),
    "size": lambda t: t.get_write_buffer_size(),
    "limits": lambda t: t.set_write_buffer_limits(high=10),
    "protocol": lambda t: t.set_protocol(t.get_protocol()),
    "paused": lambda t: (t.pause_reading(), t.is_closing()),
    "signal": lambda t: os.kill(os.getpid(), 0),
    "group": lambda t: os.killpg(os.getpgrp(), 0),
    "thread": lambda t: signal.pthread_kill(threading.get_ident(), 0),
    "popen": lambda t: subprocess.run(["true"], check=True),
    "spawn": lambda t: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "system": lambda t: os.system("true"),
    "fork": fork,
    "sleep": sleep,
    "connect": connect,
    "datagram": datagram,
}


@pytest.mark.parametrize("step", STEPS)
def test_writes_have_left_before(run: Run, step: str) -> None:
    async def main() -> None:
        async with accepted() as (transport, peer):
            await in_traffic(transport, peer)
            for _ in range(2):
                transport.write(b"one ")
                transport.write(b"two")
                STEPS[step](transport)
                assert arrived(peer, len(b"one two")) == b"one two"
                await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("step", ["option", "size", "fork", "signal"])
def test_writes_of_every_kind_have_left_before(run: Run, connection: Any, step: str) -> None:
    async def main() -> None:
        async with connection() as (transport, peer):
            await in_traffic(transport, peer)
            transport.write(b"one ")
            transport.writelines([b"two", b" three"])
            STEPS[step](transport)
            assert arrived(peer, len(b"one two three")) == b"one two three"

    run(main())


def test_writes_of_several_connections_have_left(run: Run) -> None:
    async def main() -> None:
        async with accepted() as (first, one), accepted() as (second, two):
            await in_traffic(first, one)
            await in_traffic(second, two)
            first.write(b"1")
            second.write(b"2")
            fork(first)
            assert (arrived(one, 1), arrived(two, 1)) == (b"1", b"2")

    run(main())


@pytest.mark.parametrize("way", ["write", "send", "duplicate"])
def test_order_with_writes_to_the_descriptor(run: Run, connection: Any, way: str) -> None:
    async def main() -> None:
        async with connection() as (transport, peer):
            await in_traffic(transport, peer)
            shown = transport.get_extra_info("socket")
            transport.write(b"header ")
            transport.write(b"body ")
            with contextlib.ExitStack() as stack:
                if way == "write":
                    fd = shown.fileno()
                    send: Any = lambda data: os.write(fd, data)  # noqa: E731
                elif way == "send":
                    send = shown._sock.send
                else:
                    send = stack.enter_context(shown.dup()).send
                send(b"print ")
                # From here on the descriptor is known.
                transport.write(b"more ")
                send(b"and ")
                transport.write(b"more")
                send(b".")
            assert (
                arrived(peer, len(b"header body print more and more."))
                == b"header body print more and more."
            )

    run(main())


def test_shutdown_follows_written_data(run: Run, connection: Any) -> None:
    async def main() -> None:
        async with connection() as (transport, peer):
            await in_traffic(transport, peer)
            transport.write(b"by")
            transport.write(b"e")
            transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
            assert peer.recv(9, socket.MSG_WAITALL) == b"bye"
            assert peer.recv(9) == b""

    run(main())


def test_socket_addresses_do_not_end_gathering(run: Run, loop_name: str) -> None:
    async def main() -> None:
        async with accepted() as (transport, peer):
            shown = transport.get_extra_info("socket")
            await in_traffic(transport, peer)
            transport.write(b"word")
            assert shown.getpeername() == peer.getsockname()
            assert (shown.family, shown.type) == (socket.AF_INET, socket.SOCK_STREAM)
            option(transport)
            assert arrived(peer, len(b"word")) == b"word"
            await asyncio.sleep(0)
            transport.write(b"word")
            assert loop_name == support.ORACLE or is_quiet(peer)

    run(main())


# --- fork -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "abort", "write"])
def test_child_of_fork_sends_only_its_own(run: Run, connection: Any, end: str) -> None:
    async def main() -> None:
        async with connection() as (transport, peer):
            await in_traffic(transport, peer)
            transport.write(b"parent ")
            transport.write(b"twice ")
            if not (pid := os.fork()):
                try:
                    if end == "write":
                        transport.write(b"child ")
                        transport.write(b"too")
                    else:
                        getattr(transport, end)()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)  # noqa: ASYNC222 -- it ends at once
            expected = b"parent twice " + (b"child too" if end == "write" else b"")
            assert arrived(peer, len(expected)) == expected
            await asyncio.sleep(0)
            transport.write(b".")
            await asyncio.sleep(0.001)
            assert arrived(peer, 1) == b"."

    run(main())


# --- the end of the program -----------------------------------------------------------------------

PROGRAM = """
import asyncio, os, signal, sys
way, port, name = sys.argv[1:]

async def main():
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, "127.0.0.1", int(port))
    for _ in range(20):
        transport.write(b".")
        await asyncio.sleep(0)
    transport.write(b"last ")
    transport.write(b"words")
    if way == "exec":
        os.execv("/bin/true", ["true"])
    elif way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit()

if name == "asyncio":
    factory = asyncio.SelectorEventLoop
else:
    import ringloop
    factory = lambda: ringloop.Loop(driver=name.removeprefix("ringloop-"))
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("way", ["exec", "kill", "exit"])
def test_last_writes_are_sent_before_exit(loop_name: str, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(support.PATIENCE_SECONDS)
        port = listening.getsockname()[1]
        command = [sys.executable, "-c", PROGRAM, way, str(port), loop_name]
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(support.PATIENCE_SECONDS)
            heard = b""
            while chunk := peer.recv(100):
                heard += chunk
    assert heard == b"." * 20 + b"last words"
