"""Clients: a session on its own connection, or several on one."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from ringloop._native import quic as _quic
from ringloop._native import webtransport as _webtransport
from ringloop.h3._client import target_of
from ringloop.h3._exchange import encoded
from ringloop.h3._limits import limits_of
from ringloop.quic._connect import begun, until_left
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic.errors import ConnectError
from ringloop.quic.keywords import ConnectKeywords
from ringloop.webtransport._session import Session, shared
from ringloop.webtransport._x509 import unmet_rule

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractAsyncContextManager

    from ringloop.h3._exchange import Fields
    from ringloop.h3._limits import SessionLimits
    from ringloop.quic._connection import Connection
    from ringloop.quic._endpoint import Endpoint
    from ringloop.quic.keywords import Address

__all__ = ["connect", "open_session"]

_HTTPS_PORT = 443
_HASH_LEN = 32
_REQUEST_REJECTED = 0x10B
_REQUEST_CANCELLED = 0x10C
# draft-ietf-webtrans-http3-16 §9.5.
_REQUIREMENTS_NOT_MET = 0x212C0D48


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
async def open_session(
    url: str,
    *,
    headers: Fields = (),
    protocols: Sequence[str] = (),
    certificate_hashes: Collection[bytes] = (),
    limits: SessionLimits | None = None,
    connection: Connection | None = None,
    connect_to: tuple[str, int] | None = None,
    configuration: Any = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    **keywords: Unpack[ConnectKeywords],
) -> Session:
    """Request a session at `https://host[:port]/path`, and wait for the response.

    Close the session, preferably by using it as a context manager, which also closes the connection if
    it was made for the session; `connection=` is that of another session, shared by both if the server
    allows several. `headers`: fields of the request, such as `{"origin": "https://example.org"}`.
    `protocols`: the offered sub-protocols, the preferred first; `session.protocol` is the server's
    choice. `connect_to`: the host and port to connect to, if they differ from the URL's, which the
    request and the certificate still name.

    `certificate_hashes`: SHA-256 hashes of certificates, one of which the server has to present; no
    authority is needed then. By the rules of browsers' `serverCertificateHashes` it has a key of ECDSA
    P-256, is valid for at most 14 days, and now. For the other keywords see `ringloop.quic.keywords`.

    Errors: `SessionRejected`; `ConnectError` if the server does not support WebTransport, or
    accepts no more sessions, or presents another certificate; those of `ringloop.quic.open_connection`.
    """
    refuse_unknown(open_session, keywords)
    if isinstance(protocols, str):
        raise TypeError(f"protocols is {protocols!r}: give a list of them")
    host, port, authority, path = _parts(url)
    if connection is not None:
        settings = {
            "certificate_hashes": certificate_hashes,
            "limits": limits,
            "connect_to": connect_to,
            "configuration": configuration,
            "server_name": server_name,
            "endpoint": endpoint,
            "local_address": local_address,
        }
        _refuse_settings([*(name for name, value in settings.items() if value), *keywords])
        shared.add(connection)
        return await _opened(connection, authority, path, headers, protocols)
    target = target_of(connect_to, host, port)
    hashes = _checked_hashes(certificate_hashes)
    if configuration is None:
        keywords.setdefault("alpn", ["h3"])
        keywords.setdefault("reset_stream_at", True)
        if hashes:
            keywords["verify"] = False
    native = limits_of(limits)._native()
    connection = await begun(
        partial(_drive, native),
        *target,
        configuration=configuration,
        server_name=server_name or host,
        endpoint=endpoint,
        local_address=local_address,
        early_data=False,
        keywords={**keywords},
    )
    try:
        _check_certificate(connection, hashes)
        session = await _opened(connection, authority, path, headers, protocols)
    except BaseException as error:
        unmet = isinstance(error, ConnectError)
        connection.close(_REQUIREMENTS_NOT_MET if unmet else _REQUEST_CANCELLED)
        await connection.endpoint._after_close(connection)
        raise
    session._own_connection()
    return session


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
def connect(
    url: str,
    *,
    headers: Fields = (),
    protocols: Sequence[str] = (),
    certificate_hashes: Collection[bytes] = (),
    limits: SessionLimits | None = None,
    connection: Connection | None = None,
    connect_to: tuple[str, int] | None = None,
    configuration: Any = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    **keywords: Unpack[ConnectKeywords],
) -> AbstractAsyncContextManager[Session]:
    """Open a session as `open_session` does, and close it at the end of an `async with`."""
    refuse_unknown(connect, keywords)
    opening = partial(
        open_session,
        url,
        headers=headers,
        protocols=protocols,
        certificate_hashes=certificate_hashes,
        limits=limits,
        connection=connection,
        connect_to=connect_to,
        configuration=configuration,
        server_name=server_name,
        endpoint=endpoint,
        local_address=local_address,
        **keywords,
    )
    return until_left(opening)


def _refuse_settings(names: Collection[str]) -> None:
    """Refuse what would be ignored."""
    if names:
        raise TypeError(f"{', '.join(names)}: the connection is already open")


def _drive(limits: tuple[int, tuple[int, int, int] | None], connection: Connection) -> None:
    _webtransport.drive(connection, *limits)


async def _opened(
    connection: Connection, authority: str, path: str, headers: Fields, protocols: Sequence[str]
) -> Session:
    while (takes := _webtransport.takes_session(connection)) is None:
        await connection._waiter("progress")
    if not takes:
        raise ConnectError("the connection has its maximum of sessions: close one first")
    fields = encoded(headers)
    while True:
        asked = _webtransport.open_session(connection, authority, path, fields, list(protocols))
        if asked is not None:
            break
        await connection._waiter("open")
    session = Session(connection, asked)
    try:
        while session._is_pending:
            session._check()
            await session._waiter()
        # An accepted session may be closed by now; the caller will see that.
        if (session.status or 0) // 100 != 2:  # noqa: PLR2004
            _check_rejected(session)
            session._check()
    except BaseException:
        session._cancel()
        raise
    return session


def _check_rejected(session: Session) -> None:
    end = session._end
    if end is not None and end[:2] == ("reset", _REQUEST_REJECTED):
        raise ConnectError(
            "the server did not process the request for a session: it allows no more on this"
            " connection, or is going away; the request may be repeated"
        )


def _parts(url: str) -> tuple[str, int, str, str]:
    """Return host, port, authority and path of a URL."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"{url!r} is not the URL of a session: give https://host[:port]/path")
    path = parts.path or "/"
    if parts.query:
        path = f"{path}?{parts.query}"
    return parts.hostname, parts.port or _HTTPS_PORT, parts.netloc, path


def _checked_hashes(hashes: Collection[bytes]) -> tuple[bytes, ...]:
    for one in hashes:
        if not _is_hash(one):
            raise ValueError(
                f"certificate_hashes has {one!r}, which is no SHA-256 hash of 32 bytes"
                " (certificate_hash() makes them)"
            )
    return tuple(hashes)


def _is_hash(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == _HASH_LEN


def _check_certificate(connection: Connection, hashes: tuple[bytes, ...]) -> None:
    """Nothing was sent yet: the handshake has proved that the server has the certificate's key."""
    if not hashes:
        return
    certificate = connection.peer_certificate or b""
    shown = hashlib.sha256(certificate).digest()
    if shown not in hashes:
        raise ConnectError(
            "the server's certificate is none of certificate_hashes: its SHA-256 is " + shown.hex()
        )
    if (cause := unmet_rule(certificate)) is not None:
        raise ConnectError(
            f"the server's certificate is one of certificate_hashes, but {cause}: the rules of"
            " serverCertificateHashes refuse it (certificate_for_browsers() makes one that they allow)"
        )
