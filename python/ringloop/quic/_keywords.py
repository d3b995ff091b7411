"""Keywords at run time: signatures that show them, and errors for unknown ones.

Owns: the keywords that correspond to those of other libraries. Called by: `_connect`, `_serve`,
`_endpoint` and `configuration`, on definition and on call; native code if a configuration is refused.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ringloop._native import quic as _quic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "check_functions",
    "refuse_unknown",
    "shows",
    "suggests",
    "unexpected",
    "unexpected_of",
]

_Kind = TypeVar("_Kind")
_Function = TypeVar("_Function", bound="Callable[..., Any]")

# Names in asyncio, ssl, aioquic, quic-go, hypercorn and RFC 9000; the first one known is meant.
_MEANT: dict[str, tuple[str, ...]] = {
    "alpn_protocols": ("alpn",),
    "application_protocol": ("alpn",),
    "next_protos": ("alpn",),
    "protocols": ("alpn",),
    "cafile": ("ca_file",),
    "ca": ("ca_file",),
    "ca_certs": ("ca_file",),
    "capath": ("ca_path",),
    "cadata": ("ca_data",),
    "cert": ("certificate",),
    "certs": ("certificate",),
    "cert_file": ("certificate_file", "certificate"),
    "certfile": ("certificate_file", "certificate"),
    "certificate_file": ("certificate",),
    "certificate_chain": ("certificate",),
    "ssl_certfile": ("certificate_file", "certificate"),
    "key": ("private_key",),
    "key_file": ("private_key_file", "private_key"),
    "keyfile": ("private_key_file", "private_key"),
    "private_key_file": ("private_key",),
    "ssl_keyfile": ("private_key_file", "private_key"),
    "keyfile_password": ("password",),
    "passphrase": ("password",),
    "ssl": ("ca_file", "certificate"),
    "ssl_context": ("ca_file", "certificate"),
    "tls": ("ca_file", "certificate"),
    "verify_mode": ("client_auth", "verify"),
    "verify_ssl": ("verify",),
    "check_hostname": ("verify",),
    "verify_hostname": ("verify",),
    "insecure": ("verify",),
    "server_hostname": ("server_name",),
    "sni_callback": ("sni",),
    "timeout": ("handshake_timeout", "idle_timeout"),
    "connect_timeout": ("handshake_timeout", "idle_timeout"),
    "connection_timeout": ("handshake_timeout", "idle_timeout"),
    "max_idle_timeout": ("idle_timeout",),
    "keepalive": ("keep_alive",),
    "keep_alive_interval": ("keep_alive",),
    "ping_interval": ("keep_alive",),
    "initial_max_data": ("max_data",),
    "initial_max_stream_data": ("max_stream_data",),
    "initial_max_stream_data_bidi_local": ("max_stream_data",),
    "initial_max_stream_data_bidi_remote": ("max_stream_data",),
    "initial_max_stream_data_uni": ("max_stream_data",),
    "initial_max_streams_bidi": ("max_streams_bidi",),
    "initial_max_streams_uni": ("max_streams_uni",),
    "max_concurrent_streams": ("max_streams_bidi",),
    "max_streams": ("max_streams_bidi",),
    "congestion_control": ("congestion",),
    "congestion_control_algorithm": ("congestion",),
    "datagram_ring_bytes": ("datagram_receive_buffer",),
    "datagram_send_bytes": ("datagram_send_buffer",),
    "max_datagram_frame_size": ("datagram_receive_buffer",),
    "max_datagram_size": ("initial_mtu",),
    "max_udp_payload_size": ("udp_payload_max",),
    "secrets_log_file": ("keylog",),
    "keylog_file": ("keylog",),
    "keylog_filename": ("keylog",),
    "quic_logger": ("qlog",),
    "qlog_dir": ("qlog",),
    "session_ticket": ("sessions",),
    "session_ticket_file": ("sessions",),
    "session_ticket_handler": ("sessions",),
    "token": ("token_store", "token_secret"),
    "token_handler": ("token_store",),
    "supported_versions": ("versions", "version"),
    "original_version": ("version",),
    "quic_version": ("version", "versions"),
    "local_addr": ("local_address",),
    "local_port": ("local_address",),
    "backlog": ("incoming_max",),
    "reuse_address": ("reuse_port",),
    "create_protocol": ("handler",),
    "protocol_factory": ("handler",),
    "client_connected_cb": ("handler",),
    "workers": ("worker",),
    "config": ("configuration",),
    # The reverse: names in aioquic's configuration.
    "alpn": ("alpn_protocols",),
    "ca_data": ("cadata",),
    "ca_file": ("cafile",),
    "ca_path": ("capath",),
    "verify": ("verify_mode",),
    "client_auth": ("verify_mode",),
    "keep_alive": ("keep_alive_interval",),
    "congestion": ("congestion_control_algorithm",),
    "datagram_receive_buffer": ("datagram_ring_bytes",),
    "datagram_send_buffer": ("datagram_send_bytes",),
    "initial_mtu": ("max_datagram_size",),
    "socket_buffer": ("socket_buffer_size",),
    "keylog": ("secrets_log_file",),
    "qlog": ("quic_logger",),
    "versions": ("supported_versions",),
    "version": ("original_version",),
}


def unexpected(function: str, name: str, names: Iterable[str]) -> TypeError:
    """Return the error for an unknown keyword of `function`, in the interpreter's words."""
    import difflib  # noqa: PLC0415  # for mistakes alone

    text = f"{function}() got an unexpected keyword argument '{name}'"
    known = list(names)
    meant = [other for other in _MEANT.get(name.lower(), ()) if other in known]
    meant += difflib.get_close_matches(name.lower(), known, 1, 0.7)
    return TypeError(f"{text}. Did you mean '{meant[0]}'?" if meant else text)


def unexpected_of(function: str, given: Mapping[str, object]) -> TypeError | None:
    """Return the error for the first unknown keyword of a native class, or None."""
    known = inspect.signature(getattr(_quic, function)).parameters
    strangers = (unexpected(function, name, known) for name in given if name not in known)
    return next(strangers, None)


def refuse_unknown(function: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Raise the error for the first unknown keyword of a function that `shows` its keywords."""
    known = inspect.signature(function).parameters
    for name in given:
        if name not in known:
            raise unexpected(function.__qualname__, name, known)


def check_functions(**given: Any) -> None:
    """Raise a TypeError for the first argument that must be callable and is not."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} is {value!r}: give a function")


_DEFAULTS: dict[type, dict[str, Any]] = {}


def _defaults(maker: type) -> dict[str, Any]:
    """Return the defaults, cached: parsing a native signature takes longer than importing a module."""
    if maker not in _DEFAULTS:
        parameters = inspect.signature(maker).parameters
        _DEFAULTS[maker] = {name: parameter.default for name, parameter in parameters.items()}
    return _DEFAULTS[maker]


def suggests(kind: type[_Kind]) -> type[_Kind]:
    """Make a data class suggest the intended field for an unknown keyword."""
    make: Callable[..., None] = kind.__init__
    fields = tuple(inspect.signature(kind).parameters)

    @wraps(make)
    def init(self: _Kind, *arguments: Any, **given: Any) -> None:
        for name in given:
            if name not in fields:
                raise unexpected(make.__qualname__, name, fields)
        make(self, *arguments, **given)

    kind.__init__ = init  # type: ignore[assignment, method-assign]
    return kind


def shows(kind: type, *makers: type) -> Callable[[_Function], _Function]:
    """Make `inspect.signature` and `help` show a `TypedDict`'s keywords instead of `**keywords`.

    Their defaults are those of the corresponding native classes.
    """
    defaults: dict[str, Any] = {}
    for maker in makers:
        defaults.update(_defaults(maker))

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        parameters = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name],
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in kind.__annotations__.items()
        ]
        shown = signature.replace(parameters=parameters)
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return decorate
