"""Traces of connections (qlog), in the shape of `aioquic.quic.logger`.

Owns: which connections are traced, and where traces are written when they end. Called by:
`connection`, programs. Never does: look at packets; the native core writes what it sends and
receives, and layers above (HTTP/3) add what they do.

A trace is in memory until its connection has ended. If that takes too much memory, use the native
API's `qlog=FOLDER`, which writes files during the connection.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringloop._native import quic as _quic

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["QLOG_VERSION", "QuicFileLogger", "QuicLogger", "QuicLoggerTrace"]

QLOG_VERSION: Final = "0.3"


class QuicLoggerTrace:
    """The trace of one connection."""

    def __init__(self, *, is_client: bool, odcid: bytes) -> None:
        self._is_client = is_client
        self._odcid = odcid
        self._native: _quic.Traces | None = None
        # Events of the layers above.
        self._said: list[dict[str, Any]] = []

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """Add an event, with the current time."""
        self._said.append(
            {"data": data, "name": f"{category}:{event}", "time": self.encode_time(time.time())}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the trace, ready for JSON; times are wall-clock milliseconds."""
        events = [*self._received(), *self._said]
        events.sort(key=_time_of)
        return {
            "common_fields": {"ODCID": self._odcid.hex()},
            "events": events,
            "vantage_point": {
                "name": "ringloop",
                "type": "client" if self._is_client else "server",
            },
        }

    def _received(self) -> list[dict[str, Any]]:
        if self._native is None:
            return []
        # RFC 7464; the last record may be incomplete.
        records = self._native.read(self._odcid, self._is_client).split(b"\x1e")
        whole = [json.loads(record) for record in records if record.endswith(b"\n")]
        if not whole:
            return []
        header, *events = whole
        began = header["trace"]["common_fields"]["reference_time"]
        return [{**event, "time": began + event["time"]} for event in events]

    def encode_time(self, seconds: float) -> float:
        """Convert to milliseconds."""
        return seconds * 1000

    def encode_http3_data_frame(self, length: int, stream_id: int) -> dict[str, Any]:
        """Describe a DATA frame."""
        return {"frame": {"frame_type": "data"}, "length": length, "stream_id": stream_id}

    def encode_http3_headers_frame(
        self, length: int, headers: Iterable[tuple[bytes, bytes]], stream_id: int
    ) -> dict[str, Any]:
        """Describe a HEADERS frame."""
        frame = {"frame_type": "headers", "headers": _texts(headers)}
        return {"frame": frame, "length": length, "stream_id": stream_id}

    def encode_http3_push_promise_frame(
        self, length: int, headers: Iterable[tuple[bytes, bytes]], push_id: int, stream_id: int
    ) -> dict[str, Any]:
        """Describe a PUSH_PROMISE frame."""
        frame = {"frame_type": "push_promise", "headers": _texts(headers), "push_id": push_id}
        return {"frame": frame, "length": length, "stream_id": stream_id}


def _time_of(event: dict[str, Any]) -> float:
    at: float = event["time"]
    return at


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> list[dict[str, str]]:
    return [{"name": name.decode(), "value": value.decode()} for name, value in headers]


class QuicLogger:
    """Keeps traces in memory; `configuration.quic_logger`, of any number of connections.

    `end_trace` may be overridden to process a trace once its connection has ended.
    """

    def __init__(self) -> None:
        self.native = _quic.Traces()
        self._traces: list[QuicLoggerTrace] = []

    def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
        """Begin a connection's trace."""
        trace = QuicLoggerTrace(is_client=is_client, odcid=odcid)
        trace._native = self.native
        self._traces.append(trace)
        return trace

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Process a trace whose connection has ended; this one keeps it."""
        if trace not in self._traces:
            raise ValueError("QuicLoggerTrace does not belong to QuicLogger")

    def to_dict(self) -> dict[str, Any]:
        """Return all traces, ready for JSON."""
        return {
            "qlog_format": "JSON",
            "qlog_version": QLOG_VERSION,
            "traces": [trace.to_dict() for trace in self._traces],
        }


def _refused(error: OSError, path: str) -> OSError:
    """Return the error for an unusable folder: aioquic's programs expect a `ValueError`."""
    kind = type(error)
    both: type[OSError] = type(kind.__name__, (kind, ValueError), {})
    text = (
        "does not exist"
        if isinstance(error, FileNotFoundError)
        else f"cannot be read: {error.strerror}"
    )
    return both(error.errno, f"QUIC log output directory {path!r} {text}", path)


class QuicFileLogger(QuicLogger):
    """Writes one file per connection once it has ended: `<its first id>.qlog` in an existing folder.

    Both ends' traces have the same name: use separate folders. Errors: an `OSError` for a folder that
    cannot be read, which is also a `ValueError`, as in aioquic.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            with os.scandir(path):
                pass
        except OSError as error:
            raise _refused(error, os.fspath(path)) from None
        self.path = path
        super().__init__()

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Write it, and forget it."""
        told = trace.to_dict()
        name = told["common_fields"]["ODCID"] + ".qlog"
        log = {"qlog_format": "JSON", "qlog_version": QLOG_VERSION, "traces": [told]}
        Path(self.path, name).write_text(json.dumps(log), encoding="utf-8")
        self._traces.remove(trace)
        self.native.forget(trace._odcid, trace._is_client)
