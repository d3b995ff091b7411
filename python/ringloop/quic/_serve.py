"""Servers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from ringloop._arguments import check_bools
from ringloop._native import quic as _quic
from ringloop.quic._driver import bound, look_up
from ringloop.quic._endpoint import Endpoint
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic._workers import Worker
from ringloop.quic.keywords import EndpointKeywords, ServeKeywords

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringloop.quic._connection import Connection
    from ringloop.quic._stream import Stream
    from ringloop.quic.errors import ConnectionClosed

__all__ = ["serve"]

_Endpoint = TypeVar("_Endpoint", bound=Endpoint)


class _Configuration(Protocol):
    def server_config(self) -> _quic.ServerConfig: ...


@shows(ServeKeywords, _quic.ServerConfig, _quic.Endpoint)
async def serve(
    handler: Callable[[Connection], Awaitable[object]] | None = None,
    host: str | None = None,
    port: int = 0,
    *,
    configuration: _quic.ServerConfig | _Configuration | None = None,
    stream_handler: Callable[[Stream], Awaitable[object]] | None = None,
    on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
    sock: socket.socket | None = None,
    reuse_port: bool = False,
    worker: Worker | None = None,
    **keywords: Unpack[ServeKeywords],
) -> Endpoint:
    """Accept connections at an address.

    `host` is an address or a name, whose first address is used; None means every address of
    both families. Configured by a `ServerConfig` (or an object with `server_config()`), or by
    its keywords, plus those of `Endpoint`. `ringloop.quic.keywords` describes each of them. See
    `Endpoint` for how the handlers' connections and streams end.

    `worker`: one of `bind_workers`, instead of an address. `reuse_port` alone lets several servers
    bind one address, but clients that migrate between them are lost.
    """
    refuse_unknown(serve, keywords)

    def make(sock: socket.socket, server: _quic.ServerConfig, settings: dict[str, Any]) -> Endpoint:
        return Endpoint(
            sock,
            server=server,
            handler=handler,
            stream_handler=stream_handler,
            on_handshake_failed=on_handshake_failed,
            worker=worker,
            **settings,
        )

    where = (host, port, sock, reuse_port)
    return await begun(make, where, configuration, worker, {**keywords})


async def begun(
    make: Callable[[socket.socket, _quic.ServerConfig, dict[str, Any]], _Endpoint],
    where: tuple[str | None, int, socket.socket | None, bool],
    configuration: _quic.ServerConfig | _Configuration | None,
    worker: Worker | None,
    given: dict[str, Any],
) -> _Endpoint:
    """Make a server's endpoint as `serve` describes it."""
    host, port, sock, reuse_port = where
    check_bools(reuse_port=reuse_port)
    settings = {name: given.pop(name) for name in EndpointKeywords.__annotations__ if name in given}
    if configuration is None:
        config = _quic.ServerConfig(**given)
    elif given:
        raise TypeError(f"{', '.join(given)}: set it in the configuration")
    elif isinstance(configuration, _quic.ServerConfig):
        config = configuration
    elif not hasattr(configuration, "server_config"):
        raise TypeError(f"configuration is {configuration!r}: give a ServerConfig")
    else:
        config = configuration.server_config()
    if worker is not None:
        if not isinstance(worker, Worker):
            raise TypeError(f"worker is {worker!r}: give one of bind_workers()")
        sock = worker.sock
    if sock is not None and not isinstance(sock, socket.socket):
        raise TypeError(f"sock is {sock!r}: give a socket.socket")
    if sock is None:
        # As in asyncio's servers, no host means all addresses.
        wanted = "::" if host is None or host == "" else host
        family, address = (await look_up(wanted, port, socket.AI_PASSIVE))[0]
        sock = bound(family, address, reuse_port=reuse_port)
    try:
        return make(sock, config, settings)
    except BaseException:
        sock.close()
        raise
