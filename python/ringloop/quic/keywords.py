"""The keywords of `connect`, `serve`, `Endpoint` and the configurations, each with what it means.

Owns: their names, types and descriptions. Called by: type checkers and editors; a program that passes
keywords on writes `**keywords: Unpack[ConnectKeywords]`. Never does: check values; the native
configurations do, and their errors name the keyword.

Every description states the unit, the bounds and the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from ringloop._native.quic import Traces  # noqa: TC001  # so that the hints can be resolved

__all__ = [
    "Address",
    "CertificateSource",
    "ClientKeywords",
    "ConnectKeywords",
    "EndpointKeywords",
    "KeyLog",
    "KeySource",
    "Password",
    "ServeKeywords",
    "ServerKeywords",
    "SharedKeywords",
    "SocketKeywords",
    "TransportKeywords",
]


class _Certificate(Protocol):
    """A certificate of the `cryptography` package."""

    def public_bytes(self, encoding: Any) -> bytes: ...


class _Key(Protocol):
    """A private key of the `cryptography` package."""

    def private_bytes(self, encoding: Any, format: Any, encryption_algorithm: Any) -> bytes: ...  # noqa: A002


Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""A numeric address and a port; of IPv6 also with flow and scope, as sockets have it."""

_Path: TypeAlias = str | PathLike[str]
_Bytes: TypeAlias = bytes | bytearray | memoryview
_Certificates: TypeAlias = Sequence[bytes | bytearray | memoryview | str | _Certificate]

CertificateSource: TypeAlias = _Path | _Bytes | _Certificate | _Certificates
"""A path, PEM or DER, an object of `cryptography`, or several of the last two: the chain, leaf first."""

KeySource: TypeAlias = _Path | _Bytes | _Key
"""A path, PEM or DER (PKCS #8, PKCS #1, SEC 1), or an object of `cryptography`."""

Password: TypeAlias = bytes | str | Callable[[], bytes | str]
"""The password of an encrypted key, or a function that returns it."""

KeyLog: TypeAlias = _Path | Callable[[str], object] | Literal[False]
"""A file to append lines to, a function that gets each line, or False: nowhere."""


class TransportKeywords(TypedDict, total=False):
    """Limits and behaviour of a connection, for clients and servers."""

    idle_timeout: float | None
    """Seconds of silence after which the connection is closed; the shorter of both ends' applies.

    0.001 to ten years; None: never. Default: 30.0. RFC 9000 §10.1.
    """
    handshake_timeout: float | None
    """Seconds from the first packet to the end of the handshake, whatever the peer sends meanwhile.

    0.001 to ten years; None: no limit. Default: 30.0. After it: `HandshakeTimeout`; a local limit.
    """
    keep_alive: float | None
    """Seconds of silence after which a PING is sent, so that neither side times out.

    0.001 to ten years; None: never. Default: None. RFC 9000 §10.1.2.
    """
    max_streams_bidi: int
    """Streams in both directions that the peer may have open at a time: 0 to 65536. Default: 100.

    The peer is allowed 28 at first, and more once half of them are open. RFC 9000 §4.6.
    """
    max_streams_uni: int
    """Streams in one direction that the peer may have open at a time: 0 to 65536. Default: 100.

    As with `max_streams_bidi`. RFC 9000 §4.6.
    """
    max_data: int
    """Bytes that the peer may send ahead of the readers, all streams together: 1 to 2^62 - 1.

    Default: 25165824 (24 MiB), which grows to `max_data_grown`. RFC 9000 §4.1.
    """
    max_stream_data: int
    """Bytes that the peer may send ahead of the reader of one stream: 1 to 2^62 - 1.

    Default: 16777216 (16 MiB). RFC 9000 §4.1.
    """
    send_window: int
    """Bytes written and not acknowledged, all streams together, at most: 1 to 2^62 - 1.

    Beyond it `drain()` waits. Default: 16777216 (16 MiB). It follows the path's capacity, from
    `send_window_min` on; a local limit.
    """
    congestion: Literal["cubic", "newreno", "reno", "bbr", "bbr1"]
    """Congestion control: 'cubic' (RFC 9438), 'newreno' (or 'reno'; RFC 9002 §7), 'bbr' (or 'bbr1';
    experimental). Default: 'cubic'.
    """
    datagram_receive_buffer: int | None
    """Bytes of received datagrams that the program has not read: 1 to 2^31 - 1; beyond it the oldest
    are dropped.

    None: accept no datagrams, and announce that. Default: 1048576 (1 MiB). RFC 9221 §3.
    """
    datagram_send_buffer: int
    """Bytes of datagrams that wait to be sent: 1 to 2^31 - 1; beyond it the policy of `send_datagram`
    decides. Default: 262144 (256 KiB). RFC 9221 §5.
    """
    initial_mtu: int
    """Bytes of UDP payload that the path is assumed to carry at first: 1200 to 65527. Default: 1200.

    RFC 9000 §14.
    """
    mtu_max: int | None
    """Bytes of UDP payload up to which the path is probed: 1200 to 65527; None: stay with
    `initial_mtu`. Default: 1452 (Ethernet, IPv6). RFC 9000 §14.3.
    """
    initial_rtt: float
    """Seconds assumed for a round trip at first: 0.000001 to 60. Default: 0.333.

    RFC 9002 §6.2.2.
    """
    ack_frequency: bool
    """Whether the peer may be asked to acknowledge less often, if it supports that. Default: False.

    draft-ietf-quic-ack-frequency.
    """
    reset_stream_at: bool
    """Whether a reset of a stream may deliver its first bytes, if the peer supports it. Default:
    False; True for servers and clients of `ringloop.webtransport`, and for `ringloop.h3.serve` with
    `webtransport=True`. A server with `early_data` must not disable it while its tickets are valid.

    draft-ietf-quic-reliable-stream-reset.
    """
    max_data_grown: int
    """Bytes that `max_data` grows to if readers consume everything within a round trip: 0 to 2^62 - 1;
    up to `max_data`: it does not grow. Default: 67108864 (64 MiB).
    """
    send_window_min: int
    """Bytes of the smallest send window: 1 to 2^62 - 1; from `send_window` on it does not follow
    the path. Default: 1048576 (1 MiB).
    """


class SharedKeywords(TransportKeywords, total=False):
    """Keywords of clients and servers, for TLS and the transport."""

    alpn: Iterable[str | bytes]
    """The application's protocols, the preferred first, each 1 to 255 bytes. Default: () – none.

    RFC 7301; QUIC requires one (RFC 9001 §8.1).
    """
    ca_file: _Path | None
    """Trusted authorities: a file of PEM certificates. Default: None.

    Clients without any `ca_*` use the system's; servers need one for `client_auth`.
    """
    ca_path: _Path | None
    """Trusted authorities: a directory of PEM files. Default: None."""
    ca_data: CertificateSource | None
    """Trusted authorities: certificates in PEM or DER, a path to them, or objects of `cryptography`.
    Default: None.
    """
    system_roots: bool | None
    """Whether to trust the system's authorities in addition to `ca_*`. Default: None – only if a client
    has no `ca_*`.
    """
    certificate: CertificateSource | None
    """This end's certificate and its chain, leaf first. Default: None; a server needs one, or `sni`."""
    private_key: KeySource | None
    """The key of `certificate`. Default: None – it is in the same PEM."""
    password: Password | None
    """The password of an encrypted `private_key`; needs the `cryptography` package. Default: None."""
    keylog: KeyLog | None
    """Where to write secrets, for tools that read recorded packets (NSS format, RFC 9850).

    Default: None – the file that `SSLKEYLOGFILE` names, if any.
    """
    qlog: _Path | Traces | None
    """A directory for a log of each connection (qlog 0.3, for qvis), which must exist.
    Default: None – no logs. draft-ietf-quic-qlog-main-schema.
    """


class _BareClientKeywords(SharedKeywords, total=False):
    """A client's keywords, without any that `connect` has under the same name."""

    verify: bool
    """Whether the server has to prove its name by a trusted certificate. Default: True.

    RFC 9525; False is for tests: then anyone can pose as the server.
    """
    sessions: bool
    """Whether to keep sessions in this configuration for resumption. Default: True. RFC 8446 §2.2."""
    token_store: _Path | None
    """A directory where servers' address tokens are kept for later processes, 8 per server. Only its
    owner may write there. Default: None – in memory. RFC 9000 §8.1.3.
    """
    version: int
    """The version to start with: 1 (RFC 9000) or 2 (RFC 9369). Default: 1."""


class ClientKeywords(_BareClientKeywords, total=False):
    """The keywords of `ClientConfig`."""

    early_data: bool
    """Whether data may be sent with the first packet of a resumed session, which attackers can
    replay. Default: True – if a program requests it with `connect(early_data=True)`. RFC 9001 §4.6.
    """


class ServerKeywords(SharedKeywords, total=False):
    """The keywords of `ServerConfig`."""

    sni: Mapping[str, tuple[CertificateSource, KeySource | None]] | None
    """Certificates by the name that a client requests: name → (certificate, key). Others get
    `certificate`. Default: None. RFC 6066 §3.
    """
    client_auth: Literal["none", "optional", "required"]
    """Whether clients present a certificate; it has to be signed by an authority in `ca_*`.
    Default: 'none'. RFC 8446 §4.3.2.
    """
    sessions: bool | _Path
    """Whether clients may resume: in memory (4096 sessions), or a directory that servers share (65536,
    a week). Default: True. RFC 8446 §2.2.
    """
    early_data: bool
    """Whether to accept data of a resumed session's first packet, which attackers can replay.
    Default: False. RFC 9001 §4.6.
    """
    migration: bool
    """Whether clients may continue from another address. Default: True. RFC 9000 §9."""
    preferred_address: Address | Iterable[Address]
    """The server's preferred address: one, or one of each family. Default: () – none.
    RFC 9000 §9.6.
    """
    token_secret: bytes | None
    """Bytes that address tokens are sealed with; servers with the same ones accept each other's; use at
    least 32 random ones. Default: None – random. RFC 9000 §8.1.
    """
    retry_lifetime: float | None
    """Seconds within which a client has to return the token of a Retry: 1 to ten years.
    Default: 15.0. RFC 9000 §8.1.2.
    """
    tokens: int
    """Address tokens given to a client for its next connections: 0 to 64. Default: 2.
    RFC 9000 §8.1.3.
    """
    incoming_max: int
    """Connections that may wait to be accepted: 1 to 1048576; packets of others are dropped.
    Default: 1024.
    """


class SocketKeywords(TypedDict, total=False):
    """Settings of an endpoint's socket."""

    versions: Iterable[int]
    """The supported versions, the preferred first: of 1 (RFC 9000) and 2 (RFC 9369). Default: (1, 2)."""
    socket_buffer: int
    """Bytes of the socket's kernel buffers, each way: 1 to 2^31 - 1. Default: 4194304 (4
    MiB). SO_RCVBUF, SO_SNDBUF of socket(7).
    """
    gso: bool
    """Whether batches of datagrams are sent in one message. Default: True. UDP_SEGMENT of
    udp(7).
    """
    gro: bool
    """Whether batches of datagrams are received in one message. Default: True. UDP_GRO of
    udp(7).
    """
    ecn: bool
    """Whether packets carry congestion marks. Default: True. RFC 9000 §13.4."""
    segments_max: int
    """Datagrams per batch at most: 1 to 64. Default: 64."""
    udp_payload_max: int
    """Bytes of the longest UDP payload to receive: 1200 to 65527. Default: 1472.
    `max_udp_payload_size` of RFC 9000 §18.2.
    """


class EndpointKeywords(SocketKeywords, total=False):
    """The keywords of `Endpoint`, which `serve` takes in addition to a configuration."""

    retry: Literal["never", "always", "auto"]
    """Whether clients must prove their address before any state is kept; 'auto': while 128
    handshakes are in progress. Default: 'never'. RFC 9000 §8.1.2.
    """
    max_connections: int | None
    """Connections at a time: 1 or more; further clients are refused. Default: None – 65536."""
    reset_secret: bytes | None
    """Bytes that connection ids and stateless resets are derived from; a server restarted with the same
    ones can end its earlier connections. Default: None – random. RFC 9000 §10.3.
    """


class ConnectKeywords(_BareClientKeywords, SocketKeywords, total=False):
    """The keywords of `connect` and `open_connection`: a client's, and its socket's."""


class ServeKeywords(ServerKeywords, EndpointKeywords, total=False):
    """The keywords of `serve`: a server's, and its endpoint's."""
