"""Fast streams: the functions of `asyncio.streams` on native readers and writers.

Owns: the functions, and what they replace in asyncio on request. Called by: user
code, `ringloop.install`.

The functions are those of the running version's standard library with other globals: where they make a
`StreamReader`, they make a native one. The same goes for `connection_made`, the method of the protocol
that makes a writer.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import events, streams
from types import FunctionType

from ringloop import _native, _system
from ringloop._loop import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    _ClientConnected = Callable[
        [asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None
    ]
    _Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_VARIABLE = "RINGLOOP_FAST_STREAMS"
_LIMIT: int = streams._DEFAULT_LIMIT  # type: ignore[attr-defined]
# The names that `patch` replaces, in `asyncio` and in `asyncio.streams`; Windows has the first two.
NAMES = tuple(
    name
    for name in ("open_connection", "start_server", "open_unix_connection", "start_unix_server")
    if hasattr(streams, name)
)


def _rebound(function: Any) -> Any:
    """Return a copy of a function of `asyncio.streams` that makes native readers and writers."""
    names = vars(streams) | {
        name: getattr(_native, name)
        for name in ("StreamReader", "StreamReaderProtocol", "StreamWriter")
    }
    copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__doc__ = function.__doc__
    return copy


_STANDARD: dict[str, Any] = {name: getattr(streams, name) for name in NAMES}
_FAST: dict[str, Any] = {name: _rebound(function) for name, function in _STANDARD.items()}
_protocol: Any = _native.StreamReaderProtocol
_protocol.connection_made = _rebound(streams.StreamReaderProtocol.connection_made)


def are_chosen() -> bool | None:
    """Return the environment's setting: True, False, or None if it is not set."""
    value = os.environ.get(_VARIABLE, "")
    if value not in {"", "0", "1"}:
        raise ValueError(f'{_VARIABLE} must be "1" (patch asyncio) or "0" (off), not {value!r}')
    return value == "1" if value else None


def _function(name: str) -> Any:
    """Return the function to call in the running loop: the standard one on a loop that is not ours."""
    if name not in _STANDARD:
        _system.require_unix("Unix sockets")
    is_ours = isinstance(events.get_running_loop(), Loop)
    return (_FAST if is_ours and are_chosen() is not False else _STANDARD)[name]


async def open_connection(
    host: str | None = None, port: int | str | None = None, *, limit: int = _LIMIT, **kwds: Any
) -> _Pair:
    """Connect to a TCP server and return a reader and a writer; see `asyncio.open_connection`."""
    pair: _Pair = await _function("open_connection")(host, port, limit=limit, **kwds)
    return pair


async def start_server(
    client_connected_cb: _ClientConnected,
    host: Any = None,
    port: int | str | None = None,
    *,
    limit: int = _LIMIT,
    **kwds: Any,
) -> asyncio.Server:
    """Start a TCP server; the callback gets a reader and a writer; see `asyncio.start_server`."""
    server: asyncio.Server = await _function("start_server")(
        client_connected_cb, host, port, limit=limit, **kwds
    )
    return server


async def open_unix_connection(path: Any = None, *, limit: int = _LIMIT, **kwds: Any) -> _Pair:
    """Connect to a Unix server; see `asyncio.open_unix_connection`."""
    pair: _Pair = await _function("open_unix_connection")(path, limit=limit, **kwds)
    return pair


async def start_unix_server(
    client_connected_cb: _ClientConnected, path: Any = None, *, limit: int = _LIMIT, **kwds: Any
) -> asyncio.Server:
    """Start a Unix server; see `asyncio.start_unix_server`."""
    server: asyncio.Server = await _function("start_unix_server")(
        client_connected_cb, path, limit=limit, **kwds
    )
    return server


_OURS: dict[str, Any] = {name: globals()[name] for name in NAMES}
# What `patch` found, by place and name.
_replaced: dict[tuple[Any, str], Any] = {}


def patch(on: bool) -> None:
    """Replace asyncio's functions with the fast ones, or restore them.

    These are `NAMES`, in `asyncio` and in `asyncio.streams`; nothing else is replaced. A name that
    others have replaced in the meantime is left alone.
    """
    for place in (asyncio, streams):
        for name in NAMES:
            if on and getattr(place, name) is not _OURS[name]:
                _replaced[place, name] = getattr(place, name)
                setattr(place, name, _OURS[name])
            elif not on and getattr(place, name) is _OURS[name]:
                setattr(place, name, _replaced.pop((place, name)))
