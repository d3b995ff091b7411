"""A client: one connection to a server, and requests on it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

from ringloop._native import h3 as _h3
from ringloop._native import quic as _quic
from ringloop.h3._exchange import Response, encoded
from ringloop.quic._connect import begun
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic.errors import StreamStoppedError
from ringloop.quic.keywords import ConnectKeywords

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from ringloop.h3._exchange import Fields
    from ringloop.quic._connection import Connection
    from ringloop.quic._endpoint import Endpoint
    from ringloop.quic.keywords import Address

    _Data = bytes | bytearray | memoryview

__all__ = ["Client", "connect", "open_client"]

_NO_ERROR = 0x100
_REQUEST_CANCELLED = 0x10C


class Client:
    """Requests on a connection.

    As a context manager it is closed at the end.
    """

    def __init__(self, connection: Connection, authority: str) -> None:
        self.connection = connection
        self.authority = authority

    async def request(
        self,
        method: str,
        path: str,
        headers: Fields = (),
        body: _Data | AsyncIterable[_Data] | None = None,
        *,
        trailers: Fields | None = None,
    ) -> Response:
        """Send a request, and wait for the response's fields; its body is to be read.

        `ConnectError`: the server takes no more requests on this connection, and this one was not sent.
        `StreamResetError`, `StreamError`, `ConnectionClosed`: there will be no response.
        """
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", self.authority.encode()),
            (b":path", path.encode()),
            *encoded(headers),
        ]
        response = await self.open(fields, end=body is None and trailers is None)
        try:
            await _send(response, body, trailers)
        except StreamStoppedError as error:
            # The server needs no more of it to respond (RFC 9114 §4.1).
            if error.code != _NO_ERROR:
                raise
        await response._wait_head()
        return response

    async def open(self, fields: list[tuple[bytes, bytes]], *, end: bool = False) -> Response:
        """Send a request's fields, the pseudo-header fields first, once the server allows a request."""
        while (stream_id := _h3.open_exchange(self.connection, fields, end)) is None:
            await self.connection._waiter("open")
        return Response(self.connection, stream_id, end)

    @property
    def is_going_away(self) -> bool:
        """Whether the server takes no more requests on this connection."""
        return _h3.is_going_away(self.connection)

    def close(self) -> None:
        """Close the connection; what was sent goes first."""
        self.connection.close(_NO_ERROR)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.connection.close(_NO_ERROR if kind is None else _REQUEST_CANCELLED)
        await self.connection.endpoint._after_close(self.connection)

    def __repr__(self) -> str:
        return f"<Client of {self.authority} on {self.connection!r}>"


async def _send(
    response: Response, body: _Data | AsyncIterable[_Data] | None, trailers: Fields | None
) -> None:
    """Send the rest of a request."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        await response.send(body, end=trailers is None)
    elif body is not None:
        async for piece in body:
            await response.send(piece)
        if trailers is None:
            await response.send(b"", end=True)
    if trailers is not None:
        response.send_trailers(encoded(trailers))


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
async def open_client(
    host: str,
    port: int = 443,
    *,
    configuration: Any = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    **keywords: Unpack[ConnectKeywords],
) -> Client:
    """Connect to a server of HTTP/3; the client is to be closed, best as a context manager.

    As `ringloop.quic.open_connection`, with its keywords and errors; `alpn` is `["h3"]`.
    """
    refuse_unknown(open_client, keywords)
    if configuration is None:
        keywords.setdefault("alpn", ["h3"])
    connection = await begun(
        _h3.drive,
        host,
        port,
        configuration=configuration,
        server_name=server_name,
        endpoint=endpoint,
        local_address=local_address,
        early_data=False,
        keywords={**keywords},
    )
    name = server_name or (f"[{host}]" if ":" in host else host)
    return Client(connection, name if port == 443 else f"{name}:{port}")  # noqa: PLR2004


@asynccontextmanager
async def connect(host: str, port: int = 443, **keywords: Any) -> AsyncIterator[Client]:
    """Connect as `open_client` does, and close at the end of an `async with`."""
    async with await open_client(host, port, **keywords) as client:
        yield client
