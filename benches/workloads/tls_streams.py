"""TLS echo by the streams of the standard library: read, write, drain.

One operation is one message echoed. TLS 1.3, with the cipher both ends prefer.
"""

import asyncio

from support.certificate import server_context
from support.serving import measure
from tcp_streams import echo


async def serve() -> int:
    """Listen on a free port."""
    context = server_context()
    server = await asyncio.start_server(echo, "127.0.0.1", 0, backlog=1024, ssl=context)
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve, "tls-echo")
