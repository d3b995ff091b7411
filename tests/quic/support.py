"""Shared by the QUIC tests: two endpoints without I/O and the network between them, certificates."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringloop import quic
from ringloop._native import quic as native
from tests.quic.relay import Faults, Relay
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.tls import Certificates

CLIENT, SERVER = ("192.0.2.1", 40000), ("192.0.2.2", 4433)


def server_config(certificates: Certificates, **keywords: Any) -> native.ServerConfig:
    certificate, key = certificates.issue()
    return native.ServerConfig(
        certificate=certificate, private_key=key, alpn=keywords.pop("alpn", ["test"]), **keywords
    )


def client_config(certificates: Certificates, **keywords: Any) -> native.ClientConfig:
    keywords.setdefault("ca_file", certificates.authority)
    return native.ClientConfig(alpn=keywords.pop("alpn", ["test"]), **keywords)


@dataclass
class Pair:
    """A client and a server without I/O, and a clock that only the test advances."""

    client: native.Endpoint
    server: native.Endpoint
    now: float = 100.0
    # The fate of each datagram: (datagram, is from the client) -> the datagrams that arrive.
    network: Callable[[bytes, bool], list[bytes]] = lambda datagram, _from_client: [datagram]
    accepted: list[native.EventConnection] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    # The server also sends to other peers, whose datagrams are ignored.
    has_strangers: bool = False

    @classmethod
    def make(
        cls, certificates: Certificates, server: dict[str, Any] | None = None, **endpoint: Any
    ) -> Pair:
        config = server_config(certificates, **(server or {}))
        return cls(
            client=native.Endpoint(events=True),
            server=native.Endpoint(events=True, server=config, **endpoint),
        )

    def connect(self, config: native.ClientConfig) -> native.EventConnection:
        key = self.client.connect(config, SERVER, "localhost", self.now)
        return native.EventConnection(self.client, key)

    def exchange(self) -> None:
        """Deliver what both have to send, until neither has anything."""
        moved = True
        while moved:
            moved = False
            for datagram, address in self.client.datagrams_to_send(self.now):
                assert address == SERVER
                moved = True
                for arriving in self.network(datagram, True):
                    self.server.receive_datagram(arriving, CLIENT, self.now)
            for datagram, address in self.server.datagrams_to_send(self.now):
                assert address == CLIENT or self.has_strangers
                moved = True
                if address != CLIENT:
                    continue
                for arriving in self.network(datagram, False):
                    self.client.receive_datagram(arriving, SERVER, self.now)
            self._news()

    def _news(self) -> None:
        if news := self.server.take():
            self.accepted += [native.EventConnection(self.server, key) for key in news[0]]
            self.gone += news[2]
        if news := self.client.take():
            self.gone += news[2]

    def is_over(self) -> bool:
        """Tell whether both ends have dropped all connections."""
        return self.client.connection_count == self.server.connection_count == 0

    def run_until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Advance the clock from deadline to deadline until `condition()` is true."""
        end = self.now + seconds
        while True:
            self.exchange()
            if condition():
                return
            deadlines = (self.client.next_timeout(), self.server.next_timeout())
            left = [deadline for deadline in deadlines if deadline is not None]
            assert left, "nothing is waited for"
            self.now = max(self.now, *[min(left)])
            assert self.now < end, f"it did not happen within {seconds} s of the pair's clock"
            self.client.handle_timer(self.now)
            self.server.handle_timer(self.now)


@asynccontextmanager
async def served(certificates: Certificates, **keywords: Any) -> AsyncIterator[quic.Endpoint]:
    """Serve on the loop under test; the keywords include the handlers."""
    certificate, key = certificates.issue()
    keywords = {"certificate": certificate, "private_key": key, "alpn": ["test"], **keywords}
    if "configuration" in keywords:
        for name in ("certificate", "private_key", "alpn"):
            del keywords[name]
    keywords.setdefault("host", "127.0.0.1")
    endpoint = await quic.serve(**keywords)
    try:
        yield endpoint
    finally:
        endpoint.close()
        await within(endpoint.wait_closed())


@asynccontextmanager
async def both(
    certificates: Certificates,
    server: dict[str, Any] | None = None,
    address: Any = None,
    **client: Any,
) -> AsyncIterator[tuple[quic.Connection, quic.Connection]]:
    """Open both ends of a connection, and close them at the end."""
    async with served(certificates, **(server or {})) as endpoint:
        async with dialled(certificates, address or endpoint.address, **client) as connection:
            yield connection, await within(endpoint.accept())


def dialled(certificates: Certificates, address: Any, **keywords: Any) -> Any:
    if "configuration" not in keywords:
        keywords = {"ca_file": certificates.authority, "alpn": ["test"], **keywords}
    keywords.setdefault("server_name", "localhost")
    return quic.connect(*address[:2], **keywords)


async def echo(stream: quic.Stream) -> None:
    async for chunk in stream.chunks():
        await stream.send(chunk)


@asynccontextmanager
async def relayed(address: Any, seed: int = 1, **faults: Any) -> AsyncIterator[Relay]:
    relay = Relay(asyncio.get_running_loop(), address, Faults(**faults), seed)
    try:
        yield relay
    finally:
        relay.close()
