"""Two connections with `ringloop.quic.h3`, for its tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringloop.quic.events import ConnectionTerminated
from ringloop.quic.h3.connection import (
    H3Connection,
)
from ringloop.quic.h3.events import (
    DataReceived,
    H3Event,
    Headers,
    HeadersReceived,
)
from tests.quic.test_shape_connection import Ends, connected

if TYPE_CHECKING:
    from tests.support.tls import Certificates

GET: Headers = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/"),
]
POST: Headers = [(b":method", b"POST"), *GET[1:]]
CONNECT: Headers = [(b":method", b"CONNECT"), *GET[1:], (b":protocol", b"webtransport")]
OK: Headers = [(b":status", b"200")]


@dataclass
class Pair:
    """HTTP/3 on both ends; an end without is a peer that sends bytes of its own."""

    ends: Ends
    client: H3Connection | None
    server: H3Connection | None
    to_client: list[H3Event] = field(default_factory=list)
    to_server: list[H3Event] = field(default_factory=list)
    handled: list[int] = field(default_factory=lambda: [0, 0])

    def exchange(self) -> None:
        """Deliver everything, and hand all events to HTTP/3."""
        new = 1
        while new:
            self.ends.exchange()
            new = self.handle(at_server=True) + self.handle(at_server=False)

    def handle(self, *, at_server: bool) -> int:
        """Hand the new events of an end to its HTTP/3; their number."""
        http, told = (self.server, self.to_server) if at_server else (self.client, self.to_client)
        new = (self.ends.up if at_server else self.ends.down)[self.handled[at_server] :]
        self.handled[at_server] += len(new)
        for event in new:
            told += [] if http is None else http.handle_event(event)
        return len(new)

    def take(self, *, at_server: bool) -> list[H3Event]:
        """Deliver everything; what an end was told since the last time."""
        self.exchange()
        told = self.to_server if at_server else self.to_client
        taken = told[:]
        told.clear()
        return taken

    def request(self, headers: Headers = GET, *, end_stream: bool = True) -> int:
        """Send a request, which the server has then; its stream."""
        assert self.client is not None
        stream_id = self.ends.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, headers, end_stream)
        assert self.take(at_server=True) == [HeadersReceived(headers, stream_id, end_stream)]
        return stream_id

    def end(self, *, at_server: bool) -> tuple[int, str] | None:
        """How the connection has ended, as an end sees it."""
        self.exchange()
        ended = self.ends.all(ConnectionTerminated, at_server=at_server)
        return (ended[0].error_code, ended[0].reason_phrase) if ended else None


def pair(
    certificates: Certificates, *, webtransport: bool = False, raw: str = "", **fields: Any
) -> Pair:
    ends = connected(certificates, **fields)
    made = Pair(
        ends,
        None if raw == "client" else H3Connection(ends.client, webtransport),
        None if raw == "server" else H3Connection(ends.server, webtransport),
    )
    made.exchange()
    return made


def body(events: list[H3Event]) -> bytes:
    """The joined data of events, of which the last ends the message."""
    assert [getattr(event, "stream_ended", None) for event in events[:-1]] == [False] * (
        len(events) - 1
    )
    assert isinstance(events[-1], DataReceived)
    assert events[-1].stream_ended
    return b"".join(event.data for event in events if isinstance(event, DataReceived))
