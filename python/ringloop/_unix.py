"""Refuses Windows for packages that do not support it yet. Imported first by `fs` and `quic`."""

from __future__ import annotations

from ringloop import _system

_system.require_unix("package fs, quic, h3 or webtransport")
