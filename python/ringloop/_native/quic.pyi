import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import Context
from os import PathLike
from typing import Any, Literal, Self, TypeAlias, final

from typing_extensions import disjoint_base

from ringloop.quic.errors import ConnectionClosed
from ringloop.quic.keywords import Address, CertificateSource, KeyLog, KeySource, Password

__all__ = [
    "ClientConfig",
    "Connection",
    "ConnectionIdIssued",
    "ConnectionIdRetired",
    "ConnectionTerminated",
    "DatagramFrameReceived",
    "Endpoint",
    "EventConnection",
    "Handshake",
    "HandshakeCompleted",
    "Memory",
    "PingAcknowledged",
    "ProtocolNegotiated",
    "QuicEvent",
    "Ready",
    "ServerConfig",
    "SessionTicket",
    "Stats",
    "StopSendingReceived",
    "Stream",
    "StreamDataReceived",
    "StreamReset",
    "Traces",
    "Waiter",
    "engine_versions",
    "explained",
    "sign_certificate",
    "steer",
]

_Data: TypeAlias = bytes | bytearray | memoryview

def engine_versions() -> str:
    """The names and versions of what the protocol and its cryptography are built on."""

def explained(code: int, said: str) -> str:
    """The name of a protocol error code, with its reason, or else with its meaning in a handshake."""

def steer(fd: int, count: int) -> None:
    """Make the kernel deliver each datagram to the worker that its connection id names. `count`
    sockets share the address by `SO_REUSEPORT`, in the order in which they were bound. One call
    sets all of them.
    """

def sign_certificate(
    names: Sequence[str], days: int, authority: tuple[str, str] | None = None
) -> tuple[str, str, str, str]:
    """Sign a certificate for DNS names and addresses, which the caller has validated.

    Shape: `authority` is an authority's certificate and key in PEM, made by an earlier call;
    without it a new one is made. Returns the authority's certificate and key, the certificate and
    its key.
    """

# Configurations.

@final
class ClientConfig:
    """A client's configuration."""
    def __new__(
        cls,
        *,
        alpn: Iterable[str | bytes] = (),
        verify: bool = True,
        ca_file: str | PathLike[str] | None = None,
        ca_path: str | PathLike[str] | None = None,
        ca_data: CertificateSource | None = None,
        system_roots: bool | None = None,
        certificate: CertificateSource | None = None,
        private_key: KeySource | None = None,
        password: Password | None = None,
        keylog: KeyLog | None = None,
        sessions: bool = True,
        token_store: str | PathLike[str] | None = None,
        early_data: bool = True,
        version: int = 1,
        idle_timeout: float | None = 30.0,
        handshake_timeout: float | None = 30.0,
        keep_alive: float | None = None,
        max_streams_bidi: int = 100,
        max_streams_uni: int = 100,
        max_data: int = 25165824,
        max_stream_data: int = 16777216,
        send_window: int = 16777216,
        congestion: Literal["cubic", "newreno", "reno", "bbr", "bbr1"] = "cubic",
        datagram_receive_buffer: int | None = 1048576,
        datagram_send_buffer: int = 262144,
        initial_mtu: int = 1200,
        mtu_max: int | None = 1452,
        initial_rtt: float = 0.333,
        ack_frequency: bool = False,
        reset_stream_at: bool = False,
        max_data_grown: int = 67108864,
        send_window_min: int = 1048576,
        qlog: str | PathLike[str] | Traces | None = None,
    ) -> Self: ...
    def _with_memory(self, memory: Memory, destination_id: bytes | None = None) -> Self:
        """A copy for one connection: sessions and address tokens are kept in `memory`, and the
        first packets are addressed to `destination_id`.
        """

@final
class SessionTicket:
    """A session to resume: a `session_ticket_handler` receives it, and `session_ticket` takes it.

    Valid in this process and for one connection (RFC 8446 §C.4 advises against using one twice):
    further connections do a full handshake, and get new tickets.
    """
    @property
    def server_name(self) -> str:
        """The name of the server that issued it."""
    @property
    def cipher_suite(self) -> int:
        """The number of its cipher suite."""
    @property
    def max_early_data_size(self) -> int:
        """Bytes of early data that the server accepts: 0, or RFC 9001's 2^32 - 1."""
    @property
    def received_at(self) -> float:
        """When it was received, in seconds of `time.time()`."""
    @property
    def is_valid(self) -> bool:
        """Whether it is unused, and less than a week old."""

@final
class Ready(Coroutine[Any, Any, None]):
    """A coroutine (`collections.abc.Coroutine`) that ends at its first step, with None."""
    def __await__(self) -> Generator[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> None: ...
    def send(self, value: Any, /) -> None:
        """As `__next__`."""
    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> None:
        """Raise the exception: a completed awaitable cannot handle it."""
    def close(self) -> None:
        """Do nothing: it is complete."""

@final
class Waiter(Awaitable[None]):
    """A future of the loop that drives an endpoint; its result is None."""
    def __await__(self) -> Generator[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Waiter: ...
    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""
    def done(self) -> bool:
        """Whether there is a result, or it was cancelled."""
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
    def result(self) -> None:
        """None once it is done; else an error."""
    def exception(self) -> None:
        """None once it is done; else an error."""
    def cancel(self, msg: Any = None) -> bool:
        """Cancel it; False if it is already done."""
    def add_done_callback(
        self, callback: Callable[[Waiter], object], /, *, context: Context | None = None
    ) -> None:
        """Schedule `callback(self)` in the loop, in a context, when it is done."""
    def remove_done_callback(self, callback: Callable[[Waiter], object]) -> int:
        """Remove a callback; return how many times it was registered."""

@final
class Memory:
    """The store of sessions and tokens for one or more connections of a client.

    `ticket`, `token`: those for the next connection. `keeps`: whether the next connections use new
    ones, too; otherwise `take_tickets` and `take_tokens` return them.
    """
    def __new__(
        cls,
        *,
        ticket: SessionTicket | None = None,
        token: bytes | None = None,
        keeps: bool = False,
    ) -> Self: ...
    def take_tickets(self) -> list[SessionTicket]:
        """Take the sessions received since the last call, the oldest first."""
    def take_tokens(self) -> list[bytes]:
        """Take the address tokens received since the last call, the oldest first."""

@final
class Traces:
    """Keeps the logs of connections until they are taken; their number and length are not limited."""
    def __new__(cls) -> Self: ...
    def read(self, original_id: bytes, is_client: bool) -> bytes:
        """The log so far of the connection with this original destination id; empty if there is
        none.
        """
    def forget(self, original_id: bytes, is_client: bool) -> None:
        """Drop that log."""

@final
class ServerConfig:
    """A server's configuration."""
    def __new__(
        cls,
        *,
        certificate: CertificateSource | None = None,
        private_key: KeySource | None = None,
        password: Password | None = None,
        sni: Mapping[str, tuple[CertificateSource, KeySource | None]] | None = None,
        alpn: Iterable[str | bytes] = (),
        client_auth: Literal["none", "optional", "required"] = "none",
        ca_file: str | PathLike[str] | None = None,
        ca_path: str | PathLike[str] | None = None,
        ca_data: CertificateSource | None = None,
        system_roots: bool | None = None,
        keylog: KeyLog | None = None,
        sessions: bool | str | PathLike[str] = True,
        early_data: bool = False,
        migration: bool = True,
        preferred_address: Address | Iterable[Address] = (),
        token_secret: bytes | None = None,
        retry_lifetime: float = 15.0,
        tokens: int = 2,
        incoming_max: int = 1024,
        idle_timeout: float | None = 30.0,
        handshake_timeout: float | None = 30.0,
        keep_alive: float | None = None,
        max_streams_bidi: int = 100,
        max_streams_uni: int = 100,
        max_data: int = 25165824,
        max_stream_data: int = 16777216,
        send_window: int = 16777216,
        congestion: Literal["cubic", "newreno", "reno", "bbr", "bbr1"] = "cubic",
        datagram_receive_buffer: int | None = 1048576,
        datagram_send_buffer: int = 262144,
        initial_mtu: int = 1200,
        mtu_max: int | None = 1452,
        initial_rtt: float = 0.333,
        ack_frequency: bool = False,
        reset_stream_at: bool = False,
        max_data_grown: int = 67108864,
        send_window_min: int = 1048576,
        qlog: str | PathLike[str] | Traces | None = None,
    ) -> Self: ...
    def set_certificate(
        self,
        certificate: CertificateSource,
        private_key: KeySource | None = None,
        name: str | None = None,
        password: Password | None = None,
    ) -> None:
        """Present another certificate from now on: for `name`, or for all names without their own."""
    def remove_certificate(self, name: str) -> bool:
        """Remove a name's own certificate; return whether it had one."""

# The protocol.

@final
class Endpoint:
    """Opens and accepts connections, on a UDP socket that a loop watches, or without I/O."""
    def __new__(
        cls,
        *,
        server: ServerConfig | None = None,
        fd: int | None = None,
        events: bool = False,
        versions: Iterable[int] = (1, 2),
        retry: Literal["never", "always", "auto"] = "never",
        max_connections: int | None = None,
        udp_payload_max: int = 1472,
        socket_buffer: int = 4194304,
        gso: bool = True,
        gro: bool = True,
        ecn: bool = True,
        segments_max: int = 64,
        reset_secret: bytes | None = None,
        connection_id: bytes | None = None,
        connection_id_length: int | None = None,
        worker: tuple[int, int, int] | None = None,
        http: bool = False,
    ) -> Self: ...
    @property
    def connection_count(self) -> int:
        """The number of connections, including closed ones that may still send close frames."""
    @property
    def local_address(self) -> Address | None:
        """The socket's address."""
    def connect(
        self, config: ClientConfig, address: Address, server_name: str, now: float | None = None
    ) -> int:
        """Start a connection; return its key."""
    def close(self, code: int = 0, reason: str | _Data = "", now: float | None = None) -> None:
        """Close all connections with a code and a reason, and refuse new ones."""
    def counts(self) -> list[int]:
        """Connections, handshakes in progress; clients accepted, completed, failed, refused,
        retried; failed by reason: timed out, TLS, by the peer, others.
        """
    def take_failures(self) -> list[tuple[Any, ConnectionClosed]]:
        """Clients whose handshake failed since the last call: addresses and errors."""
    def set_server(self, server: ServerConfig | None) -> None:
        """Set the server's configuration from now on; None: accept no connections."""
    def rebind(self, fd: int) -> None:
        """Switch to another socket; connections opened here move with it."""
    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        on_events: Callable[[list[int], list[int], list[int]], bool | None],
        on_full: Callable[[], object],
    ) -> None:
        """Attach it to a loop: `on_events(accepted, eventful, gone)` gets lists of keys, and
        returns True if it has queued callbacks in the loop; `on_full()` arranges for `flush` to be
        called once the socket is writable.
        """
    def detach(self) -> None:
        """Detach it from the loop and the socket, and cancel what is scheduled in the loop. Later
        writes are not sent: the descriptor's number may belong to another file by then. Open
        connections end without notifying the peers, and their waiters are woken.
        """
    def turn(self) -> None:
        """Receive, run due timers, dispatch events and wake waiters; releases the interpreter while
        that takes long.
        """
    def expire(self) -> None:
        """The timer has fired."""
    def flush(self) -> bool:
        """Send what may be sent now, and set the timer; return whether all of it was sent. If not,
        the loop calls this again.
        """
    def send(self, once: bool = False) -> None:
        """Send what may be sent now, from within a call of the program. Wakes no waiter, so that
        none of the program's code runs before this returns; waking, the timer and the rest are left
        to the loop's next pass. With `once` only the first call of a pass sends: small writes leave
        together with the rest.
        """
    def receive_datagram(self, data: _Data, address: Address, now: float, ecn: int = 0) -> None:
        """Process a received datagram. `now` is the time of a monotonic clock, always the same one."""
    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """The datagrams to send now, each with its destination."""
    def next_timeout(self) -> float | None:
        """The latest time to call `handle_timer`, in the caller's clock; valid after
        `datagrams_to_send`. It may be earlier than needed, never later.
        """
    def handle_timer(self, now: float) -> None:
        """Run the timers that are due."""
    def take(self) -> tuple[list[int], list[int], list[int]] | None:
        """Keys of connections that were accepted, have events, or are gone; None if there are none."""

@final
class Handshake:
    """What a handshake negotiated."""
    @property
    def alpn(self) -> str | None:
        """The negotiated application protocol (RFC 7301); None: none was requested."""
    @property
    def server_name(self) -> str | None:
        """Servers: the name that the client requested (RFC 6066 §3); None if it named none, and for
        clients.
        """
    @property
    def cipher_suite(self) -> str | None:
        """The cipher suite, as in RFC 8446 §B.4 (`TLS13_AES_128_GCM_SHA256`); None before it is
        known.
        """
    @property
    def key_exchange(self) -> str | None:
        """The group of the key exchange, as in RFC 8446 §4.2.7 (`X25519MLKEM768`, `X25519`); None
        before it is known.
        """
    @property
    def is_resumed(self) -> bool:
        """Whether an earlier session was resumed (RFC 8446 §2.2), without presenting certificates
        again.
        """
    @property
    def early_data_accepted(self) -> bool:
        """Clients: whether the server accepted early data (RFC 9001 §4.6.2); False if none was
        sent, and for servers.
        """

@final
class Stats:
    """A snapshot of one connection's statistics: counts since its start, times in seconds, sizes in
    bytes.
    """
    @property
    def rtt(self) -> float:
        """Smoothed round-trip time, in seconds (RFC 9002 §5.3); `initial_rtt` before the first
        sample.
        """
    @property
    def rtt_min(self) -> float:
        """Shortest round-trip time seen, in seconds (RFC 9002 §5.2)."""
    @property
    def congestion_window_bytes(self) -> int:
        """Bytes that the congestion controller allows in flight now (RFC 9002 §7)."""
    @property
    def congestion_event_count(self) -> int:
        """Times that the congestion window was reduced (RFC 9002 §7.3.2)."""
    @property
    def mtu_bytes(self) -> int:
        """Bytes of UDP payload that the path is known to carry in one datagram (RFC 9000 §14.3)."""
    @property
    def black_hole_count(self) -> int:
        """Times that the path stopped carrying datagrams of the former size (RFC 8899 §4.3)."""
    @property
    def packets_sent(self) -> int:
        """QUIC packets sent, lost ones included; several may share a datagram (RFC 9000 §12.2)."""
    @property
    def packets_lost(self) -> int:
        """QUIC packets declared lost (RFC 9002 §6), without MTU probes."""
    @property
    def bytes_lost(self) -> int:
        """Bytes in the packets declared lost."""
    @property
    def udp_sent(self) -> int:
        """UDP datagrams sent."""
    @property
    def bytes_sent(self) -> int:
        """Bytes of UDP payload sent."""
    @property
    def messages_sent(self) -> int:
        """Messages passed to the kernel: a batch of datagrams counts once (`UDP_SEGMENT` of
        udp(7)).
        """
    @property
    def udp_received(self) -> int:
        """UDP datagrams received that belong to this connection."""
    @property
    def bytes_received(self) -> int:
        """Bytes of UDP payload received."""
    @property
    def datagrams_sent(self) -> int:
        """DATAGRAM frames sent (RFC 9221 §4)."""
    @property
    def datagrams_received(self) -> int:
        """DATAGRAM frames received (RFC 9221 §4)."""
    @property
    def stream_frames_sent(self) -> int:
        """STREAM frames sent, including retransmissions (RFC 9000 §19.8)."""
    @property
    def stream_frames_received(self) -> int:
        """STREAM frames received (RFC 9000 §19.8)."""
    @property
    def pings_sent(self) -> int:
        """PING frames sent, those of `keep_alive` and of probes included (RFC 9000 §19.2)."""
    @property
    def acks_received(self) -> int:
        """ACK frames received (RFC 9000 §19.3)."""
    @property
    def receive_window_bytes(self) -> int:
        """Bytes that the peer may send ahead of the readers now, all streams together: from
        `max_data` to `max_data_grown` (RFC 9000 §4.1).
        """
    @property
    def send_window_bytes(self) -> int:
        """Bytes that may be written ahead of acknowledgements now, all streams together: from
        `send_window_min` to `send_window`.
        """
    @property
    def datagrams_expired(self) -> int:
        """Datagrams that were not sent within their `expires` seconds."""
    @property
    def datagrams_dropped(self) -> int:
        """Datagrams that were dropped before they were sent: they made room for newer ones, or no
        longer fit the path.
        """
    @property
    def datagrams_unread(self) -> int:
        """Received datagrams dropped unread for newer ones (`datagram_receive_buffer`); counted
        once all others were read.
        """

@disjoint_base
class Connection:
    """A connection of an endpoint, by its key. Several objects may refer to the same connection."""
    def __new__(cls, endpoint: Endpoint, key: int) -> Self: ...
    @property
    def _key(self) -> int:
        """Its number in the endpoint, never reused."""
    @property
    def is_client(self) -> bool:
        """Whether this end initiated it."""
    @property
    def remote_address(self) -> Address:
        """The peer's address now."""
    @property
    def local_ip(self) -> str | None:
        """Servers: the address that the client connected to, if known."""
    @property
    def is_handshaking(self) -> bool:
        """Whether the handshake is in progress."""
    @property
    def is_closed(self) -> bool:
        """Whether it is closed: nothing can be sent or received any more."""
    @property
    def error(self) -> ConnectionError | None:
        """Why it ended, as an exception that was not raised; None while it is open."""
    @property
    def rtt(self) -> float:
        """The smoothed round-trip time in seconds."""
    @property
    def idle_timeout(self) -> float | None:
        """The idle time-out in seconds: the smaller of both ends' limits (RFC 9000 §10.1). None:
        neither has one, or the handshake is not complete.
        """
    def idle_for(self, now: float | None = None) -> float:
        """Return the seconds since the peer's last packet."""
    @property
    def has_early_data(self) -> bool:
        """Whether early data may be sent, or was."""
    @property
    def is_confirmed(self) -> bool:
        """Whether the handshake is confirmed (RFC 9001 §4.1.2): keys may be changed."""
    @property
    def _answered_pings(self) -> int:
        """The number of acknowledged pings, in order."""
    @property
    def max_datagram_size(self) -> int | None:
        """The longest datagram that may be sent now; None: the peer accepts none."""
    @property
    def datagram_room(self) -> int:
        """Bytes of datagrams that may be sent now without waiting."""
    def handshake(self) -> Handshake | None:
        """What the handshake negotiated; None before."""
    def peer_certificates(self) -> list[bytes]:
        """The peer's certificates in DER, leaf first; empty if it presented none."""
    def export_keying_material(self, label: str | bytes, context: bytes, length: int) -> bytes:
        """Exported keying material: bytes known only to both ends of this connection (RFC 8446
        §7.5).
        """
    def stats(self) -> Stats:
        """The connection's statistics."""
    def close(self, code: int = 0, reason: str | _Data = "", now: float | None = None) -> None:
        """Close it with the program's code and reason, after the written data that may be sent now;
        the rest is dropped.
        """
    def ping(self, uid: int = 0) -> int:
        """Send a ping; `PingAcknowledged(uid)` reports the acknowledgement."""
    def update_keys(self) -> None:
        """Change the keys."""
    def set_max_streams(self, count: int, unidirectional: bool = False) -> None:
        """The number of streams of a direction that the peer may have open at a time."""
    def set_max_data(self, count: int) -> None:
        """Bytes that the peer may send ahead of the readers, all streams together."""
    def set_send_window(self, count: int) -> None:
        """Bytes that may be written and not acknowledged, all streams together."""
    def send_datagram(
        self, data: _Data, drop_oldest: bool = False, expires: float | None = None
    ) -> bool:
        """Send a datagram; False if the buffer is full. With `drop_oldest`, the oldest queued
        datagrams make room. A datagram not sent within `expires` seconds is dropped.
        """
    def send_datagrams(self, datagrams: Iterable[_Data], drop_oldest: bool = False) -> int:
        """Send several datagrams in order; return how many were accepted."""
    def receive_datagrams(self, count: int = 0) -> list[bytes]:
        """Take the received datagrams, at most `count` (0: all)."""
    def _open_stream(self, unidirectional: bool = False) -> int | None:
        """Open a stream; None while the peer allows no more."""
    def _accept_stream(self, unidirectional: bool = False) -> int | None:
        """Accept a stream that the peer has opened; None if there is none."""
    def _accept_streams(self) -> list[int]:
        """Accept all streams that the peer has opened, bidirectional ones first; none if the
        connection is closed.
        """
    def _announce_streams(self) -> None:
        """From now on the endpoint reports streams that the peer opens: the key is among the
        eventful ones.
        """
    def peer_transport_parameters(self) -> bytes | None:
        """The peer's encoded transport parameters (RFC 9000 §18); None before they are known."""
    def _waiter(self, what: str, unidirectional: bool = False) -> Waiter:
        """The waiter for an event: `"open"`, `"accept"` (each with `unidirectional`),
        `"datagram_in"`, `"datagram_out"`, `"progress"`.
        """

@final
class EventConnection(Connection):
    """A connection of an endpoint that keeps events: its streams by number, and its events."""
    def __new__(cls, endpoint: Endpoint, key: int) -> Self: ...
    @property
    def key(self) -> int:
        """Its number in the endpoint, never reused."""
    def open_stream_nowait(self, unidirectional: bool = False) -> int | None:
        """Open a stream; return its number, or None while the peer allows no more."""
    @property
    def streams_queued(self) -> int:
        """Bytes of all streams that wait for space in the send window."""
    @property
    def close_info(self) -> ConnectionTerminated | None:
        """Why it ended, as aioquic's event."""
    def ids(self) -> tuple[bytes, bytes] | None:
        """The connection id that the peer uses first, and the destination id of the client's first
        packet; None for endpoints that do not report ids.
        """
    @property
    def early_data_rejected(self) -> bool:
        """Whether the server refused early data: its streams do not exist."""
    def pause_stream(self, stream_id: int) -> None:
        """Pause a stream's events, so that its window closes. Only for endpoints that keep events.
        Does nothing if the connection is closed: received data is reported, and nothing follows the
        last event.
        """
    def resume_stream(self, stream_id: int) -> None:
        """Resume a stream's events."""
    def want_writable(self, stream_id: int) -> bool:
        """Make `take_writable` return a stream once its queue is empty; False if it already is."""
    def take_writable(self) -> list[int]:
        """The streams of `want_writable` whose queues are empty now."""
    def waits_for_credit(self, unidirectional: bool = False) -> bool:
        """Whether a stream with written data waits for the peer to allow more streams."""
    def set_queued_max(self, count: int | None) -> None:
        """Bytes that `send_stream_data` may queue before it raises `BufferError`; None: no limit."""
    def local_address_changed(self) -> None:
        """Send packets from another address from now on: switch to another connection id, notify
        the peer. An error until the handshake is confirmed (RFC 9000 §9).
        """
    def next_stream_id(self, unidirectional: bool = False) -> int:
        """The number of the next stream that would be opened."""
    def send_stream_data(
        self, stream_id: int, data: _Data, end_stream: bool = False, bounded: bool = True
    ) -> None:
        """Send on a stream by its number; the first write opens it. Data without room, or of a
        stream that the peer does not allow yet, is queued; with `bounded`, this accepts nothing and
        raises `BufferError` once too much is queued.
        """
    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Reset a stream."""
    def stop_stream(self, stream_id: int, error_code: int) -> None:
        """Ask the peer to stop sending on a stream, and drop received data."""
    def set_stream_priority(self, stream_id: int, priority: int) -> None:
        """Streams of a higher priority send first; 0 at the start."""
    def stream_queued(self, stream_id: int) -> int:
        """Bytes of a stream that wait for space in the send window."""
    def next_event(self) -> QuicEvent | None:
        """The next event; None if there is none. Only for endpoints that keep events."""
    def take_events(self) -> list[QuicEvent]:
        """All pending events, with at most about a megabyte of stream data."""

@disjoint_base
class Stream:
    """A stream of a connection, by its number. Each stream has one object."""
    def __new__(cls, connection: Connection, stream_id: int) -> Self: ...
    @property
    def connection(self) -> Connection:
        """The stream's connection."""
    @property
    def id(self) -> int:
        """Its number in the connection (RFC 9000 §2.1)."""
    @property
    def is_bidirectional(self) -> bool:
        """Whether it is bidirectional."""
    @property
    def is_readable(self) -> bool:
        """Whether more can be read: it receives, and neither the end nor a reset was read."""
    @property
    def is_writable(self) -> bool:
        """Whether more can be written: it sends, and was not finished or reset."""
    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for space in the send window."""
    @property
    def priority(self) -> int:
        """Streams of a higher priority send first; 0 at the start."""
    @priority.setter
    def priority(self, priority: int, /) -> None: ...
    def write(self, data: _Data) -> None:
        """Write all of `data`. Data without room in the send window is queued; `drain()` waits for
        it.
        """
    def write_nowait(self, data: _Data) -> int:
        """Write as much as the send window has space for; return the number of bytes."""
    def _drain_waiter(self) -> Waiter | None:
        """The waiter for space for all written data; None if there is space."""
    def drain(self) -> Coroutine[Any, Any, None]:
        """Wait until all written data has space in the send window."""
    def send(self, data: _Data) -> Coroutine[Any, Any, None]:
        """Write, and wait for space: `write` and `drain`. The call itself takes the bytes; errors
        are raised when it is awaited.
        """
    def finish(self) -> None:
        """Declare that nothing more will be written. Further calls do nothing."""
    def close(self) -> None:
        """Finish, unless sending or the connection has ended; if the peer stopped the stream, reset
        it with the peer's code. Received data can still be read; dropping the last reference to the
        stream stops the peer.
        """
    def reset(self, code: int) -> None:
        """Reset the stream; data in flight may be lost. Does nothing if sending has ended."""
    def stop(self, code: int) -> None:
        """Ask the peer to stop sending, and drop received data. Does nothing if receiving has
        ended.
        """
    def _take(self, count: int) -> bytes | None:
        """Read received data, at most `count` bytes; `b""` at the end, None if there is none now."""
    def _read(self, count: int) -> bytes | Waiter:
        """The same; if there is none now, the waiter for data."""
    def _read_waiter(self) -> Waiter:
        """The waiter for data to read."""
    def _sent(self) -> tuple[bool, int | None]:
        """The outcome of sending: `(True, None)`: all data was acknowledged; `(True, code)`: the
        peer stopped the stream, or this end reset it; `(False, None)`: not known yet.
        """
    def _sent_waiter(self) -> Waiter:
        """The waiter for a change of `sent`."""

# Events, with aioquic's names and fields.

class QuicEvent:
    """Base of all events."""
    def __new__(cls) -> Self: ...

@final
class ConnectionIdIssued(QuicEvent):
    """A connection id was given to the peer."""

    __match_args__ = ("connection_id",)
    def __new__(cls, connection_id: bytes) -> Self: ...
    @property
    def connection_id(self) -> bytes:
        """The id: 1 to 20 bytes (RFC 9000 §5.1)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class ConnectionIdRetired(QuicEvent):
    """The peer has retired a connection id."""

    __match_args__ = ("connection_id",)
    def __new__(cls, connection_id: bytes) -> Self: ...
    @property
    def connection_id(self) -> bytes:
        """The id: 1 to 20 bytes (RFC 9000 §5.1.2)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class ConnectionTerminated(QuicEvent):
    """The connection has ended."""

    __match_args__ = ("error_code", "frame_type", "reason_phrase")
    def __new__(cls, error_code: int, frame_type: int | None, reason_phrase: str) -> Self: ...
    @property
    def error_code(self) -> int:
        """QUIC's code (RFC 9000 §20.1), or the application's: 0 to 2^62 - 1."""
    @property
    def frame_type(self) -> int | None:
        """The type of the offending frame (RFC 9000 §19); None: the application closed it, or no
        frame caused it.
        """
    @property
    def reason_phrase(self) -> str:
        """The reason given by the end that closed it; may be empty."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class DatagramFrameReceived(QuicEvent):
    """A datagram has arrived."""

    __match_args__ = ("data",)
    def __new__(cls, data: bytes) -> Self: ...
    @property
    def data(self) -> bytes:
        """The payload (RFC 9221)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class HandshakeCompleted(QuicEvent):
    """The handshake is complete."""

    __match_args__ = ("alpn_protocol", "early_data_accepted", "session_resumed")
    def __new__(
        cls, alpn_protocol: str | None, early_data_accepted: bool, session_resumed: bool
    ) -> Self: ...
    @property
    def alpn_protocol(self) -> str | None:
        """The negotiated application protocol (RFC 7301); None: none was requested."""
    @property
    def early_data_accepted(self) -> bool:
        """Clients: whether the server accepted early data (RFC 9001 §4.6.2)."""
    @property
    def session_resumed(self) -> bool:
        """Whether an earlier session was resumed (RFC 8446 §2.2)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class PingAcknowledged(QuicEvent):
    """The peer has acknowledged a ping."""

    __match_args__ = ("uid",)
    def __new__(cls, uid: int) -> Self: ...
    @property
    def uid(self) -> int:
        """The number that the ping was sent with."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class ProtocolNegotiated(QuicEvent):
    """The application protocol was negotiated."""

    __match_args__ = ("alpn_protocol",)
    def __new__(cls, alpn_protocol: str | None) -> Self: ...
    @property
    def alpn_protocol(self) -> str | None:
        """The protocol (RFC 7301); None: none was requested."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class StopSendingReceived(QuicEvent):
    """The peer stopped receiving a stream."""

    __match_args__ = ("error_code", "stream_id")
    def __new__(cls, error_code: int, stream_id: int) -> Self: ...
    @property
    def error_code(self) -> int:
        """The application's code (RFC 9000 §19.5): 0 to 2^62 - 1."""
    @property
    def stream_id(self) -> int:
        """The stream's number (RFC 9000 §2.1)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class StreamDataReceived(QuicEvent):
    """Bytes of a stream, or its end, have arrived."""

    __match_args__ = ("data", "end_stream", "stream_id")
    def __new__(cls, data: bytes, end_stream: bool, stream_id: int) -> Self: ...
    @property
    def data(self) -> bytes:
        """The next bytes of the stream, in order; may be empty at its end."""
    @property
    def end_stream(self) -> bool:
        """Whether the stream ends with them."""
    @property
    def stream_id(self) -> int:
        """The stream's number (RFC 9000 §2.1)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class StreamReset(QuicEvent):
    """The peer reset a stream."""

    __match_args__ = ("error_code", "stream_id")
    def __new__(cls, error_code: int, stream_id: int) -> Self: ...
    @property
    def error_code(self) -> int:
        """The application's code (RFC 9000 §19.4): 0 to 2^62 - 1."""
    @property
    def stream_id(self) -> int:
        """The stream's number (RFC 9000 §2.1)."""
    def __eq__(self, other: object, /) -> bool: ...
