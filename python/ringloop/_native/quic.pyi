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
    """An error code of the protocol by its name, and what was said with it, or else what it means
    in a handshake.
    """

def steer(fd: int, count: int) -> None:
    """Have the kernel give datagrams to the socket, of `count` that share an address by
    `SO_REUSEPORT`, whose number in the order of binding is that of the worker that they are for.
    For all of them at once.
    """

def sign_certificate(
    names: Sequence[str], days: int, authority: tuple[str, str] | None = None
) -> tuple[str, str, str, str]:
    """Sign a certificate for DNS names and addresses, which are checked already.

    Shape: `authority` is one's certificate and key in PEM, made here before; a new one is made
    without. Returns the authority's certificate and key, the certificate and its key.
    """

# Configurations.

@final
class ClientConfig:
    """How connections are made."""
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
        """The same for one connection: sessions and address tokens are kept in `memory`, and the
        first packets are addressed to `destination_id`.
        """

@final
class SessionTicket:
    """A session that a server may resume: what a `session_ticket_handler` is given, and
    `session_ticket` takes.

    Lives in this process, and is good for one connection (RFC 8446 §C.4 advises against using one
    twice): further ones do a full handshake, and are given fresh tickets.
    """
    @property
    def server_name(self) -> str:
        """The name of the server that gave it."""
    @property
    def cipher_suite(self) -> int:
        """The number of its cipher suite."""
    @property
    def max_early_data_size(self) -> int:
        """Bytes of early data that the server takes: 0, or RFC 9001's 2^32 - 1."""
    @property
    def received_at(self) -> float:
        """When it was received, in seconds of `time.time()`."""
    @property
    def is_valid(self) -> bool:
        """Whether it has not been used, and is not a week old."""

@final
class Ready(Coroutine[Any, Any, None]):
    """A coroutine (`collections.abc.Coroutine`) that ends at its first step, with None."""
    def __await__(self) -> Generator[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> None: ...
    def send(self, value: Any, /) -> None:
        """As `__next__`."""
    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> None:
        """Raise it: what is over handles nothing."""
    def close(self) -> None:
        """Nothing is to be ended."""

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
        """Cancel it; False where it is done."""
    def add_done_callback(
        self, callback: Callable[[Waiter], object], /, *, context: Context | None = None
    ) -> None:
        """Have the loop call `callback` with this, in a context, when it is done."""
    def remove_done_callback(self, callback: Callable[[Waiter], object]) -> int:
        """Forget a callback; tells how many there were of it."""

@final
class Memory:
    """Where one or more connections of a client put sessions and tokens, and find them.

    `ticket`, `token`: what the next connection is to use. `keeps`: whether what servers give is
    used by the next connections too; what is new is handed out by `take_tickets` and `take_tokens`
    otherwise.
    """
    def __new__(
        cls,
        *,
        ticket: SessionTicket | None = None,
        token: bytes | None = None,
        keeps: bool = False,
    ) -> Self: ...
    def take_tickets(self) -> list[SessionTicket]:
        """Take the sessions that have come since the last call, the oldest first."""
    def take_tokens(self) -> list[bytes]:
        """Take the address tokens that have come since the last call, the oldest first."""

@final
class Traces:
    """Keeps the logs of connections until they are taken; their number and length is the program's
    business.
    """
    def __new__(cls) -> Self: ...
    def read(self, original_id: bytes, is_client: bool) -> bytes:
        """What the log has so far of the connection that began with this id; empty where there is
        none.
        """
    def forget(self, original_id: bytes, is_client: bool) -> None:
        """Forget it."""

@final
class ServerConfig:
    """How connections are taken."""
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
        """Show another certificate from now on: for `name`, or for names that have none of their
        own.
        """
    def remove_certificate(self, name: str) -> bool:
        """Take a name's own certificate away; tell whether there was one."""

# The protocol.

@final
class Endpoint:
    """Make and take connections, on a UDP socket that a loop watches, or without any I/O."""
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
        """How many connections there are, those included that are over and whose last words may
        still be sent.
        """
    @property
    def local_address(self) -> Address | None:
        """The socket's address."""
    def connect(
        self, config: ClientConfig, address: Address, server_name: str, now: float | None = None
    ) -> int:
        """Begin a connection; returns its key."""
    def close(self, code: int = 0, reason: str | _Data = "", now: float | None = None) -> None:
        """Close all connections with a code and a reason, and refuse new ones."""
    def counts(self) -> list[int]:
        """Connections, handshakes under way; clients accepted, completed, failed, refused, retried;
        failed by reason: timed out, TLS, by the peer, others.
        """
    def take_failures(self) -> list[tuple[Any, ConnectionClosed]]:
        """Clients whose handshake failed since this was asked last: addresses and errors."""
    def set_server(self, server: ServerConfig | None) -> None:
        """How connections are taken from now on; None: not at all."""
    def rebind(self, fd: int) -> None:
        """Go on with another socket; connections that were made here move with it."""
    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        on_events: Callable[[list[int], list[int], list[int]], bool | None],
        on_full: Callable[[], object],
    ) -> None:
        """Have a loop drive it: `on_events(accepted, eventful, gone)` gets lists of keys, and
        returns True where it has left something to the loop's queue; `on_full()` has `flush` called
        once the socket is writable.
        """
    def detach(self) -> None:
        """Forget the loop and the socket, and cancel what stands in the loop. What is written
        afterwards is not sent: by then the descriptor's number may be another file's. Connections
        that are not over are now, without a word to the peers; their waiters are woken.
        """
    def turn(self) -> None:
        """Receive, do what is due, tell and wake whom it concerns; the interpreter is given away
        meanwhile where that takes long.
        """
    def expire(self) -> None:
        """Its timer has come up."""
    def flush(self) -> bool:
        """Send what may be sent now, and see when to look again; tells whether all of it was sent.
        Where there is more, the loop calls this again.
        """
    def send(self, once: bool = False) -> None:
        """Send what may be sent now, from inside of whatever the program does. No waiter is woken,
        so that nothing of the program runs before this returns; that, the timer and what is left
        are for the loop's next pass. With `once` only the first call of a pass sends: what a
        program sends bit by bit leaves together with the rest.
        """
    def receive_datagram(self, data: _Data, address: Address, now: float, ecn: int = 0) -> None:
        """Take a datagram from the network. `now` is any clock that does not go back, the same one
        always.
        """
    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """What is to be sent now: pairs of a datagram and the address it goes to."""
    def next_timeout(self) -> float | None:
        """When `handle_timer` has to be called at the latest, in the caller's clock; ask after
        `datagrams_to_send`. It may be earlier than needed, never later.
        """
    def handle_timer(self, now: float) -> None:
        """Do what is due."""
    def take(self) -> tuple[list[int], list[int], list[int]] | None:
        """Keys of connections that were accepted, have events, are gone; None where there are none."""

@final
class Handshake:
    """What a handshake has agreed on."""
    @property
    def alpn(self) -> str | None:
        """The application's protocol that was agreed on (RFC 7301); None: none was asked for."""
    @property
    def server_name(self) -> str | None:
        """Servers: the name that the client asked for (RFC 6066 §3); None where it named none, and
        of clients.
        """
    @property
    def cipher_suite(self) -> str | None:
        """What packets are sealed by, as in RFC 8446 §B.4 (`TLS13_AES_128_GCM_SHA256`); None before
        it is known.
        """
    @property
    def key_exchange(self) -> str | None:
        """The group of the key exchange, as in RFC 8446 §4.2.7 (`X25519MLKEM768`, `X25519`); None
        before it is known.
        """
    @property
    def is_resumed(self) -> bool:
        """Whether an earlier session was resumed (RFC 8446 §2.2): no certificate was shown again."""
    @property
    def early_data_accepted(self) -> bool:
        """Clients: whether the server has taken the data that went with the first packet (RFC 9001
        §4.6.2); False where none was sent, and of servers.
        """

@final
class Stats:
    """Figures of one connection as they were when it was asked: counts since its start, times in
    seconds, sizes in bytes.
    """
    @property
    def rtt(self) -> float:
        """Smoothed round-trip time, in seconds (RFC 9002 §5.3); `initial_rtt` before the first
        sample.
        """
    @property
    def rtt_min(self) -> float:
        """Shortest round-trip time that was seen, in seconds (RFC 9002 §5.2)."""
    @property
    def congestion_window_bytes(self) -> int:
        """Bytes that the congestion controller allows in flight now (RFC 9002 §7)."""
    @property
    def congestion_event_count(self) -> int:
        """Times that the congestion window was reduced (RFC 9002 §7.3.2)."""
    @property
    def mtu_bytes(self) -> int:
        """Bytes of UDP payload that the path carries in one datagram, as far as is known (RFC 9000
        §14.3).
        """
    @property
    def black_hole_count(self) -> int:
        """Times that the path stopped carrying datagrams as long as before (RFC 8899 §4.3)."""
    @property
    def packets_sent(self) -> int:
        """QUIC packets sent, lost ones included; several may share a datagram (RFC 9000 §12.2)."""
    @property
    def packets_lost(self) -> int:
        """QUIC packets taken for lost (RFC 9002 §6); probes of the MTU are not counted."""
    @property
    def bytes_lost(self) -> int:
        """Bytes in the packets taken for lost."""
    @property
    def udp_sent(self) -> int:
        """UDP datagrams sent."""
    @property
    def bytes_sent(self) -> int:
        """Bytes of UDP payload sent."""
    @property
    def messages_sent(self) -> int:
        """Messages to the kernel in which the datagrams went: batches of several count once
        (`UDP_SEGMENT` of udp(7)).
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
        """STREAM frames sent, repeated ones included (RFC 9000 §19.8)."""
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
        """Datagrams that were not sent within the `expires` seconds they had."""
    @property
    def datagrams_dropped(self) -> int:
        """Datagrams that were dropped before they were sent: they made room for newer ones, or no
        longer fit the path.
        """
    @property
    def datagrams_unread(self) -> int:
        """Received datagrams that made room for newer ones before they were read
        (`datagram_receive_buffer`); counted once all others were read.
        """

@disjoint_base
class Connection:
    """A connection of an endpoint, by its key. Several objects of one key are the same connection."""
    def __new__(cls, endpoint: Endpoint, key: int) -> Self: ...
    @property
    def _key(self) -> int:
        """Its number in the endpoint, which is not given again."""
    @property
    def is_client(self) -> bool:
        """Whether this end began it."""
    @property
    def remote_address(self) -> Address:
        """The peer's address now."""
    @property
    def local_ip(self) -> str | None:
        """Servers: the address that the client has connected to, where it is known."""
    @property
    def is_handshaking(self) -> bool:
        """Whether the handshake is under way."""
    @property
    def is_closed(self) -> bool:
        """Whether it is over: nothing can be sent or will come any more."""
    @property
    def error(self) -> ConnectionError | None:
        """How it ended: an exception that was not raised; None while it has not."""
    @property
    def rtt(self) -> float:
        """The smoothed round-trip time in seconds."""
    @property
    def idle_timeout(self) -> float | None:
        """How many seconds it may be without packets before either end forgets it: the smaller of both
        ends' limits (RFC 9000 §10.1). None: neither has one, or the handshake is not complete.
        """
    def idle_for(self, now: float | None = None) -> float:
        """Return for how many seconds nothing has come from the peer."""
    @property
    def has_early_data(self) -> bool:
        """Whether early data may be sent, or was."""
    @property
    def is_confirmed(self) -> bool:
        """Whether the handshake is confirmed (RFC 9001 §4.1.2): keys may be changed."""
    @property
    def _answered_pings(self) -> int:
        """How many pings were acknowledged, in order."""
    @property
    def max_datagram_size(self) -> int | None:
        """The longest datagram that may be sent now; None: the peer takes none."""
    @property
    def datagram_room(self) -> int:
        """Bytes of datagrams that may be sent now without waiting."""
    def handshake(self) -> Handshake | None:
        """What the handshake has agreed on; None before it has."""
    def peer_certificates(self) -> list[bytes]:
        """The peer's certificates in DER, its own first; empty where it has shown none."""
    def export_keying_material(self, label: str | bytes, context: bytes, length: int) -> bytes:
        """Bytes that only both ends of this connection can know (RFC 8446 §7.5)."""
    def stats(self) -> Stats:
        """Figures."""
    def close(self, code: int = 0, reason: str | _Data = "", now: float | None = None) -> None:
        """Close it with the program's code and reason, behind what was written and may be sent now;
        the rest is dropped.
        """
    def ping(self, uid: int = 0) -> int:
        """Have the peer acknowledge something; `PingAcknowledged(uid)` tells when it has."""
    def update_keys(self) -> None:
        """Change the keys."""
    def set_max_streams(self, count: int, unidirectional: bool = False) -> None:
        """How many streams of a direction the peer may have open at a time."""
    def set_max_data(self, count: int) -> None:
        """How many bytes the peer may send ahead of the readers, all streams together."""
    def set_send_window(self, count: int) -> None:
        """How many bytes may be written and not acknowledged, all streams together."""
    def send_datagram(
        self, data: _Data, drop_oldest: bool = False, expires: float | None = None
    ) -> bool:
        """Send a datagram; False where there is no room for it. With `drop_oldest`, datagrams that
        wait the longest make room. A datagram that has not left after `expires` seconds is dropped.
        """
    def send_datagrams(self, datagrams: Iterable[_Data], drop_oldest: bool = False) -> int:
        """Send several datagrams; tells how many of them, from the first on, found room."""
    def receive_datagrams(self, count: int = 0) -> list[bytes]:
        """Take the datagrams that have come, at most `count` (0: all)."""
    def _open_stream(self, unidirectional: bool = False) -> int | None:
        """Open a stream; None while the peer allows no more."""
    def _accept_stream(self, unidirectional: bool = False) -> int | None:
        """Take a stream that the peer has opened; None where there is none."""
    def _accept_streams(self) -> list[int]:
        """Take all streams that the peer has opened, those both ways first; none where the
        connection is over.
        """
    def _announce_streams(self) -> None:
        """From now on, streams that the peer opens are news of the endpoint's: the key is among the
        eventful.
        """
    def peer_transport_parameters(self) -> bytes | None:
        """The peer's transport parameters, encoded (RFC 9000 §18); None before they are known."""
    def _waiter(self, what: str, unidirectional: bool = False) -> Waiter:
        """What to await for: `"open"`, `"accept"` (each with `unidirectional`), `"datagram_in"`,
        `"datagram_out"`, `"progress"`.
        """

@final
class EventConnection(Connection):
    """A connection of an endpoint that keeps events: its streams by their numbers, and what has
    happened to it.
    """
    def __new__(cls, endpoint: Endpoint, key: int) -> Self: ...
    @property
    def key(self) -> int:
        """Its number in the endpoint, which is not given again."""
    def open_stream_nowait(self, unidirectional: bool = False) -> int | None:
        """Open a stream, and return its number; None while the peer allows no more."""
    @property
    def streams_queued(self) -> int:
        """Bytes of all streams that wait for room in the send window."""
    @property
    def close_info(self) -> ConnectionTerminated | None:
        """The same as aioquic's event."""
    def ids(self) -> tuple[bytes, bytes] | None:
        """The connection id that the peer uses first, and that which the client has named the
        server by at first; None of endpoints that do not tell ids.
        """
    @property
    def early_data_rejected(self) -> bool:
        """Whether early data was sent that the server refused: its streams are not there."""
    def pause_stream(self, stream_id: int) -> None:
        """Hold back a stream's events, so that its window closes. Only of endpoints that keep
        events. Nothing happens where the connection is over: what has come is told, and nothing
        comes after the last event.
        """
    def resume_stream(self, stream_id: int) -> None:
        """Go on with a stream's events."""
    def want_writable(self, stream_id: int) -> bool:
        """Have `take_writable` name a stream once nothing of it is queued; False where nothing is."""
    def take_writable(self) -> list[int]:
        """The streams of `want_writable` that have nothing queued by now."""
    def waits_for_credit(self, unidirectional: bool = False) -> bool:
        """Whether a stream that was written to waits until the peer allows more streams."""
    def set_queued_max(self, count: int | None) -> None:
        """Bytes that may be queued by `send_stream_data` before it raises `BufferError`; None: any
        number.
        """
    def local_address_changed(self) -> None:
        """Packets leave from another address from now on: use another connection id, tell the peer.
        An error until the handshake is confirmed (RFC 9000 §9).
        """
    def next_stream_id(self, unidirectional: bool = False) -> int:
        """The number of the next stream that would be opened."""
    def send_stream_data(
        self, stream_id: int, data: _Data, end_stream: bool = False, bounded: bool = True
    ) -> None:
        """Send on a stream by its number, which is opened with the first write. What has no room,
        or belongs to a stream that the peer does not allow yet, waits here; where `bounded`, it
        takes nothing and raises `BufferError` once too much does.
        """
    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Give up sending on a stream."""
    def stop_stream(self, stream_id: int, error_code: int) -> None:
        """Have the peer stop sending on a stream, and drop what has come."""
    def set_stream_priority(self, stream_id: int, priority: int) -> None:
        """Streams of a higher priority send first; 0 at the start."""
    def stream_queued(self, stream_id: int) -> int:
        """Bytes of a stream that wait for room in the send window."""
    def next_event(self) -> QuicEvent | None:
        """The next event; None where there is none. Only of endpoints that keep events."""
    def take_events(self) -> list[QuicEvent]:
        """All events that there are, about a megabyte of stream data at most."""

@disjoint_base
class Stream:
    """A stream of a connection, by its number. There is one object of a stream."""
    def __new__(cls, connection: Connection, stream_id: int) -> Self: ...
    @property
    def connection(self) -> Connection:
        """The connection that it is of."""
    @property
    def id(self) -> int:
        """Its number in the connection (RFC 9000 §2.1)."""
    @property
    def is_bidirectional(self) -> bool:
        """Whether its bytes go both ways."""
    @property
    def is_readable(self) -> bool:
        """Whether something can still be read: it receives, and neither end nor reset was read."""
    @property
    def is_writable(self) -> bool:
        """Whether something can still be written: it sends, and was not finished or reset."""
    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for room in the send window."""
    @property
    def priority(self) -> int:
        """Streams of a higher priority send first; 0 at the start."""
    @priority.setter
    def priority(self, priority: int, /) -> None: ...
    def write(self, data: _Data) -> None:
        """Write all of `data`. What has no room in the send window waits here: `drain()` waits for
        it.
        """
    def write_nowait(self, data: _Data) -> int:
        """Write what there is room for in the send window; tells how many bytes that are."""
    def _drain_waiter(self) -> Waiter | None:
        """What to await for the moment when all that was written has found room; None where it has."""
    def drain(self) -> Coroutine[Any, Any, None]:
        """Wait until all that was written has room in the send window."""
    def send(self, data: _Data) -> Coroutine[Any, Any, None]:
        """Write, and wait for room: `write` and `drain`. The bytes are taken by the call; what is
        wrong with them, the stream or the connection is raised where it is awaited.
        """
    def finish(self) -> None:
        """Say that nothing more will be written. Once is enough."""
    def close(self) -> None:
        """Finish, unless sending or the connection is over; where the peer does not want the
        stream, give up sending with its code. What comes can still be read; a stream without
        references stops the peer.
        """
    def reset(self, code: int) -> None:
        """Give up sending; what is on its way may be lost. Nothing happens where sending is over."""
    def stop(self, code: int) -> None:
        """Have the peer stop sending, and drop what has come. Nothing happens where receiving is
        over.
        """
    def _take(self, count: int) -> bytes | None:
        """What has come, at most `count` bytes; `b""` at the end, None where there is nothing now."""
    def _read(self, count: int) -> bytes | Waiter:
        """The same; where there is nothing now, what to await for the moment when there is."""
    def _read_waiter(self) -> Waiter:
        """What to await for the moment when there is something to read."""
    def _sent(self) -> tuple[bool, int | None]:
        """How the peer has answered to what was sent: `(True, None)`: all of it was acknowledged;
        `(True, code)`: it does not want it, or sending was given up here; `(False, None)`: not yet.
        """
    def _sent_waiter(self) -> Waiter:
        """What to await for the moment when `sent` tells more."""

# Events, with aioquic's names and fields.

class QuicEvent:
    """What all events are."""
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
    """The peer uses a connection id no longer."""

    __match_args__ = ("connection_id",)
    def __new__(cls, connection_id: bytes) -> Self: ...
    @property
    def connection_id(self) -> bytes:
        """The id: 1 to 20 bytes (RFC 9000 §5.1.2)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class ConnectionTerminated(QuicEvent):
    """The connection is over."""

    __match_args__ = ("error_code", "frame_type", "reason_phrase")
    def __new__(cls, error_code: int, frame_type: int | None, reason_phrase: str) -> Self: ...
    @property
    def error_code(self) -> int:
        """QUIC's code (RFC 9000 §20.1), or the application's: 0 to 2^62 - 1."""
    @property
    def frame_type(self) -> int | None:
        """The kind of frame that is to blame (RFC 9000 §19); None: the application closed it, or
        none is.
        """
    @property
    def reason_phrase(self) -> str:
        """Why, in the words of the end that closed it; may be empty."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class DatagramFrameReceived(QuicEvent):
    """A datagram has come."""

    __match_args__ = ("data",)
    def __new__(cls, data: bytes) -> Self: ...
    @property
    def data(self) -> bytes:
        """What it carries (RFC 9221)."""
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
        """The application's protocol that was agreed on (RFC 7301); None: none was asked for."""
    @property
    def early_data_accepted(self) -> bool:
        """Clients: whether the server has taken early data (RFC 9001 §4.6.2)."""
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
    """The application's protocol is agreed on."""

    __match_args__ = ("alpn_protocol",)
    def __new__(cls, alpn_protocol: str | None) -> Self: ...
    @property
    def alpn_protocol(self) -> str | None:
        """The protocol (RFC 7301); None: none was asked for."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class StopSendingReceived(QuicEvent):
    """The peer does not want to receive a stream."""

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
    """Bytes of a stream have come, or its end."""

    __match_args__ = ("data", "end_stream", "stream_id")
    def __new__(cls, data: bytes, end_stream: bool, stream_id: int) -> Self: ...
    @property
    def data(self) -> bytes:
        """The next bytes of the stream, in order; may be empty at its end."""
    @property
    def end_stream(self) -> bool:
        """Whether these are the last ones."""
    @property
    def stream_id(self) -> int:
        """The stream's number (RFC 9000 §2.1)."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class StreamReset(QuicEvent):
    """The peer gave up sending on a stream."""

    __match_args__ = ("error_code", "stream_id")
    def __new__(cls, error_code: int, stream_id: int) -> Self: ...
    @property
    def error_code(self) -> int:
        """The application's code (RFC 9000 §19.4): 0 to 2^62 - 1."""
    @property
    def stream_id(self) -> int:
        """The stream's number (RFC 9000 §2.1)."""
    def __eq__(self, other: object, /) -> bool: ...
