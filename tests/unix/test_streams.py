"""Unix stream sockets: connections and servers by path, by abstract name and on a given socket."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import stat
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

Loop = asyncio.AbstractEventLoop
cleans_up = pytest.mark.skipif(
    sys.version_info < (3, 13), reason="cleanup_socket came with CPython 3.13"
)


@pytest.fixture
def path() -> Iterator[str]:
    """A short path: the kernel allows 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ringloop-") as folder:
        yield f"{folder}/socket"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def ask(address: Any, **kwargs: Any) -> bytes:
    """Send a line to an address and return the answer."""
    reader, writer = await support.within(asyncio.open_unix_connection(address, **kwargs))
    writer.write(b"question\n")
    answer = await support.within(reader.readline())
    writer.close()
    await support.within(writer.wait_closed())
    return answer


async def ended(server: asyncio.AbstractServer) -> None:
    server.close()
    await support.within(server.wait_closed())


@pytest.mark.parametrize("form", [str, os.fsencode, pathlib.Path])
def test_path_serves_in_every_form(loop: Loop, run: Any, path: str, form: Any) -> None:
    async def main() -> None:
        if form is os.fsencode and sys.version_info < (3, 13):
            server = await asyncio.start_unix_server(echo, path)
        else:
            server = await asyncio.start_unix_server(echo, form(path))
        assert stat.S_ISSOCK(pathlib.Path(path).stat().st_mode)
        assert server.sockets[0].getsockname() == path
        assert await ask(form(path)) == b"question\n"
        await ended(server)

    run(main())


@pytest.mark.parametrize("form", [str, str.encode])
def test_an_abstract_name_leaves_nothing_behind(loop: Loop, run: Any, path: str, form: Any) -> None:
    name = form(f"\0{path}")

    async def main() -> None:
        for _ in range(2):
            server = await asyncio.start_unix_server(echo, name)
            assert await ask(name) == b"question\n"
            await ended(server)

    run(main())


def test_given_unix_socket_serves_and_connects(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        server = await asyncio.start_unix_server(echo, sock=listening)
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(path)
        assert await ask(None, sock=connected) == b"question\n"
        await ended(server)

    run(main())


def test_a_large_amount_passes_both_ways(loop: Loop, run: Any, path: str) -> None:
    data = os.urandom(4 << 20)

    async def main() -> None:
        server = await asyncio.start_unix_server(echo, path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(data)
        assert await support.within(reader.readexactly(len(data)), 30) == data
        writer.close()
        await support.within(writer.wait_closed())
        await ended(server)

    run(main())


def test_extra_info_of_a_unix_transport(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        accepted = Recorder()
        server = await loop.create_unix_server(lambda: accepted, path)
        transport, protocol = await loop.create_unix_connection(Recorder, path)
        await support.wait_until(lambda: accepted.transport, "the server's connection")
        assert isinstance(transport, asyncio.Transport)
        assert transport.get_extra_info("peername") == path
        assert transport.get_extra_info("sockname") == ""
        assert accepted.transport.get_extra_info("sockname") == path
        assert accepted.transport.get_extra_info("peername") == ""
        assert transport.get_extra_info("socket").family == socket.AF_UNIX
        assert accepted.transport.get_extra_info("socket").family == socket.AF_UNIX
        transport.write(b"x")
        transport.write_eof()
        await accepted.until_lost()
        assert accepted.events == [
            "connection_made",
            "data_received",
            "eof_received",
            "connection_lost",
        ]
        await protocol.until_lost()
        await ended(server)

    run(main())


def test_a_stale_socket_is_replaced_and_other_files_are_not(
    loop: Loop, run: Any, path: str
) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
        server = await asyncio.start_unix_server(echo, path)
        assert await ask(path) == b"question\n"
        await ended(server)
        pathlib.Path(path).unlink(missing_ok=True)
        pathlib.Path(path).write_text("precious")
        with pytest.raises(OSError, match="already in use"):
            await asyncio.start_unix_server(echo, path)
        assert pathlib.Path(path).read_text() == "precious"

    run(main())


@cleans_up
def test_a_closed_server_removes_its_socket(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        await ended(await asyncio.start_unix_server(echo, path))
        assert not pathlib.Path(path).exists()
        server = await asyncio.start_unix_server(echo, path, cleanup_socket=False)
        await ended(server)
        assert pathlib.Path(path).exists()
        await ended(await asyncio.start_unix_server(echo, path))
        assert not pathlib.Path(path).exists()

    run(main())


@cleans_up
@pytest.mark.one_thread("changes os for all threads")
def test_server_calls_pass_detectors_of_blocking_calls(
    loop: Loop, run: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detectors of blocking calls (blockbuster) know asyncio's own by file and function."""
    known = {("unix_events.py", "create_unix_server"), ("unix_events.py", "_stop_serving")}

    def watched(name: str) -> Any:
        function = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            code = sys._getframe(1).f_code
            if args and args[0] in {path, os.fsencode(path)}:
                assert (os.path.basename(code.co_filename), code.co_name) in known, name
            return function(*args, **kwargs)

        return call

    async def main() -> None:
        server = await asyncio.start_unix_server(echo, path)
        assert await ask(path) == b"question\n"
        await ended(server)

    for name in ("stat", "unlink", "remove"):
        monkeypatch.setattr(os, name, watched(name))
    run(main())
    monkeypatch.undo()
    assert not os.path.lexists(path)


@cleans_up
def test_closed_server_leaves_a_replaced_path(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        server = await asyncio.start_unix_server(echo, path)
        pathlib.Path(path).unlink()
        await ended(server)
        server = await asyncio.start_unix_server(echo, path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path + "-other")
            pathlib.Path(path + "-other").replace(path)
            await ended(server)
            assert pathlib.Path(path).exists()

    run(main())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="CPython 3.13 removes the socket")
def test_before_313_the_socket_stays(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        await ended(await asyncio.start_unix_server(echo, path))
        assert pathlib.Path(path).exists()

    run(main())


def test_refused_connect_leaks_nothing(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await loop.create_unix_connection(asyncio.Protocol, path)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path)
            with pytest.raises(ConnectionRefusedError):
                await loop.create_unix_connection(asyncio.Protocol, path)

    run(main())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no path and sock were specified"),
        ({"path": "x", "sock": 1}, "path and sock can not be specified at the same time"),
        ({"path": "x", "server_hostname": "x"}, "server_hostname is only meaningful with ssl"),
        ({"path": "x", "ssl": True}, "you have to pass server_hostname when using ssl"),
        (
            {"path": "x", "ssl_handshake_timeout": 1},
            "ssl_handshake_timeout is only meaningful with ssl",
        ),
        (
            {"path": "x", "ssl_shutdown_timeout": 1},
            "ssl_shutdown_timeout is only meaningful with ssl",
        ),
    ],
)
def test_wrong_arguments_are_refused(loop: Loop, run: Any, arguments: Any, message: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=message):
            await loop.create_unix_connection(asyncio.Protocol, **arguments)

    run(main())


def test_sockets_of_another_kind_are_refused(loop: Loop, run: Any) -> None:
    async def main() -> None:
        for family, kind in (
            (socket.AF_INET, socket.SOCK_STREAM),
            (socket.AF_UNIX, socket.SOCK_DGRAM),
        ):
            with socket.socket(family, kind) as sock:
                with pytest.raises(ValueError, match="A UNIX Domain Stream Socket was expected"):
                    await loop.create_unix_connection(asyncio.Protocol, sock=sock)
                with pytest.raises(ValueError, match="A UNIX Domain Stream Socket was expected"):
                    await loop.create_unix_server(asyncio.Protocol, sock=sock)

    run(main())


def test_an_accepted_socket_becomes_a_transport(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                accepted, _ = listening.accept()
                transport, protocol = await loop.connect_accepted_socket(Recorder, accepted)
                assert transport.get_extra_info("sockname") == path
                client.send(b"hello")
                await support.wait_until(lambda: protocol.data == b"hello", "the bytes")
                transport.write(b"answer")
                client.setblocking(False)
                assert await support.within(loop.sock_recv(client, 10)) == b"answer"
            await protocol.until_lost()

    run(main())


def test_many_connections_come_and_go(loop: Loop, run: Any, path: str) -> None:
    async def main() -> None:
        server = await asyncio.start_unix_server(echo, path)
        answers = await asyncio.gather(*(ask(path) for _ in range(100)))
        assert answers == [b"question\n"] * 100
        await ended(server)

    run(main())


@pytest.mark.parametrize("received", [0, 1000])
def test_peer_that_closes_with_unread_data_is_a_reset(loop: Loop, run: Any, received: int) -> None:
    """To a writer that waits for it, too, though its own call gets only EPIPE."""

    async def main() -> None:
        left, right = socket.socketpair()
        protocol = Recorder()
        transport, _ = await loop.create_unix_connection(lambda: protocol, sock=left)
        with right:
            transport.write(b"x" * (4 << 20))
            await support.wait_until(lambda: "pause_writing" in protocol.events, "a pause")
            if received:
                right.recv(received)
                await asyncio.sleep(0)
        await protocol.until_lost()
        assert isinstance(protocol.reason, ConnectionResetError)

    run(main())
