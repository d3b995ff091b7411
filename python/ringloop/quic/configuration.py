"""One typed configuration of connections, for both ends and both APIs.

Owns: `QuicConfiguration`, its fields' defaults, and the native configurations made from it. Called
by: `connection`, `asyncio`, the native API's `connect` and `serve`. Never does: leave a server
unverified unless asked to.

Source: the fields' names are those of aioquic, qh3 and aiopquic; where these disagree about a
default, the field's docstring names the source. docs/quic-migration.md describes the other fields.
"""

from __future__ import annotations

import operator
import os
import re
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ringloop._native import quic as _quic
from ringloop.quic._keywords import suggests
from ringloop.quic._material import decrypted, encoded
from ringloop.quic.errors import ConfigurationError
from ringloop.quic.logger import QuicLogger
from ringloop.quic.packet import QuicProtocolVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from ringloop.quic.tls import SessionTicket

__all__ = ["QUIC_V1", "QUIC_V2", "SMALLEST_MAX_DATAGRAM_SIZE", "QuicConfiguration"]

SMALLEST_MAX_DATAGRAM_SIZE: Final = 1200
"""Bytes of UDP payload that every path carries (RFC 9000 §14)."""
QUIC_V1: Final = int(QuicProtocolVersion.VERSION_1)
QUIC_V2: Final = int(QuicProtocolVersion.VERSION_2)

_PathLike = str | os.PathLike[str]


@suggests
@dataclass
class QuicConfiguration:
    """The configuration of connections."""

    alpn_protocols: list[str] | None = None
    """The application's protocols, the preferred first."""
    congestion_control_algorithm: str = "cubic"
    """`cubic`, `newreno` (or `reno`), or `bbr` (or `bbr1`; experimental)."""
    connection_id_length: int = 8
    """Bytes of this end's connection ids: 4 to 20. Shorter than 8, a port soon runs out of them."""
    idle_timeout: float | None = 60.0
    """Seconds of silence after which a connection is closed (the shorter of both ends')."""
    handshake_timeout: float | None = 30.0
    """Total seconds that the handshake may take, whatever the peer sends meanwhile."""
    keep_alive_interval: float | None = None
    """Seconds of silence after which a PING is sent."""
    is_client: bool = True
    """Which end this is."""
    max_data: int = 24 << 20
    """Bytes that the peer may send ahead of the program, all streams together."""
    max_stream_data: int = 16 << 20
    """The same for one stream. Credit is returned as the program takes events, not as bytes
    arrive.
    """
    max_streams_bidi: int = 128
    """Bidirectional streams that the peer may have open at a time."""
    max_streams_uni: int = 128
    """Unidirectional streams that the peer may have open at a time."""
    send_window: int = 16 << 20
    """Bytes written and not acknowledged, all streams together; writes beyond it are queued."""
    tx_max_queued_bytes: int | None = 256 << 20
    """Bytes that may be queued past the window; `QuicConnection.send_stream_data` then raises
    `BufferError`. A writer of `create_stream` never reaches it: its `drain` waits. `None`: no
    limit."""
    max_datagram_size: int = SMALLEST_MAX_DATAGRAM_SIZE
    """Bytes of UDP payload that the path is assumed to carry at first."""
    probe_datagram_size: bool = True
    """Whether to probe the path for more, up to 1452 bytes."""
    max_datagram_frame_size: int | None = None
    """`None`: DATAGRAM frames are off (as in aioquic); any number but 0: they are on."""
    datagram_ring_bytes: int = 1 << 20
    """Bytes of received datagrams that the program has not read; beyond it the oldest are dropped."""
    datagram_send_bytes: int = 256 << 10
    """Bytes of datagrams that wait to be sent; `send_datagram_frame` reports a full buffer."""
    socket_buffer_size: int = 4 << 20
    """Bytes of the socket's kernel buffers, each way."""
    initial_rtt: float = 0.1
    """Assumed initial round-trip time in seconds."""
    max_connections: int | None = None
    """Servers: connections at a time; more are refused."""

    server_name: str | None = None
    """Clients: the name to request and to verify; by default the host's."""
    verify_mode: int | None = None
    """A constant `ssl.CERT_…`; `None`: clients verify, servers ask for no certificate."""
    cafile: str | None = None
    """Trusted authorities: a PEM file. Without any of these three: the system's."""
    capath: str | None = None
    """Trusted authorities: a directory of PEM files."""
    cadata: bytes | str | None = None
    """Trusted authorities: PEM or DER."""
    certificate: Any = None
    """This end's certificate: PEM or DER bytes, or an object of `cryptography`."""
    certificate_chain: list[Any] = field(default_factory=list)
    """The intermediate certificates, in the same forms."""
    private_key: Any = None
    """Its key, in the same forms."""
    certificate_file: _PathLike | None = None
    """aiopquic's spelling of `load_cert_chain`."""
    private_key_file: _PathLike | None = None
    """aiopquic's spelling of `load_cert_chain`."""
    secrets_log_file: TextIO | _PathLike | None = None
    """Where to write secrets (NSS format): an open text file or a path; `None`: the file that
    `SSLKEYLOGFILE` names.
    """
    session_ticket: SessionTicket | None = None
    """Clients: the session to resume, from a `session_ticket_handler`."""
    session_ticket_file: _PathLike | None = None
    """Clients: keep sessions under this name, in this process (see `SessionTicket`), and resume
    them.
    """
    token: bytes = b""
    """Clients: the address token of the server, from a `token_handler`."""
    supported_versions: list[int] = field(default_factory=lambda: [QUIC_V1, QUIC_V2])
    """The supported versions, the preferred first."""
    original_version: int | None = None
    """Clients: the version to start with; by default the first of `supported_versions`."""

    hostname_checks_common_name: bool = False
    """qh3's: only alternative names are verified (RFC 9525), so True is refused."""
    verify_hostname: bool = True
    """qh3's: the name is always verified, so False is refused."""
    assert_fingerprint: str | None = None
    """qh3's: certificate pinning is not supported, so a fingerprint is refused."""
    quic_logger: QuicLogger | None = None
    """Where to write the connections' traces: `ringloop.quic.logger`."""

    def load_cert_chain(
        self,
        certfile: _PathLike,
        keyfile: _PathLike | None = None,
        password: bytes | str | Callable[[], bytes | str] | None = None,
    ) -> None:
        """Read this end's certificate, its chain and its key (PEM).

        Without `keyfile` the key is in `certfile`, or follows as `private_key`. A key with a
        password needs the `cryptography` package. Errors: OSError; ValueError for an
        invalid certificate or key.
        """
        with open(certfile, "rb") as file:  # noqa: PTH123 (fspath of any kind)
            chain = file.read()
        key = chain
        if keyfile is not None:
            with open(keyfile, "rb") as file:  # noqa: PTH123
                key = file.read()
        if password is not None:
            key = decrypted(key, password)
        label = b"CERTIFICATE-----"
        if b"PRIVATE KEY-----" in chain and label not in chain and label in key:
            raise ConfigurationError(
                "the certificate and the private key are swapped: give each in the other's place"
                f" (certificate: {os.fspath(certfile)}, private_key: {os.fspath(keyfile or '')})"
            )
        if b"-----BEGIN CERTIFICATE-----" not in chain:
            raise ValueError(f"No certificate in {os.fspath(certfile)}")
        if b"PRIVATE KEY-----" in key:
            self.private_key = key
        elif keyfile is not None:
            raise ValueError(f"No private key in {os.fspath(keyfile)}")
        self.certificate, self.certificate_chain = chain, []

    def load_verify_locations(
        self,
        cafile: str | None = None,
        capath: str | None = None,
        cadata: bytes | str | None = None,
    ) -> None:
        """Trust these authorities and no others."""
        self.cafile, self.capath, self.cadata = cafile, capath, cadata

    def client_config(self, *, probes: bool = True) -> Any:
        """Return the native configuration of a client; equal settings (and files) share one.

        Without `probes` the path's MTU is not probed: the sender may not be able to forbid
        fragmentation.
        """
        settings = self._settings(probes=probes)
        settings.update(
            verify=self._verifies(),
            early_data=True,
            version=self.original_version or self.supported_versions[0],
        )
        return self._made(_quic.ClientConfig, settings)

    def server_config(self, *, early_data: bool = False, probes: bool = True) -> Any:
        """Return the native configuration of a server; equal settings share one, and its sessions."""
        settings = self._settings(probes=probes)
        if "certificate" not in settings:
            raise ValueError("A server needs a certificate: load_cert_chain()")
        settings.update(client_auth=_CLIENT_AUTH[self.verify_mode or 0], early_data=early_data)
        return self._made(_quic.ServerConfig, settings)

    def _verifies(self) -> bool:
        return self.verify_mode != ssl.CERT_NONE

    def new_connection_id(self) -> bytes:
        """Return a random connection id of the configured length."""
        length = self.connection_id_length
        if isinstance(length, bool) or not hasattr(length, "__index__"):
            raise TypeError(f"connection_id_length is {length!r}: give a whole number, 4 to 20")
        if not 4 <= operator.index(length) <= 20:  # noqa: PLR2004
            raise ConfigurationError(f"connection_id_length is {length}: give 4 to 20")
        return os.urandom(length)

    def memory(self) -> Any:
        """Return the state of earlier connections for a client's next one."""
        if self.session_ticket is None and self.session_ticket_file is not None:
            return _named_memory(os.fspath(self.session_ticket_file))
        return _quic.Memory(ticket=self.session_ticket, token=self.token)

    def _refuse(self) -> None:
        """Refuse settings that would be silently ignored."""
        refused = {
            "hostname_checks_common_name": self.hostname_checks_common_name,
            "verify_hostname=False": not self.verify_hostname,
            "assert_fingerprint": self.assert_fingerprint,
        }
        for name, is_asked in refused.items():
            if is_asked:
                raise ValueError(
                    f"QuicConfiguration does not support {name}: see docs/quic-migration.md"
                )

    def _settings(self, *, probes: bool) -> dict[str, Any]:
        self._refuse()
        logger = self.quic_logger
        if logger is not None and not isinstance(logger, QuicLogger):
            raise ValueError("quic_logger must be a logger of ringloop.quic.logger")
        probes = probes and self.probe_datagram_size
        settings: dict[str, Any] = {
            "alpn": _names(self.alpn_protocols),
            "ca_file": self.cafile,
            "ca_path": self.capath,
            "ca_data": self.cadata,
            "idle_timeout": self.idle_timeout,
            "handshake_timeout": self.handshake_timeout,
            "keep_alive": self.keep_alive_interval,
            "max_streams_bidi": self.max_streams_bidi,
            "max_streams_uni": self.max_streams_uni,
            "max_data": self.max_data,
            "max_stream_data": self.max_stream_data,
            "send_window": self.send_window,
            "congestion": self.congestion_control_algorithm,
            "datagram_receive_buffer": self.datagram_ring_bytes
            if self.max_datagram_frame_size
            else None,
            "datagram_send_buffer": self.datagram_send_bytes,
            "initial_mtu": self.max_datagram_size,
            "mtu_max": _mtu_max(self.max_datagram_size) if probes else None,
            "initial_rtt": self.initial_rtt,
            "qlog": None if logger is None else logger.native,
        }
        if (certificate := self._certificate()) is not None:
            settings["certificate"], settings["private_key"] = certificate
        return settings

    def _certificate(self) -> tuple[tuple[bytes, ...], bytes] | None:
        if self.certificate is None and self.certificate_file is not None:
            self.load_cert_chain(self.certificate_file, self.private_key_file)
        if self.certificate is None:
            return None
        if self.private_key is None:
            raise ValueError("The certificate's key is missing: load_cert_chain(), or private_key")
        chain = (self.certificate, *self.certificate_chain)
        return tuple(encoded(one) for one in chain), encoded(self.private_key)

    def _made(self, make: Callable[..., Any], settings: dict[str, Any]) -> Any:
        # Keyed by the files' current state: changed or removed authorities take effect at once.
        trust = (_state_of(self.cafile), _states_in(self.capath))
        key = (make, trust, *settings.items())
        with by_field():
            return self._shared_or_kept(key, make, settings)

    def _shared_or_kept(
        self, key: tuple[Any, ...], make: Callable[..., Any], settings: dict[str, Any]
    ) -> Any:
        if (log := self.secrets_log_file) is None:
            return _shared(key)
        # An open file belongs to this configuration: it and its copies keep what is made with it.
        kept: dict[object, Any] = self.__dict__.setdefault("_kept", {})
        key = (id(log), *key)
        if (made := kept.get(key)) is None:
            made = kept.setdefault(key, make(**settings, keylog=_key_log(log)))
        return made


def _names(protocols: Any) -> tuple[Any, ...]:
    """Return protocol names as a cache key; a single str is rejected, not split into letters."""
    if protocols is None:
        return ()
    if isinstance(protocols, str | bytes | bytearray | memoryview):
        raise TypeError(f"alpn_protocols must be a list of protocols, not {protocols!r}")
    return tuple(
        bytes(name) if isinstance(name, bytearray | memoryview) else name for name in protocols
    )


_MTU_MAX: Final = 1452
"""Ethernet's 1500 bytes, less the headers of IPv6 and UDP."""


def _mtu_max(initial: Any) -> int:
    """Return the probing limit; a value of another type is refused later, as `max_datagram_size`."""
    return max(_MTU_MAX, operator.index(initial)) if hasattr(initial, "__index__") else _MTU_MAX


_CLIENT_AUTH: Final = {
    int(ssl.CERT_NONE): "none",
    int(ssl.CERT_OPTIONAL): "optional",
    int(ssl.CERT_REQUIRED): "required",
}


# Native names of fields that have another name here.
_FIELDS: Final = {
    "alpn": "alpn_protocols",
    "ca_data": "cadata",
    "ca_file": "cafile",
    "ca_path": "capath",
    "congestion": "congestion_control_algorithm",
    "datagram_receive_buffer": "datagram_ring_bytes",
    "datagram_send_buffer": "datagram_send_bytes",
    "initial_mtu": "max_datagram_size",
    "keep_alive": "keep_alive_interval",
    "socket_buffer": "socket_buffer_size",
    "versions": "supported_versions",
}
_NAMED: Final = re.compile(rf"\b(?:{'|'.join(_FIELDS)})\b")


@contextmanager
def by_field() -> Iterator[None]:
    """Make the error of a refused setting name the field that set it."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = str(error)
        named = _NAMED.sub(lambda found: _FIELDS[found[0]], text, count=1)
        if named == text or type(error) not in {TypeError, ValueError, ConfigurationError}:
            raise
        raise type(error)(named) from None


_SHARED: Final[dict[tuple[Any, ...], Any]] = {}
_MEMORIES: Final[dict[str, Any]] = {}
_SHARED_MAX: Final = 64


def _shared(key: tuple[Any, ...]) -> Any:
    """Make a native configuration once, as long as the files of the authorities do not change.

    Loading the system's authorities takes milliseconds, and a session is resumed only under the
    configuration that verified its certificate.
    """
    made = _SHARED.get(key)
    if made is None:
        make, _trust, *settings = key
        made = _keep(_SHARED, key, make(**dict(settings)))
    return made


def _state_of(path: _PathLike | None) -> tuple[int, ...] | None:
    """Return a fingerprint of a file's contents; `None` if there is no such file."""
    if path is None:
        return None
    try:
        return _identity(os.stat(path))  # noqa: PTH116 (a path of any kind)
    except OSError:
        return None  # reading it will raise the error


def _states_in(path: _PathLike | None) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
    """Return the same for each file of a directory, whose own times do not show writes to its files."""
    if path is None:
        return ()
    try:
        with os.scandir(path) as entries:
            return tuple(sorted((entry.name, _state_of(entry.path)) for entry in entries))
    except OSError:
        return ()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _named_memory(name: str) -> Any:
    memory = _MEMORIES.get(name)
    if memory is None:
        memory = _keep(_MEMORIES, name, _quic.Memory(keeps=True))
    return memory


def _keep(kept: dict[Any, Any], key: object, value: object) -> Any:
    """Cache a value, and drop the oldest if there are many.

    Returns the cached value, which is another thread's if that one was first. No lock: making a
    value may run the program's code (a finaliser, a signal handler), which may ask for one, too.
    """
    if len(kept) >= _SHARED_MAX:
        # A list, as other threads may be adding.
        kept.pop(next(iter(list(kept)), None), None)
    return kept.setdefault(key, value)


def _key_log(log: TextIO | _PathLike) -> Any:
    if isinstance(log, str | os.PathLike):
        return os.fspath(log)
    if not hasattr(log, "write"):
        raise TypeError(f"secrets_log_file must be an open text file or a path, not {log!r}")

    def write(line: str) -> None:
        log.write(line if line.endswith("\n") else line + "\n")
        log.flush()

    return write
