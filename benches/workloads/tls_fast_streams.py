"""TLS echo by streams: ringloop's fast ones on ringloop, those of `asyncio.start_server` elsewhere.

One operation is one message echoed. TLS 1.3, with the cipher both ends prefer.
"""

from support.certificate import server_context
from support.serving import measure
from tcp_fast_streams import start_server


async def serve() -> int:
    """Listen on a free port."""
    server = await start_server(ssl=server_context())
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve, "tls-echo")
