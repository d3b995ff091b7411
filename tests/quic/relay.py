"""A small network in the test's process: UDP between two addresses, with faults on request.

The relay runs on the loop under test. A seeded generator decides the faults, so a failure can be
repeated with the seed that it prints.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from dataclasses import dataclass
from typing import Any


@dataclass
class Faults:
    """Shares of the datagrams, in both directions."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    corruption: float = 0.0
    # Nothing passes any more.
    blackhole: bool = False
    # Longer datagrams are dropped.
    longest: int = 65_535
    # Of each address of a client: the numbers of the datagrams that are dropped, from 0.
    lost_from_client: range = range(0)


class Relay:
    """Passes datagrams between one server and clients, each on its own socket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Any, faults: Faults, seed: int
    ) -> None:
        self.faults = faults
        self.seed = seed
        self.dropped = 0
        self._rng = random.Random(seed)
        self._loop = loop
        self._server = server
        self._front = self._socket()
        self._back: dict[Any, socket.socket] = {}
        self._counts: dict[Any, int] = {}
        self._held: list[tuple[socket.socket, bytes, Any]] = []
        loop.add_reader(self._front.fileno(), self._from_clients)

    @property
    def address(self) -> Any:
        return self._front.getsockname()

    def rebind(self) -> None:
        """Give every client another address, as a restarted NAT does."""
        for client, old in list(self._back.items()):
            self._loop.remove_reader(old.fileno())
            old.close()
            self._back[client] = self._to_server(client)

    def close(self) -> None:
        for sock in [self._front, *self._back.values()]:
            self._loop.remove_reader(sock.fileno())
            sock.close()

    def _socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        return sock

    def _to_server(self, client: Any) -> socket.socket:
        sock = self._socket()
        self._loop.add_reader(sock.fileno(), self._from_server, sock, client)
        return sock

    def _from_clients(self) -> None:
        for data, client in _received(self._front):
            if client not in self._back:
                self._back[client] = self._to_server(client)
            number = self._counts.get(client, 0)
            self._counts[client] = number + 1
            if number in self.faults.lost_from_client:
                self.dropped += 1
            else:
                self._pass(self._back[client], data, self._server)

    def _from_server(self, sock: socket.socket, client: Any) -> None:
        for data, _ in _received(sock):
            self._pass(self._front, data, client)

    def _pass(self, sock: socket.socket, data: bytes, to: Any) -> None:
        faults, chance = self.faults, self._rng.random
        if faults.blackhole or len(data) > faults.longest or chance() < faults.loss:
            self.dropped += 1
            return
        if chance() < faults.corruption:
            at = self._rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        if chance() < faults.reordering:
            self._held.append((sock, data, to))
            return
        self._send(sock, data, to)
        if chance() < faults.duplication:
            self._send(sock, data, to)
        held, self._held = self._held, []
        for late in held:
            self._send(*late)

    def _send(self, sock: socket.socket, data: bytes, to: Any) -> None:
        try:
            sock.sendto(data, to)
        except OSError:
            self.dropped += 1


def _received(sock: socket.socket) -> list[tuple[bytes, Any]]:
    """Receive what has arrived, up to a limit, so that others get their turn."""
    datagrams = []
    for _ in range(64):
        try:
            datagrams.append(sock.recvfrom(65_535))
        except BlockingIOError:
            break
        except OSError:
            continue  # an ICMP error of an earlier send
    return datagrams


def main(host: str, port: str, loss: str, seed: str) -> None:
    """Relay in a process of its own until EOF on standard input; print the port."""
    loop = asyncio.new_event_loop()
    relay = Relay(loop, (host, int(port)), Faults(loss=float(loss)), int(seed))
    sys.stdout.write(f"{relay.address[1]}\n")
    sys.stdout.flush()
    loop.add_reader(sys.stdin.fileno(), loop.stop)
    loop.run_forever()
    relay.close()
    loop.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
