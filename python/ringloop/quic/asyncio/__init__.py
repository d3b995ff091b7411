"""QUIC on an asyncio loop, in the shape of `aioquic.asyncio`.

Owns: `connect`, `serve` and the protocol between a connection and a program. Called by: programs
ported from aioquic, qh3 or aiopquic; new ones should use `ringloop.quic` itself. Never
does: start a thread.
"""

from ringloop.quic.asyncio.client import connect
from ringloop.quic.asyncio.protocol import QuicConnectionProtocol
from ringloop.quic.asyncio.server import serve

__all__ = ["QuicConnectionProtocol", "connect", "serve"]
