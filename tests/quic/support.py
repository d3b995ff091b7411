"""What the QUIC tests share: two endpoints without I/O and the network between them, certificates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringloop._native import quic as native

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.tls import Certificates

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
    """A client and a server without I/O, and a clock that only the test moves."""

    client: native.Endpoint
    server: native.Endpoint
    now: float = 100.0
    # What becomes of each datagram: (datagram, is from the client) -> those that arrive.
    network: Callable[[bytes, bool], list[bytes]] = lambda datagram, _from_client: [datagram]
    accepted: list[native.Connection] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    @classmethod
    def make(
        cls, certificates: Certificates, server: dict[str, Any] | None = None, **endpoint: Any
    ) -> Pair:
        config = server_config(certificates, **(server or {}))
        return cls(
            client=native.Endpoint(events=True),
            server=native.Endpoint(events=True, server=config, **endpoint),
        )

    def connect(self, config: native.ClientConfig) -> native.Connection:
        key = self.client.connect(config, SERVER, "localhost", self.now)
        return native.Connection(self.client, key)

    def exchange(self) -> None:
        """Carry what both have to send, until neither has."""
        moved = True
        while moved:
            moved = False
            for datagram, address in self.client.datagrams_to_send(self.now):
                assert address == SERVER
                moved = True
                for arriving in self.network(datagram, True):
                    self.server.receive_datagram(arriving, CLIENT, self.now)
            for datagram, address in self.server.datagrams_to_send(self.now):
                assert address == CLIENT
                moved = True
                for arriving in self.network(datagram, False):
                    self.client.receive_datagram(arriving, SERVER, self.now)
            self._news()

    def _news(self) -> None:
        if news := self.server.take():
            self.accepted += [native.Connection(self.server, key) for key in news[0]]
            self.gone += news[2]
        if news := self.client.take():
            self.gone += news[2]

    def run_until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Move the clock from deadline to deadline until `condition()` is true."""
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
