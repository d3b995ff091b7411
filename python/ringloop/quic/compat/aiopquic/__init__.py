"""aiopquic's shape: its `asyncio` and `quic` on `ringloop.quic`, without a second thread.

| from | to, below this package |
|---|---|
| `aiopquic.asyncio` (`.client`, `.protocol`, `.server`) | `asyncio` |
| `aiopquic.asyncio.webtransport` | `webtransport` |
| `aiopquic.quic.configuration`, `.connection`, `.events` | `configuration`, `connection`, `events` |

It differs from aioquic's shape in that stream numbers are taken when they are asked for, writes raise
`BufferError`, a connection of a server can be made ahead of its client, and there are sessions of
WebTransport.
"""
