"""The hot paths whose instructions are counted: `paths.py DRIVER [NAME...]`, under callgrind.

Called by: `hot_paths.py`. A path is a context manager that sets up on a loop and yields a function
which does a number of operations. Each runs four times: to warm up, then between marks (see
`mark`) for `OPERATIONS`, for three times as many, and at its end. Writes the names of what ran.
"""

import asyncio
import contextlib
import gc
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "workloads"))

from support import certificate

Loop = asyncio.AbstractEventLoop
Run = Callable[[int], None]
Path_ = Callable[[Loop], contextlib.AbstractContextManager[Run]]

OPERATIONS = 400
MESSAGE = b"x" * 512


def mark() -> None:
    """Call a function of libc that nothing else calls: callgrind writes its counters before it."""
    os.ctermid()


def nothing() -> None:
    """Be a callback."""


def simple(run: Callable[[Loop, int], None]) -> Path_:
    """Make a path of a function that needs no set-up."""

    @contextlib.contextmanager
    def path(loop: Loop) -> Iterator[Run]:
        yield lambda count: run(loop, count)

    return path


def awaited(main: Callable[[int], Coroutine[Any, Any, None]]) -> Path_:
    """Make a path of a coroutine function that needs no set-up."""
    return simple(lambda loop, count: loop.run_until_complete(main(count)))


def call_soon(loop: Loop, count: int) -> None:
    """Schedule a batch, then run it."""
    for _ in range(count):
        loop.call_soon(nothing)
    loop.call_soon(loop.stop)
    loop.run_forever()


def chain(loop: Loop, count: int) -> None:
    """Let each callback schedule the next."""

    def link(left: int) -> None:
        if left:
            loop.call_soon(link, left - 1)
        else:
            loop.stop()

    loop.call_soon(link, count)
    loop.run_forever()


async def tasks(count: int) -> None:
    """Gather tasks that are suspended once."""
    await asyncio.gather(*(asyncio.sleep(0) for _ in range(count)))


async def sleep_zero(count: int) -> None:
    """Yield again and again."""
    for _ in range(count):
        await asyncio.sleep(0)


def timer_cancelled(loop: Loop, count: int) -> None:
    """Set timers, and cancel them."""
    for timer in [loop.call_later(30.0 + number, nothing) for number in range(count)]:
        timer.cancel()


def timer_fired(loop: Loop, count: int) -> None:
    """Set timers that are due a microsecond later, and run them."""
    for _ in range(count):
        loop.call_later(1e-6, nothing)
    loop.call_later(1e-4, loop.stop)
    loop.run_forever()


def threadsafe(loop: Loop, count: int) -> None:
    """Call from another thread, which has the interpreter to itself meanwhile."""

    def caller() -> None:
        for _ in range(count):
            loop.call_soon_threadsafe(nothing)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=caller)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()


async def future_callback(count: int) -> None:
    """Await futures that another callback completes."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


async def queue(count: int) -> None:
    """Put items into a queue from which another task takes them."""
    items: asyncio.Queue[int] = asyncio.Queue(1)

    async def consumer() -> None:
        for _ in range(count):
            await items.get()

    consuming = asyncio.ensure_future(consumer())
    for number in range(count):
        await items.put(number)
    await consuming


async def executor(count: int) -> None:
    """Await calls in a thread, one after the other."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        await loop.run_in_executor(None, nothing)


class Echo(asyncio.Protocol):
    """Send back what arrives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.write(data)


class Asking(asyncio.Protocol):
    """Send a message whenever one has come back."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.left = self.missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing:
            return
        self.left -= 1
        if self.left:
            self.ask()
        else:
            self.loop.stop()

    def ask(self) -> None:
        """Send one message."""
        self.missing = len(MESSAGE)
        self.write(MESSAGE)

    def run(self, count: int) -> None:
        """Make a number of exchanges."""
        self.left = count
        self.loop.call_soon(self.ask)
        self.loop.run_forever()


@contextlib.contextmanager
def protocol_echo(loop: Loop) -> Iterator[Run]:
    """Exchange messages between two protocols."""
    pair = socket.socketpair()
    ends: list[asyncio.Transport] = []
    asking = Asking(loop)
    for end, protocol in zip(pair, (asking, Echo()), strict=True):
        made = loop.connect_accepted_socket(lambda it=protocol: it, end)  # type: ignore[misc]
        ends.append(loop.run_until_complete(made)[0])
    yield asking.run
    closed(loop, ends)


@contextlib.contextmanager
def tls_echo(loop: Loop) -> Iterator[Run]:
    """Exchange messages between two protocols over TLS."""
    import ssl

    asking = Asking(loop)
    with certificate.made() as authority:
        serving = certificate.server_context()
        trusting = ssl.create_default_context(cafile=authority)

    async def connect() -> list[Any]:
        server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_connection(
            lambda: asking, "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
        )
        server.close()
        return [transport]

    ends = loop.run_until_complete(connect())
    yield asking.run
    closed(loop, ends)


def streams_echo(loop: Loop, classes: Any = asyncio) -> Iterator[Run]:
    """Exchange messages between two tasks by streams of these classes."""
    pair = socket.socketpair()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def opened(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = classes.StreamReader()
        protocol = classes.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, end)
        return reader, classes.StreamWriter(transport, protocol, reader, loop)

    reader, writer = loop.run_until_complete(opened(pair[0]))
    echoing = loop.create_task(echo(*loop.run_until_complete(opened(pair[1]))))

    async def ask(count: int) -> None:
        for _ in range(count):
            writer.write(MESSAGE)
            await writer.drain()
            await reader.readexactly(len(MESSAGE))

    yield lambda count: loop.run_until_complete(ask(count))
    writer.close()
    loop.run_until_complete(echoing)


def fast_streams_echo(loop: Loop) -> Iterator[Run]:
    """Exchange messages between two tasks by native streams."""
    from ringloop import _native

    return streams_echo(loop, _native)


@contextlib.contextmanager
def sock_echo(loop: Loop) -> Iterator[Run]:
    """Exchange messages between two tasks by sockets."""
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)

    async def echo() -> None:
        while data := await loop.sock_recv(pair[1], 65536):
            await loop.sock_sendall(pair[1], data)

    echoing = loop.create_task(echo())

    async def ask(count: int) -> None:
        for _ in range(count):
            await loop.sock_sendall(pair[0], MESSAGE)
            await loop.sock_recv(pair[0], 65536)

    yield lambda count: loop.run_until_complete(ask(count))
    pair[0].close()
    loop.run_until_complete(echoing)
    pair[1].close()


@contextlib.contextmanager
def datagram_echo(loop: Loop) -> Iterator[Run]:
    """Exchange datagrams between two protocols."""

    class Answering(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.sendto = transport.sendto  # type: ignore[attr-defined]

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.sendto(data, address)

    class Client(Answering):
        left = 0

        def datagram_received(self, data: bytes, _: Any) -> None:
            self.left -= 1
            if self.left:
                self.sendto(data)
            else:
                loop.stop()

    served, _ = loop.run_until_complete(
        loop.create_datagram_endpoint(Answering, local_addr=("127.0.0.1", 0))
    )
    address = served.get_extra_info("sockname")
    connected, client = loop.run_until_complete(
        loop.create_datagram_endpoint(Client, remote_addr=address)
    )

    def run(count: int) -> None:
        client.left = count
        loop.call_soon(client.sendto, MESSAGE)
        loop.run_forever()

    yield run
    closed(loop, [served, connected])


@contextlib.contextmanager
def accept_close(loop: Loop) -> Iterator[Run]:
    """Accept connections whose client closes them at once."""

    class Counting(asyncio.Protocol):
        left = 0

        def connection_lost(self, _: BaseException | None) -> None:
            Counting.left -= 1
            if not Counting.left:
                loop.stop()

    server = loop.run_until_complete(loop.create_server(Counting, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()

    def connect(left: int) -> None:
        socket.create_connection(address).close()
        if left > 1:
            loop.call_soon(connect, left - 1)

    def run(count: int) -> None:
        Counting.left = count
        loop.call_soon(connect, count)
        loop.run_forever()

    yield run
    server.close()
    loop.run_until_complete(server.wait_closed())


def closed(loop: Loop, transports: list[Any]) -> None:
    """Close the transports and let the loop see it."""
    for transport in transports:
        transport.close()
    loop.run_until_complete(asyncio.sleep(0.01))


PATHS: dict[str, Path_] = {
    "call_soon": simple(call_soon),
    "chain": simple(chain),
    "task": awaited(tasks),
    "sleep(0)": awaited(sleep_zero),
    "timer set and cancelled": simple(timer_cancelled),
    "timer fired": simple(timer_fired),
    "call_soon_threadsafe": simple(threadsafe),
    "future awaited": awaited(future_callback),
    "queue put and get": awaited(queue),
    "run_in_executor": awaited(executor),
    "protocol echo": protocol_echo,
    "streams echo": contextlib.contextmanager(streams_echo),
    "fast streams echo": contextlib.contextmanager(fast_streams_echo),
    "sock_sendall and sock_recv": sock_echo,
    "datagram echo": datagram_echo,
    "TLS echo": tls_echo,
    "accept and close": accept_close,
}
# valgrind lets no other thread run while one waits in a ring, and what does no I/O costs the same there.
ON_THE_RING = (
    "protocol echo",
    "streams echo",
    "fast streams echo",
    "sock_sendall and sock_recv",
    "datagram echo",
)


def count(path: Path_, loop: Loop) -> None:
    """Run one path between marks."""
    with path(loop) as run:
        run(OPERATIONS)
        for operations in (OPERATIONS, 3 * OPERATIONS):
            mark()
            run(operations)
        mark()


def main() -> None:
    """Run the paths named on the command line, or all that the driver can."""
    from ringloop import new_event_loop

    driver, *names = sys.argv[1:]
    names = names or list(PATHS if driver == "epoll" else ON_THE_RING)
    # A thread gives the interpreter back when it waits or ends, not when some time has passed.
    sys.setswitchinterval(1000.0)
    gc.disable()
    loop = new_event_loop(driver=driver)
    for name in names:
        count(PATHS[name], loop)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    sys.stdout.write(json.dumps(names) + "\n")


if __name__ == "__main__":
    main()
