"""Errors of applications, logged as by uvicorn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from ringloop.serve._settings import Application

__all__ = [
    "access",
    "called",
    "check_returned",
    "checked_headers",
    "log",
    "report",
    "unexpected",
]

log = logging.getLogger("uvicorn.error")
access = logging.getLogger("uvicorn.access")


async def called(
    application: Application,
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
    told: Callable[[], ConnectionError | None],
) -> bool:
    """Call an application; return whether it has returned. Its exceptions are logged.

    `told` returns the error that told it that the client is gone: that one propagating is no failure.
    """
    try:
        returned = await application(scope, receive, send)
    except Exception as error:  # noqa: BLE001  # it is logged
        report(error, told())
        return False
    check_returned(returned)
    return True


def report(error: Exception, told: ConnectionError | None) -> None:
    """Log an application's exception; `told` is what `called`'s `told` returned."""
    if _is_disconnect(error, told):
        log.debug("The client disconnected before the application ended.", exc_info=error)
    else:
        log.error("Exception in ASGI application\n", exc_info=error)


def check_returned(returned: object) -> None:
    """Log that an application has returned something."""
    if returned is not None:
        log.error("ASGI callable should return None, but returned %r.", returned)


def unexpected(message: Any, wanted: str) -> RuntimeError:
    """Return the error for an unexpected message."""
    kind = message.get("type") if isinstance(message, dict) else message
    return RuntimeError(f"Expected ASGI message {wanted}, but got {kind!r}.")


def _is_disconnect(error: BaseException, told: ConnectionError | None) -> bool:
    """Whether an application's error comes of the one that told it of the client's end."""
    return told is not None and any(found is told for found in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    if error is None:
        return
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    yield from _causes(error.__context__ if error.__cause__ is None else error.__cause__)


# Those of one connection of HTTP/1.1 (RFC 9114 §4.2).
_HOP_BY_HOP = frozenset(
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"]
)


def checked_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return an application's fields for HTTP/3: in lower case, without those specific to HTTP/1.1."""
    fields = []
    for name, value in headers:
        pair: tuple[Any, Any] = (name, value)
        if not all(isinstance(text, bytes) for text in pair):
            raise TypeError(f"a header is {pair!r}: give a name and a value in bytes")
        lower = name.lower()
        if lower not in _HOP_BY_HOP:
            fields.append((lower, value))
    return fields
