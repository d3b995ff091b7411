"""A pool: requests by URL, on one connection per origin.

Owns: the connections, the tasks that open them, known alternative services. Called by:
programs, `_httpx`. Never does: send a request again that a server may have processed.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack
from urllib.parse import quote, urlsplit

from ringloop._native import quic as _quic
from ringloop.h3._alt_svc import AltSvcCache
from ringloop.h3._client import authority_of, head, opened
from ringloop.h3._phases import NO_TIMEOUTS, Phase
from ringloop.h3.errors import RequestRejected
from ringloop.quic._connect import client_config
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic.errors import ConnectError, ConnectionClosed
from ringloop.quic.keywords import ConnectKeywords, SocketKeywords

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ringloop.h3._alt_svc import Origin
    from ringloop.h3._body import Body
    from ringloop.h3._client import Client
    from ringloop.h3._exchange import Fields, Response
    from ringloop.h3._phases import Timeouts
    from ringloop.h3._priority import Priority
    from ringloop.quic.keywords import Address

__all__ = ["Message", "Pool", "split"]

_ATTEMPTS_MAX = 3
"""How often a request is sent if no server processes it."""
_IDLE_MARGIN_SECONDS = 1.0
"""How long before the end of its idle time a connection gets no more requests."""
_IDLE_MARGIN_ROUND_TRIPS = 4
"""The same on a slow path: a lost request has to be sent again in time."""
_ALTERNATIVE_SECONDS = 3.0
"""How long an alternative may take to connect before the origin itself is asked."""
_URLS_MAX = 512
"""How many parsed URLs are cached."""
_MISDIRECTED = 421
_HTTPS_PORT = 443
_UNSAFE = re.compile(r"[^!#-~]")
_SAFE = "!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


class Message(NamedTuple):
    """A request, sent as often as necessary."""

    method: str
    path: str
    headers: Fields
    body: Body
    trailers: Fields | None = None
    priority: Priority | None = None
    authority: str | None = None
    """Replaces the origin's, if not None."""

    @property
    def is_repeatable(self) -> bool:
        """Whether its body can be sent again."""
        return self.body is None or isinstance(self.body, (bytes, bytearray, memoryview))


class _Place:
    """An origin, its connection, and the task that opens one."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.client: Client | None = None
        self.opening: asyncio.Task[Client] | None = None
        self.waiting = 0
        # Where the connection goes, if not to the origin itself.
        self.alternative: Origin | None = None

    @property
    def is_idle(self) -> bool:
        is_quiet = self.client is None or self.client.request_count == 0
        return is_quiet and not self.waiting and self.opening is None


class Pool:
    """Requests to any origins, on one connection each, which their requests share.

    A connection is opened by the first request, once for all that wait, and replaced when it is closed,
    the server is going away, or its idle time is nearly over: the server might drop it during a
    request. Beyond `connections_max`, the least recently used ones without requests are closed.
    `alternatives` are the alternative services that origins have announced (RFC 7838); connections
    to those are tried first.

    The keywords are those of `connect`, for all connections. As a context manager it is closed at the
    end; otherwise by `aclose()`. A pool belongs to the event loop of its first request; once that is
    closed, with all connections, another loop may use it.
    """

    @shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
    def __init__(
        self,
        *,
        connections_max: int = 100,
        alternatives: AltSvcCache | None = None,
        configuration: Any = None,
        local_address: Address | None = None,
        **keywords: Unpack[ConnectKeywords],
    ) -> None:
        refuse_unknown(Pool.__init__, keywords)
        if connections_max < 1:
            raise ValueError(f"connections_max is {connections_max}: give 1 or more")
        given: dict[str, Any] = {**keywords}
        names = [name for name in SocketKeywords.__annotations__ if name in given]
        self._socket = {name: given.pop(name) for name in names}
        if configuration is None:
            given.setdefault("alpn", ["h3"])
        self._config = client_config(configuration, given)
        self._local_address = local_address
        self._connections_max = connections_max
        self.alternatives = AltSvcCache() if alternatives is None else alternatives
        self._places: OrderedDict[Origin, _Place] = OrderedDict()
        # Connections that take no more requests, and have some.
        self._leaving: list[Client] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # No connection is opened to an origin that has named no alternative.
        self._alternatives_only = False

    async def request(
        self,
        method: str,
        url: str,
        headers: Fields = (),
        body: Body = None,
        *,
        trailers: Fields | None = None,
        priority: Priority | None = None,
    ) -> Response:
        """Send a request, and return the response once its status and fields have arrived.

        A request that no server has processed is sent again, up to three times in total, unless its
        body was an iterable already consumed. Redirects are not followed.

        Errors: those of `Client.request` and `connect`; `ValueError`: not an https URL.
        """
        origin, path = _split(url)
        message = Message(method, path, headers, body, trailers, priority)
        return await self._request(origin, message, NO_TIMEOUTS)

    async def _request(self, origin: Origin, message: Message, timeouts: Timeouts) -> Response:
        left = _ATTEMPTS_MAX
        while True:
            left -= 1
            async with Phase("connect", timeouts.connect):
                place, client = await self._connected(origin)
            is_sent = False
            try:
                fields = _fields(place, client, message)
                end = message.body is None and message.trailers is None
                async with Phase("pool", timeouts.pool):
                    response = await client.open(fields, end=end)
                is_sent = True
                await client._converse(response, message.body, message.trailers, timeouts)
            except (RequestRejected, ConnectionClosed) as error:
                is_rejected = isinstance(error, RequestRejected) and message.is_repeatable
                if left and (is_rejected or not is_sent):
                    continue
                raise
            if response.status == _MISDIRECTED and place.alternative is not None:
                self._give_up_alternative(place)
                if left and message.is_repeatable:
                    response.cancel()
                    continue
            if (value := response.header("alt-svc")) is not None:
                self.alternatives.store(origin, value)
            return response

    # Connections.

    async def _connected(self, origin: Origin) -> tuple[_Place, Client]:
        """Return the origin's connection, once there is one."""
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        self._enter_loop()
        place = self._place(origin)
        client = self._usable(place)
        if client is None:
            opening = place.opening or self._begin(place)
            place.waiting += 1
            try:
                await asyncio.wait({opening})
            finally:
                place.waiting -= 1
            if opening.cancelled():
                raise RuntimeError("the pool was closed while a connection was opened")
            client = opening.result()
        return place, client

    def _prepared(self, origin: Origin) -> bool:
        """Whether there is a connection; else it is begun, if the origin has named an alternative."""
        self._enter_loop()
        place = self._places.get(origin)
        if place is not None and self._usable(place) is not None:
            return True
        is_known = not self._is_closed and bool(self.alternatives.find(origin))
        if is_known and (place is None or place.opening is None):
            self._begin(self._place(origin))
        return False

    def _enter_loop(self) -> None:
        """Use the running loop, unless another one uses the pool and is not closed."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                raise RuntimeError(f"{self!r} is used by another event loop: make one for each")
            # Nothing can be sent on its connections any more.
            self._places.clear()
            self._leaving.clear()
            self._tasks.clear()
        self._loop = loop

    def _place(self, origin: Origin) -> _Place:
        place = self._places.get(origin)
        if place is None:
            place = self._places[origin] = _Place(origin)
        else:
            self._places.move_to_end(origin)
        return place

    def _usable(self, place: _Place) -> Client | None:
        """Return the connection, if it takes requests; else it is left."""
        client = place.client
        if client is None or (client.is_usable and not _is_expiring(client)):
            return client
        place.client = None
        self._leave(client)
        return None

    def _leave(self, client: Client) -> None:
        """Close a connection that gets no more requests, once its requests are complete."""
        if client.request_count and not client.connection.is_closed:
            self._leaving.append(client)
            return
        client.close()
        self._start(client.wait_closed())

    def _begin(self, place: _Place) -> asyncio.Task[Client]:
        place.opening = self._start(self._open(place))
        # Not by the task itself: an eager one may be done before it is in its place.
        place.opening.add_done_callback(partial(self._opened, place))
        return place.opening

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # The tasks that wait raise it; without any, it is not reported.
            task.exception()

    def _opened(self, place: _Place, _: object) -> None:
        place.opening = None
        self._tidy()

    async def _open(self, place: _Place) -> Client:
        """Open a connection to an alternative of the origin, or else to the origin."""
        client = await self._open_alternative(place)
        if client is None:
            client = await self._connect(place.origin, place.origin)
            place.alternative = None
        place.client = client
        return client

    async def _open_alternative(self, place: _Place) -> Client | None:
        for there in self.alternatives.find(place.origin):
            if there == place.origin and not self._alternatives_only:
                continue
            try:
                async with asyncio.timeout(_ALTERNATIVE_SECONDS):
                    client = await self._connect(place.origin, there)
            except (OSError, UnicodeError):
                # `getaddrinfo` cannot encode a name with an empty or a long label.
                self.alternatives.mark_broken(there)
            else:
                place.alternative = there
                return client
        if self._alternatives_only:
            raise ConnectError("could not connect to any alternative of the origin")
        return None

    async def _connect(self, origin: Origin, there: Origin) -> Client:
        return await opened(
            *there,
            origin=origin,
            configuration=self._config,
            server_name=origin[0],
            endpoint=None,
            local_address=self._local_address,
            keywords={**self._socket},
        )

    def _give_up_alternative(self, place: _Place) -> None:
        """Ask the origin itself: the alternative does not serve it (RFC 7838 §6)."""
        self.alternatives.forget(place.origin)
        place.alternative = None
        if place.client is not None:
            self._leave(place.client)
            place.client = None

    def _tidy(self) -> None:
        """Close connections that are done with, and those past the limit."""
        leaving, self._leaving = self._leaving, []
        for client in leaving:
            self._leave(client)
        excess = len(self._places) - self._connections_max
        for place in list(self._places.values()):
            if excess <= 0:
                break
            if place.is_idle:
                excess -= 1
                del self._places[place.origin]
                if place.client is not None:
                    self._leave(place.client)

    # The end.

    async def aclose(self) -> None:
        """Close all connections; incomplete requests fail."""
        self._enter_loop()
        self._is_closed = True
        for place in self._places.values():
            if place.opening is not None:
                place.opening.cancel()
        clients = [place.client for place in self._places.values() if place.client is not None]
        self._places.clear()
        for client in (*clients, *self._leaving):
            client.close()
            self._start(client.wait_closed())
        self._leaving.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Pool of {len(self._places)} origins>"


def _is_expiring(client: Client) -> bool:
    """Whether the server may forget the connection before a request arrives (RFC 9000 §10.1.1)."""
    connection = client.connection
    timeout = connection.idle_timeout
    if timeout is None:
        return False
    margin = max(_IDLE_MARGIN_SECONDS, _IDLE_MARGIN_ROUND_TRIPS * connection.rtt)
    return connection.idle_for() > timeout - min(margin, timeout / 2)


def _fields(place: _Place, client: Client, message: Message) -> list[tuple[bytes, bytes]]:
    fields = head(
        message.method,
        client.authority if message.authority is None else message.authority,
        message.path,
        message.headers,
        message.body,
        message.priority,
    )
    if place.alternative is not None:
        # RFC 7838 §5.
        fields.append((b"alt-used", authority_of(*place.alternative).encode()))
    return fields


def split(url: str) -> tuple[Origin, str]:
    """Return the origin of a URL, and its path with the query; the fragment is not sent."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"{url!r} is not an https URL with a host")
    if parts.username is not None:
        raise ValueError("a name or password in a URL is not sent: give a field 'authorization'")
    path = parts.path or "/"
    if parts.query:
        path = f"{path}?{parts.query}"
    if _UNSAFE.search(path):
        path = quote(path, safe=_SAFE)
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode()
    return (host, _HTTPS_PORT if parts.port is None else parts.port), path


# Taking a URL apart costs as much as all else that a pool adds to a request.
_split: Callable[[str], tuple[Origin, str]] = lru_cache(_URLS_MAX)(split)
