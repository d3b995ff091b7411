"""A client: one connection to a server, and requests on it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from ringloop._native import h3 as _h3
from ringloop._native import quic as _quic
from ringloop.h3._body import check_body, send
from ringloop.h3._exchange import Response, encoded
from ringloop.h3._phases import NO_TIMEOUTS, Phase
from ringloop.h3._priority import Priority
from ringloop.quic._connect import begun, until_left
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic.keywords import ConnectKeywords

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractAsyncContextManager

    from ringloop.h3._body import Body
    from ringloop.h3._exchange import Fields
    from ringloop.h3._phases import Timeouts
    from ringloop.quic._connection import Connection
    from ringloop.quic._endpoint import Endpoint
    from ringloop.quic.keywords import Address

__all__ = ["Client", "authority_of", "connect", "head", "open_client", "opened", "target_of"]

_NO_ERROR = 0x100
_REQUEST_CANCELLED = 0x10C
_HTTPS_PORT = 443


class Client:
    """An HTTP/3 connection to one server, for any number of requests at a time.

    As a context manager, it closes the connection at the end.
    """

    def __init__(self, connection: Connection, authority: str) -> None:
        self.connection = connection
        self.authority = authority
        self._senders: set[asyncio.Task[None]] = set()

    async def request(
        self,
        method: str,
        path: str,
        headers: Fields = (),
        body: Body = None,
        *,
        trailers: Fields | None = None,
        priority: Priority | None = None,
    ) -> Response:
        """Send a request, and return the response once its status and fields have arrived.

        Read the body from the response. `body` is bytes, or an async iterable of bytes, which is sent
        while the response is read. Cancelling the call cancels the request.

        Errors (`ringloop.h3.errors`): `RequestRejected`: not processed, it may be sent again;
        `StreamError`, `ConnectionClosed`: there will be no response; `ValueError`: a field cannot be
        sent, or the body does not have the length that `content-length` declares (RFC 9114 §4.1.2);
        what iterating over `body` raises.
        """
        fields = head(method, self.authority, path, headers, body, priority)
        response = await self.open(fields, end=body is None and trailers is None)
        await self._converse(response, body, trailers)
        return response

    async def open(self, fields: list[tuple[bytes, bytes]], *, end: bool = False) -> Response:
        """Send a request's fields, once the server allows another request.

        The pseudo-header fields come first (RFC 9114 §4.3). With `end` there is no body; otherwise
        the exchange that is returned sends it.
        """
        while (stream_id := _h3.open_exchange(self.connection, fields, end)) is None:
            await self.connection._waiter("open")
        return Response(self.connection, stream_id, end)

    async def _converse(
        self,
        response: Response,
        body: Body,
        trailers: Fields | None,
        timeouts: Timeouts = NO_TIMEOUTS,
    ) -> None:
        """Send the rest of a request, and wait for the response's fields."""
        try:
            async with Phase("read", timeouts.read) as phase:
                if body is not None or trailers is not None:
                    sender = send(response, body, trailers, timeouts.write)
                    if sender is not None:
                        response._sender = sender
                        self._senders.add(sender)
                        sender.add_done_callback(self._senders.discard)
                        phase.hold(sender)
                await response._wait_head()
        except BaseException:
            response.cancel()
            raise

    @property
    def is_going_away(self) -> bool:
        """Whether the server accepts no more requests on this connection."""
        return _h3.is_going_away(self.connection)

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent: the connection is open, and the server is not going away."""
        return not (self.connection.is_closed or self.is_going_away)

    @property
    def request_count(self) -> int:
        """The number of requests in progress."""
        return _h3.request_count(self.connection)

    def close(self, code: int = _NO_ERROR) -> None:
        """Close the connection after sending pending data. Incomplete requests fail."""
        for sender in self._senders:
            sender.cancel()
        self.connection.close(code)

    async def wait_closed(self) -> None:
        """Wait until the server has been notified of `close()`, and the socket is closed."""
        await self.connection.endpoint._after_close(self.connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(_NO_ERROR if kind is None else _REQUEST_CANCELLED)
        await self.wait_closed()

    def __repr__(self) -> str:
        return f"<Client of {self.authority} on {self.connection!r}>"


def head(
    method: str,
    authority: str,
    path: str,
    headers: Fields,
    body: Body,
    priority: Priority | None,
) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request, including its length if that is known."""
    _check_types(method, path, priority, body)
    fields = [
        (b":method", method.encode()),
        (b":scheme", b"https"),
        (b":authority", authority.encode()),
        (b":path", path.encode()),
        *encoded(headers),
    ]
    if isinstance(body, (bytes, bytearray, memoryview)) and not _has_length(fields):
        length = body.nbytes if isinstance(body, memoryview) else len(body)
        fields.append((b"content-length", b"%d" % length))
    if priority is not None:
        fields.append((b"priority", str(priority).encode()))
    return fields


def _check_types(method: object, path: object, priority: object, body: object) -> None:
    if not (isinstance(method, str) and isinstance(path, str)):
        raise TypeError(f"method and path are {method!r} and {path!r}: give two str")
    if priority is not None and not isinstance(priority, Priority):
        raise TypeError(f"priority is {priority!r}: give a ringloop.h3.Priority")
    if body is not None:
        check_body(body)


def _has_length(fields: list[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"content-length" for name, _ in fields)


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
async def open_client(
    host: str,
    port: int = _HTTPS_PORT,
    *,
    connect_to: tuple[str, int] | None = None,
    configuration: Any = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    **keywords: Unpack[ConnectKeywords],
) -> Client:
    """Connect to an HTTP/3 server; close the client, preferably by using it as a context manager.

    Takes the keywords of `ringloop.quic.open_connection`, and raises its errors; `alpn` is `["h3"]` by
    default. `connect_to`: the host and port to connect to instead of `host` and `port`, which requests
    and the server's certificate still name.
    """
    refuse_unknown(open_client, keywords)
    return await opened(
        *target_of(connect_to, host, port),
        origin=(server_name or host, port),
        configuration=configuration,
        server_name=server_name or host,
        endpoint=endpoint,
        local_address=local_address,
        keywords={**keywords},
    )


async def opened(
    host: str,
    port: int,
    *,
    origin: tuple[str, int],
    configuration: Any,
    server_name: str | None,
    endpoint: Endpoint | None,
    local_address: Address | None,
    keywords: dict[str, Any],
) -> Client:
    """Connect as `open_client` does, for requests to this origin."""
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
        keywords=keywords,
    )
    return Client(connection, authority_of(*origin))


def authority_of(host: str, port: int) -> str:
    """Return host and port as `:authority` has them."""
    if ":" in host:
        host = f"[{host}]"
    return host if port == _HTTPS_PORT else f"{host}:{port}"


def target_of(connect_to: tuple[str, int] | None, host: str, port: int) -> tuple[str, int]:
    """Return the host and port to connect to."""
    if connect_to is None:
        return host, port
    match connect_to:
        case (str(), int()):
            return connect_to
    raise TypeError(f"connect_to is {connect_to!r}: give (host, port)")


@shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
def connect(
    host: str,
    port: int = _HTTPS_PORT,
    *,
    connect_to: tuple[str, int] | None = None,
    configuration: Any = None,
    server_name: str | None = None,
    endpoint: Endpoint | None = None,
    local_address: Address | None = None,
    **keywords: Unpack[ConnectKeywords],
) -> AbstractAsyncContextManager[Client]:
    """Connect as `open_client` does, and close at the end of an `async with`."""
    refuse_unknown(connect, keywords)
    opening = partial(
        open_client,
        host,
        port,
        connect_to=connect_to,
        configuration=configuration,
        server_name=server_name,
        endpoint=endpoint,
        local_address=local_address,
        **keywords,
    )
    return until_left(opening)
