"""The relay between the two ends: it inspects the packets' first bytes and forwards them.

Owns: a socket for the client, one for the server, what was seen. Called by: `running`. Reads nothing
encrypted: the version and the type of a long header are in the clear (RFC 8999, RFC 9000 §17.2), which
is enough to tell, for any two implementations, the version and whether there was a Retry or early
data. On request it holds a server's answers back until a second client has sent early data, which a
busy client may otherwise do too late.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

VERSION_1, VERSION_2 = 0x00000001, 0x6B3343CF
# A client that has sent no early data for this long sends none.
HOLD_SECONDS_MAX = 1.0
# Two bits of the first byte, by version (RFC 9000 §17.2, RFC 9369 §3.2).
KINDS = {
    VERSION_1: ("initial", "0-rtt", "handshake", "retry"),
    VERSION_2: ("retry", "initial", "0-rtt", "handshake"),
}


@dataclass
class Seen:
    """What has passed."""

    # (by the client?, version, kind)
    headers: set[tuple[bool, int, str]] = field(default_factory=set)
    client_datagrams: int = 0
    server_datagrams_after_rebinding: int = 0
    is_rebound: bool = False

    def look(self, data: bytes, *, is_clients: bool) -> None:
        """Record the headers of a datagram's packets."""
        # Coalesced packets start with long ones; the ends of other types are not parsed: a client's
        # 0-RTT and Initial packets come in datagrams of their own as well.
        if len(data) < 5 or not data[0] & 0x80:
            return
        version = int.from_bytes(data[1:5])
        kinds = KINDS.get(version)
        kind = kinds[(data[0] >> 4) & 3] if kinds else "negotiation" if version == 0 else "unknown"
        self.headers.add((is_clients, version, kind))
        if kind == "initial" and kinds is not None:
            rest = behind_initial(data)
            if rest:
                self.look(rest, is_clients=is_clients)

    def has(self, kind: str, *, by_client: bool, version: int | None = None) -> bool:
        """Tell whether such a packet was seen."""
        return any(
            (by_client, kind) == (clients, seen) and version in (None, number)
            for clients, number, seen in self.headers
        )


def behind_initial(data: bytes) -> bytes:
    """What follows an Initial packet in its datagram; empty if the packet is truncated."""
    try:
        at = 5
        at += 1 + data[at]  # destination connection id
        at += 1 + data[at]  # source connection id
        token_len, at = take_varint(data, at)
        length, at = take_varint(data, at + token_len)
    except IndexError:
        return b""
    return data[at + length :]


def take_varint(data: bytes, at: int) -> tuple[int, int]:
    """Parse a variable-length integer; return it and its end (RFC 9000 §16)."""
    size = 1 << (data[at] >> 6)
    value = int.from_bytes(data[at : at + size]) & ((1 << (8 * size - 2)) - 1)
    return value, at + size


class Relay:
    """Forwards datagrams; after `rebind_after` of the client's, from another port.

    With `holds_answers` every client but the first hears nothing before its 0-RTT packet has passed.
    """

    def __init__(
        self, server_port: int, rebind_after: int | None = None, *, holds_answers: bool = False
    ) -> None:
        self.seen = Seen()
        self.server = ("127.0.0.1", server_port)
        self.rebind_after = rebind_after
        self.holds_answers = holds_answers
        self.clients: Any = None
        # One socket per client address: a case may have several clients.
        self.upstreams: dict[Any, Any] = {}
        self.transports: list[asyncio.DatagramTransport] = []

    async def __aenter__(self) -> int:
        loop = asyncio.get_running_loop()
        self.clients, _ = await loop.create_datagram_endpoint(
            lambda: Side(self.from_client), local_addr=("127.0.0.1", 0)
        )
        self.transports.append(self.clients)
        port: int = self.clients.get_extra_info("sockname")[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        for transport in self.transports:
            transport.close()
        await asyncio.sleep(0)

    def from_client(self, data: bytes, address: Any) -> None:
        """Forward; the first datagram of a client opens its socket."""
        self.seen.look(data, is_clients=True)
        self.seen.client_datagrams += 1
        upstream = self.upstreams.get(address)
        if self.seen.client_datagrams == self.rebind_after:
            self.seen.is_rebound = True
            upstream = None
        if upstream is None:
            holds_answers = self.holds_answers and bool(self.upstreams)
            upstream = self.upstreams[address] = Upstream(
                self, address, holds_answers=holds_answers
            )
        upstream.send(data)
        if self.seen.has("0-rtt", by_client=True):
            upstream.release()


class Upstream:
    """The socket through which the server sees a client's datagrams."""

    def __init__(self, relay: Relay, client: Any, *, holds_answers: bool) -> None:
        self.relay = relay
        self.client = client
        self.waiting: list[bytes] = []
        self.transport: Any = None
        self.is_new = relay.seen.is_rebound
        self.held: list[bytes] | None = [] if holds_answers else None
        if holds_answers:
            asyncio.get_running_loop().call_later(HOLD_SECONDS_MAX, self.release)
        self.opening = asyncio.ensure_future(self.open())

    async def open(self) -> None:
        """Open, and send what has arrived meanwhile."""
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(
            lambda: Side(self.from_server), remote_addr=self.relay.server
        )
        self.relay.transports.append(self.transport)
        for data in self.waiting:
            self.transport.sendto(data)

    def send(self, data: bytes) -> None:
        """Forward to the server."""
        if self.transport is None:
            self.waiting.append(data)
        else:
            self.transport.sendto(data)

    def from_server(self, data: bytes, _address: Any) -> None:
        """Forward to the client."""
        self.relay.seen.look(data, is_clients=False)
        self.relay.seen.server_datagrams_after_rebinding += self.is_new
        if self.held is None:
            self.relay.clients.sendto(data, self.client)
        else:
            self.held.append(data)

    def release(self) -> None:
        """Forward what was held back, and from now on everything at once."""
        held, self.held = self.held, None
        for data in held or ():
            self.relay.clients.sendto(data, self.client)


class Side(asyncio.DatagramProtocol):
    """Passes a socket's datagrams to a function."""

    def __init__(self, take: Any) -> None:
        self.take = take

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Take one."""
        self.take(data, addr)
