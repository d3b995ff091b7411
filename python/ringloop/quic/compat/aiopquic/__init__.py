"""aiopquic's API: its `asyncio` and `quic` on `ringloop.quic`, without a second thread.

| from | to, below this package |
|---|---|
| `aiopquic.asyncio` (`.client`, `.protocol`, `.server`) | `asyncio` |
| `aiopquic.asyncio.webtransport` | `webtransport` |
| `aiopquic.quic.configuration`, `.connection`, `.events` | `configuration`, `connection`, `events` |

Differences from aioquic's API: requesting a stream number reserves it, writes raise `BufferError`, a
server's connection can be created before its client connects, and there are WebTransport sessions.
"""
