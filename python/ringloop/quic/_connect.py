"""Clients: a connection with its own socket, or several on one."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from ringloop._arguments import check_bools
from ringloop._native import quic as _quic
from ringloop.quic._driver import bound, look_up
from ringloop.quic._endpoint import Endpoint
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic._race import alternated, first_of
from ringloop.quic.keywords import ConnectKeywords, SocketKeywords

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from ringloop.quic._connection import Connection
    from ringloop.quic.keywords import Address

Opened = TypeVar("Opened")

__all__ = ["client_config", "connect", "open_connection"]


class _Configuration(Protocol):
    def client_config(self) -> _quic.ClientConfig: ...


def client_config(
    configuration: _quic.ClientConfig | _Configuration | None, keywords: dict[str, Any]
) -> _quic.ClientConfig:
    """Return the native configuration for a call's arguments."""
    if configuration is None:
        return _quic.ClientConfig(**keywords)
    if keywords:
        raise TypeError(f"{', '.join(keywords)}: set it in the configuration")
    if isinstance(configuration, _quic.ClientConfig):
        return configuration
    if not hasattr(configuration, "client_config"):
        raise TypeError(f"configuration is {configuration!r}: give a ClientConfig")
    return configuration.client_config()


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
async def open_connection(
    host: str,
    port: int,
    *,
    configuration: _quic.ClientConfig | _Configuration | None = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    early_data: bool = False,
    **keywords: Unpack[ConnectKeywords],
) -> Connection:
    """Connect to a server; close the connection, preferably by using it as a context manager.

    Configured by a `ClientConfig` (or what has a `client_config()`), or by its keywords; the socket
    by its own, or by `endpoint`. `ringloop.quic.keywords` describes each of them. A resumed session
    needs the same `ClientConfig` object. A name's addresses are tried with alternating families, each a
    quarter of a second after the previous one or once that has failed; the first handshake to complete
    wins (RFC 8305). With `early_data` the connection is returned as soon as data can be sent, which
    attackers may replay; then await `wait_connected()` and check `early_data_accepted`.

    Errors: `ConnectError`, `ConnectionClosed` and its subclasses, `OSError` of the look-up and the
    socket.
    """
    refuse_unknown(open_connection, keywords)
    return await begun(
        None,
        host,
        port,
        configuration=configuration,
        server_name=server_name,
        endpoint=endpoint,
        local_address=local_address,
        early_data=early_data,
        keywords={**keywords},
    )


async def begun(
    prepare: Callable[[Connection], object] | None,
    host: str,
    port: int,
    *,
    configuration: _quic.ClientConfig | _Configuration | None,
    server_name: str | None,
    endpoint: Endpoint | None,
    local_address: Address | None,
    early_data: bool,
    keywords: dict[str, Any],
) -> Connection:
    """Connect as `open_connection` does; `prepare` gets each connection before any event of it."""
    check_bools(early_data=early_data)
    settings = _socket_settings(endpoint, keywords)
    config = client_config(configuration, keywords)
    _check_types(endpoint, server_name)
    found = alternated(await look_up(host, port))
    local = [] if local_address is None else await _all_of(local_address)

    async def attempt(target: tuple[int, Any]) -> Connection:
        family, address = target
        own = endpoint
        try:
            if own is None:
                own = _own_endpoint(family, local, settings)
            connection = own.begin(config, address, server_name or host)
            if prepare is not None:
                prepare(connection)
        except BaseException:
            if own is not None and endpoint is None:
                await own.wait_closed()
            raise
        try:
            is_early = early_data and connection.has_early_data
            if is_early and len(found) > 1:
                # After the first packets, which this machine may refuse at once.
                await asyncio.sleep(0)
            if not is_early or connection.is_closed:
                await connection.wait_connected()
        except BaseException:
            connection.close()
            await own._after_close(connection)
            raise
        return connection

    return await first_of(found, attempt)


def _check_types(endpoint: object, server_name: object) -> None:
    if endpoint is not None and not isinstance(endpoint, Endpoint):
        raise TypeError(f"endpoint is {endpoint!r}: give an Endpoint")
    if server_name is not None and not isinstance(server_name, str):
        raise TypeError(f"server_name must be one name, not {server_name!r}")


def _socket_settings(endpoint: Endpoint | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """Remove the socket's settings from the keywords, and return them."""
    names = [name for name in SocketKeywords.__annotations__ if name in keywords]
    settings = {name: keywords.pop(name) for name in names}
    if endpoint is not None and settings:
        raise TypeError(f"{', '.join(settings)}: the endpoint's socket is already configured")
    return settings


async def _all_of(local: Address) -> list[tuple[int, Address]]:
    """Return the addresses to connect from; the zone may be given in either form."""
    given: Any = local
    if not isinstance(given, tuple | list) or len(given) not in (2, 4):
        raise TypeError(f"local_address is {given!r}: give (host, port)")
    host, port, *rest = local
    found = await look_up(host, port, socket.AI_PASSIVE)
    if len(rest) != 2:  # noqa: PLR2004
        return found
    flow, scope = rest
    return [
        (family, (one[0], one[1], flow, scope or one[3]) if len(one) > 2 else one)  # noqa: PLR2004
        for family, one in found
    ]


def _own_endpoint(
    family: int, local: list[tuple[int, Address]], settings: dict[str, Any]
) -> Endpoint:
    if not local:
        address: Address = ("0.0.0.0" if family == socket.AF_INET else "::", 0)  # noqa: S104
    elif of_family := [one for its_family, one in local if its_family == family]:
        address = of_family[0]
    else:
        shown = local[0][1][0]
        raise OSError(
            errno.EAFNOSUPPORT, f"local_address {shown} is not of the server's address family"
        )
    sock = bound(family, address)
    try:
        own = Endpoint(sock, **settings)
    except BaseException:
        sock.close()
        raise
    own._is_private = True
    return own


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
def connect(
    host: str,
    port: int,
    *,
    configuration: _quic.ClientConfig | _Configuration | None = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    early_data: bool = False,
    **keywords: Unpack[ConnectKeywords],
) -> AbstractAsyncContextManager[Connection]:
    """Connect as `open_connection` does, and close at the end of an `async with`.

    `ringloop.quic.keywords` describes the keywords.
    """
    refuse_unknown(connect, keywords)
    opening = partial(
        open_connection,
        host,
        port,
        configuration=configuration,
        server_name=server_name,
        endpoint=endpoint,
        local_address=local_address,
        early_data=early_data,
        **keywords,
    )
    return until_left(opening)


@asynccontextmanager
async def until_left(
    opening: Callable[[], Awaitable[AbstractAsyncContextManager[Opened]]],
) -> AsyncIterator[Opened]:
    """Open at the beginning of an `async with`, and close at its end."""
    async with await opening() as opened:
        yield opened
