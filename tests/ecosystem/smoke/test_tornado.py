"""tornado: `IOLoop` wraps our loop, its streams watch raw descriptors with `add_reader`."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import tornado.httpclient
import tornado.httpserver
import tornado.ioloop
import tornado.iostream
import tornado.netutil
import tornado.platform.asyncio
import tornado.tcpserver
import tornado.web
import tornado.websocket

from tests.ecosystem.smoke.services import describe_loop
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.ecosystem.smoke.conftest import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


BINARY = {"Content-Type": "application/octet-stream"}


class Hello(tornado.web.RequestHandler):
    async def get(self) -> None:
        await asyncio.sleep(0)
        self.write({"loop": describe_loop(asyncio.get_running_loop())})

    async def post(self) -> None:
        self.write(self.request.body)


@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    def prepare(self) -> None:
        self.request.connection.set_max_body_size(64 << 20)  # type: ignore[union-attr]
        self.size = 0

    def data_received(self, chunk: bytes) -> None:
        self.size += len(chunk)

    def put(self) -> None:
        self.write(str(self.size))


class Echo(tornado.websocket.WebSocketHandler):
    async def on_message(self, message: str | bytes) -> None:
        await self.write_message(message, binary=isinstance(message, bytes))


def serve(**options: Any) -> tuple[tornado.httpserver.HTTPServer, int]:
    routes = [("/", Hello), ("/upload", Upload), ("/echo", Echo)]
    server = tornado.httpserver.HTTPServer(
        tornado.web.Application(routes),
        **options,  # type: ignore[arg-type]
    )
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    return server, sockets[0].getsockname()[1]


async def stop(server: tornado.httpserver.HTTPServer) -> None:
    server.stop()
    await within(server.close_all_connections())


def test_io_loop_is_the_loop_under_test(run: Run, loop_name: str) -> None:
    async def main() -> None:
        current = tornado.ioloop.IOLoop.current()
        assert current.asyncio_loop is asyncio.get_running_loop()  # type: ignore[attr-defined]
        called = asyncio.Event()
        current.call_later(0.01, called.set)
        await within(called.wait())
        assert await current.run_in_executor(None, sum, range(10)) == 45

    run(main())


def test_http_server_and_client(run: Run, loop_name: str) -> None:
    async def main() -> None:
        server, port = serve()
        client = tornado.httpclient.AsyncHTTPClient(max_clients=20)
        root = f"http://127.0.0.1:{port}"
        answers = await asyncio.gather(*(client.fetch(root) for _ in range(200)))
        assert {answer.body for answer in answers} == {b'{"loop": "%s"}' % loop_name.encode()}
        body = bytes(range(256)) * 4096
        echo = await client.fetch(root, method="POST", body=body, headers=BINARY)
        assert echo.body == body
        upload = await client.fetch(root + "/upload", method="PUT", body=body * 16)
        assert int(upload.body) == len(body) * 16
        client.close()
        await stop(server)

    run(main())


def test_https(run: Run, loop_name: str, certificates: Certificates) -> None:
    async def main() -> None:
        server, port = serve(ssl_options=certificates.server())
        client = tornado.httpclient.AsyncHTTPClient(force_instance=True)
        body = bytes(range(256)) * 4096
        request: dict[str, Any] = {"ssl_options": certificates.client(), "headers": BINARY}
        answer = await client.fetch(
            f"https://localhost:{port}/", method="POST", body=body, **request
        )
        assert answer.body == body
        client.close()
        await stop(server)

    run(main())


def test_websocket(run: Run) -> None:
    async def main() -> None:
        server, port = serve()
        socket_ = await tornado.websocket.websocket_connect(f"ws://127.0.0.1:{port}/echo")
        for size in (0, 1, 125, 126, 65_535, 65_536, 1 << 20):
            message = os.urandom(size)
            await socket_.write_message(message, binary=True)
            assert await within(socket_.read_message()) == message
        await socket_.write_message("words")
        assert await within(socket_.read_message()) == "words"
        socket_.close()
        assert await within(socket_.read_message()) is None
        await stop(server)

    run(main())


def test_add_handler_watches_a_descriptor(run: Run) -> None:
    async def main() -> None:
        loop = tornado.ioloop.IOLoop.current()
        near, far = socket.socketpair()
        near.setblocking(False)
        heard: list[bytes] = []
        ready: list[int] = []

        def on_event(connection: Any, events: int) -> None:
            if events & loop.READ:
                heard.append(connection.recv(10))
            if events & loop.WRITE:
                ready.append(events)
                loop.update_handler(near, loop.READ)

        with near, far:
            loop.add_handler(near, on_event, loop.READ | loop.WRITE)
            await wait_until(lambda: len(ready) == 1, "room to write")
            far.send(b"0123456789abcdefghij")
            await wait_until(lambda: len(heard) == 2, "both halves")
            assert heard == [b"0123456789", b"abcdefghij"]
            assert len(ready) == 1
            loop.remove_handler(near)
            far.send(b"x")
            await asyncio.sleep(0)
            assert len(heard) == 2

    run(main())


class Lines(tornado.tcpserver.TCPServer):
    async def handle_stream(self, stream: tornado.iostream.IOStream, address: Any) -> None:
        try:
            while True:
                await stream.write((await stream.read_until(b"\n")).upper())
        except tornado.iostream.StreamClosedError:
            stream.close()


def test_tcp_streams(run: Run) -> None:
    async def talk(port: int, number: int) -> None:
        stream = tornado.iostream.IOStream(socket.socket())
        await stream.connect(("127.0.0.1", port))
        for line in range(50):
            await stream.write(b"line %d of %d\n" % (line, number))
            answer = await stream.read_until(b"\n")
            assert answer == b"LINE %d OF %d\n" % (line, number)
        stream.close()

    async def main() -> None:
        server = Lines()
        sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        port = sockets[0].getsockname()[1]
        await within(asyncio.gather(*(talk(port, number) for number in range(40))), 30)
        server.stop()
        # The server's connections close when they read EOF.
        await wait_until(lambda: len(asyncio.all_tasks()) == 1, "the server's connections to end")

    run(main())
