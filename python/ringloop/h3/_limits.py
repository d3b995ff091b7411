"""Limits for WebTransport in an HTTP/3 server or client."""

from __future__ import annotations

from dataclasses import dataclass

from ringloop.quic.errors import ConfigurationError

__all__ = ["SessionLimits", "limits_of"]

_SESSIONS_MAX = 1 << 16
_DATA_MAX = (1 << 62) - 1
_STREAMS_MAX = 1 << 60


@dataclass(frozen=True)
class SessionLimits:
    """Limits of the WebTransport sessions on a connection.

    `sessions`: how many at a time, 1 to 65536. With the others, each session has its own flow control
    in addition to QUIC's (draft-ietf-webtrans-http3-16 §5): the initial limits of what the peer may
    send and open in it. Peers of draft 13 and later open several sessions on a connection only then;
    browsers (drafts 02 and 07) do without.
    """

    sessions: int = 16
    """Sessions at a time; a request for another one is rejected."""
    data: int | None = None
    """Bytes on all streams of a session, 1 to 2^62 - 1; credit is returned as they are read."""
    streams: int = 100
    """With `data`: bidirectional streams at a time, 1 to 2^60."""
    unidirectional_streams: int = 100
    """With `data`: unidirectional streams at a time, 1 to 2^60."""

    def __post_init__(self) -> None:
        for name, value, value_max in (
            ("sessions", self.sessions, _SESSIONS_MAX),
            ("data", 1 if self.data is None else self.data, _DATA_MAX),
            ("streams", self.streams, _STREAMS_MAX),
            ("unidirectional_streams", self.unidirectional_streams, _STREAMS_MAX),
        ):
            if type(value) is not int or not 1 <= value <= value_max:
                raise ConfigurationError(f"{name} is {value!r}: give 1 to {value_max}")

    def _native(self) -> tuple[int, tuple[int, int, int] | None]:
        """Return what native code takes."""
        if self.data is None:
            return self.sessions, None
        return self.sessions, (self.data, self.streams, self.unidirectional_streams)


def limits_of(limits: SessionLimits | None) -> SessionLimits:
    """Return the limits that an argument means."""
    if limits is None:
        return SessionLimits()
    if not isinstance(limits, SessionLimits):
        raise TypeError(f"limits is {limits!r}: give SessionLimits, or None")
    return limits
