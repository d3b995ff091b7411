"""TLS echo by `asyncio.Protocol`: `data_received` writes back what it got.

One operation is one message echoed. TLS 1.3, with the cipher both ends prefer.
"""

import asyncio

from support.certificate import server_context
from support.serving import measure
from tcp_protocol import Echo


async def serve() -> int:
    """Listen on a free port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1024, ssl=server_context())
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve, "tls-echo")
