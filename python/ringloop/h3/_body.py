"""Sends the body of a request while its response is received.

Owns: the task that sends a body in pieces. Called by: `_client`. Never does: wait for a response; a
server may respond before it has read the request, and read no further until its response is read.
Nor does the task keep the response alive: once the program has dropped it, the request is cancelled.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterable
from contextlib import suppress
from types import CoroutineType
from typing import TYPE_CHECKING, TypeAlias

from ringloop.h3._exchange import Exchange, encoded
from ringloop.h3._phases import Phase
from ringloop.quic.errors import StreamStoppedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringloop.h3._exchange import Fields, Response

__all__ = ["Body", "check_body", "send"]

_Data: TypeAlias = bytes | bytearray | memoryview
Body: TypeAlias = _Data | AsyncIterable[_Data] | None
"""Bytes, or an iterable of pieces; None: there is none."""

_NO_ERROR = 0x100
_PIECE_BYTES = 1 << 16


def check_body(body: object) -> None:
    """Raise TypeError for what cannot be sent as a body."""
    if isinstance(body, (bytes, bytearray, memoryview, AsyncIterable)):
        return
    try:
        memoryview(body).release()  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"body is of type {type(body).__name__!r}: give bytes, or an async iterable of bytes"
        ) from None


def send(
    response: Response, body: Body, trailers: Fields | None, timeout: float | None = None
) -> asyncio.Task[None] | None:
    """Send the rest of a request; if it takes longer, return the task that does so.

    `timeout`: seconds that each piece may wait for room in the send window.
    """
    if timeout is not None and isinstance(body, bytes) and len(body) > _PIECE_BYTES:
        body = _pieces(body)
    if isinstance(body, AsyncIterable):
        return _begin_pieces(response, body, trailers, timeout)
    if body is not None:
        _put(response, body, end=trailers is None)
    if trailers is not None:
        response.send_trailers(encoded(trailers))
    return None


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), _PIECE_BYTES):
        yield body[at : at + _PIECE_BYTES]


def _put(response: Response, data: _Data, *, end: bool = False) -> None:
    """Hand all of it to native code, without waiting for space."""
    sent = response.send(data, end=end)
    if isinstance(sent, CoroutineType):
        sent.close()


def _begin_pieces(
    response: Response,
    body: AsyncIterable[_Data],
    trailers: Fields | None,
    timeout: float | None,
) -> asyncio.Task[None]:
    """Start the task, which ends with the response."""
    loop = asyncio.get_running_loop()

    def dropped(_: object) -> None:
        # The loop may be closed, or run in another thread than the collector.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)

    reference = weakref.ref(response, dropped)
    task = loop.create_task(_send_pieces(reference, body, trailers, timeout))
    return task


async def _send_pieces(
    reference: weakref.ref[Response],
    body: AsyncIterable[_Data],
    trailers: Fields | None,
    timeout: float | None,  # noqa: ASYNC109  # of each piece
) -> None:
    try:
        try:
            async for piece in body:
                async with Phase("write", timeout):
                    await _send_piece(reference, piece)
            if trailers is None:
                await _send_piece(reference, b"", end=True)
            elif (response := reference()) is not None:
                response.send_trailers(encoded(trailers))
        finally:
            if (close := getattr(body, "aclose", None)) is not None:
                await close()
    except Exception as error:  # noqa: BLE001  # told to who reads the response
        response = reference()
        # A server that needs no more of it to respond stops it with NO_ERROR (RFC 9114 §4.1).
        is_enough = isinstance(error, StreamStoppedError) and error.code == _NO_ERROR
        if response is not None and not is_enough:
            response._failure = error
            Exchange.cancel(response)


async def _send_piece(reference: weakref.ref[Response], piece: _Data, *, end: bool = False) -> None:
    """Send it, and wait for space."""
    if (response := reference()) is None:
        return
    _put(response, piece, end=end)
    while response is not None and (waiter := response._drain_waiter()) is not None:
        # It is not held while this waits.
        response = None
        await waiter
        response = reference()
