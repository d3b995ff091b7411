"""Random sequences on a server and its clients: asyncio and ours call the protocols alike.

Connections are opened and cancelled, clients connect with plain sockets, the server is closed and
awaited, and its clients are closed or aborted.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import differential
from tests.support.tcp import Echo, Peer, Recorder, exceptions_of, pattern

if TYPE_CHECKING:
    from tests.support import LoopFactory
    from tests.support.differential import Step

STEPS = 16
WEIGHTS = {
    "client comes": 8,
    "client sends": 6,
    "client ends": 2,
    "client goes": 3,
    "client resets": 1,
    "server closes one": 2,
    "server aborts one": 1,
    "connect": 5,
    "connect, cancelled": 4,
    "connect, refused": 1,
    "connection writes": 5,
    "connection closes": 2,
    "connection aborts": 1,
    "stop serving": 1,
    "wait closed": 2,
    "serve forever": 1,
    "cancel waiting": 1,
    "close clients": 1,
    "abort clients": 1,
}


class Play(differential.Play):
    """One sequence on one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.notes: list[str] = []
        self.served: list[Recorder] = []
        self.connections: list[tuple[Any, Recorder]] = []
        self.clients: list[Peer] = []
        self.waiting: list[asyncio.Task[Any]] = []
        self.server: Any = None
        self.address: Any = None
        # A random loopback address: other programs that ask for a port get it on another one, also
        # after this server has closed.
        self.host = ".".join(map(str, (127, *(random.randrange(1, 255) for _ in range(3)))))
        # Bound and not listening: connections to it are refused, and its port stays reserved.
        self.refusing = socket.socket()
        self.refusing.bind((self.host, 0))

    def named(self, kind: type[Recorder], name: str) -> Recorder:
        """Create a protocol whose callbacks are recorded here."""
        protocol = kind()
        protocol.note = lambda event: (  # type: ignore[method-assign]
            protocol.events.append(event),
            self.notes.append(f"{name}: {event}"),
        )[0]
        return protocol

    def accept(self) -> Recorder:
        self.served.append(self.named(Echo, f"served {len(self.served)}"))
        return self.served[-1]

    async def play(self, steps: list[Step]) -> list[Any]:
        self.server = await self.loop.create_server(self.accept, self.host, 0)
        self.address = self.server.sockets[0].getsockname()
        trace = []
        for step in steps:
            before = len(self.notes)
            try:
                await self.act(*step)
            except (OSError, RuntimeError) as error:
                self.notes.append(type(error).__name__)
            await self.settle()
            waits = [self.outcome(task) for task in self.waiting]
            got = [bytes(client.received() or b"") for client in self.open_clients()]
            # Two sockets ready at the same time are seen in the kernel's order.
            trace.append((step, sorted(self.notes[before:]), waits, got, self.server.is_serving()))
        return trace

    async def act(self, name: str, number: int) -> None:
        who, _, what = name.partition(" ")
        if who == "client":
            self.act_as_client(what, number)
        elif who in ("connect", "connect,"):
            await self.connect(what)
        elif who == "connection":
            self.act_on_connection(what, number)
        elif who == "server":
            transports = [p.transport for p in self.served if not p.is_lost]
            if transports:
                transport = transports[number % len(transports)]
                transport.close() if what == "closes one" else transport.abort()
        else:
            self.act_on_server(name)

    def act_as_client(self, what: str, number: int) -> None:
        if what == "comes":
            sock = socket.socket()
            self.clients.append(Peer(sock))
            sock.setblocking(True)
            try:
                sock.connect(self.address)
            except OSError:
                sock.close()
                raise
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return
        clients = self.open_clients()
        if not clients:
            return
        client = clients[number % len(clients)]
        match what:
            case "sends":
                client.sock.sendall(pattern(number, number))
            case "ends":
                client.shut_down()
            case "goes":
                client.close()
            case "resets":
                client.reset()

    async def connect(self, what: str) -> None:
        address = self.refusing.getsockname() if what == "refused" else self.address
        name = f"connection {len(self.connections)}"
        connecting = asyncio.ensure_future(
            self.loop.create_connection(lambda: self.named(Recorder, name), *address)
        )
        if what == "cancelled":
            await asyncio.sleep(0)
            connecting.cancel()
        await asyncio.wait([connecting])
        self.notes.append(f"{name}: {self.outcome(connecting)}")
        if self.outcome(connecting) == "done":
            self.connections.append(connecting.result())

    def act_on_connection(self, what: str, number: int) -> None:
        usable = [pair for pair in self.connections if not pair[1].is_lost]
        if not usable:
            return
        transport, _ = usable[number % len(usable)]
        match what:
            case "writes":
                transport.write(pattern(number, number))
            case "closes":
                transport.close()
            case "aborts":
                transport.abort()

    def act_on_server(self, name: str) -> None:
        match name:
            case "stop serving":
                self.server.close()
            case "wait closed":
                self.waiting.append(self.loop.create_task(self.server.wait_closed()))
            case "serve forever" if self.server.is_serving():
                self.waiting.append(self.loop.create_task(self.server.serve_forever()))
            case "cancel waiting" if self.waiting:
                self.waiting[-1].cancel()
            case "close clients" | "abort clients" if sys.version_info >= (3, 13):
                getattr(self.server, name.replace(" ", "_"))()

    def open_clients(self) -> list[Peer]:
        return [client for client in self.clients if client.sock.fileno() != -1]

    @staticmethod
    def outcome(task: asyncio.Task[Any]) -> str:
        if not task.done():
            return "waiting"
        if task.cancelled():
            return "cancelled"
        error = task.exception()
        return "done" if error is None else type(error).__name__

    def progress(self) -> tuple[object, ...]:
        protocols = [*self.served, *(protocol for _, protocol in self.connections)]
        done = sum(task.done() for task in self.waiting)
        return (len(self.notes), done, sum(len(protocol.data) for protocol in protocols))

    async def end(self) -> None:
        """Close everything, and wait for it."""
        self.refusing.close()
        self.server.close()
        for client in self.clients:
            client.close()
        for transport, _ in self.connections:
            transport.abort()
        for task in self.waiting:
            task.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)
        everyone = [*self.served, *(protocol for _, protocol in self.connections)]
        await support.wait_until(lambda: all(p.is_lost for p in everyone), "the end of all")
        await self.settle()


def sequence(seed: int) -> list[Step]:
    chance = random.Random(seed)
    return differential.sized(chance, differential.draw(chance, WEIGHTS, STEPS), 12)


def play(factory: LoopFactory, seed: int) -> list[Any]:
    async def main(loop: asyncio.AbstractEventLoop) -> list[Any]:
        played = Play(loop)
        with exceptions_of(loop) as contexts:
            try:
                trace = await played.play(sequence(seed))
            finally:
                await played.end()
        return [*trace, [c["message"] for c in contexts]]

    return differential.run(factory, main)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_callbacks_of_a_server_are_those_of_asyncio(driver: str, leak_check: None) -> None:
    differential.compare(driver, play, sequence)
