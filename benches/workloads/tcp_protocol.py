"""TCP echo by `asyncio.Protocol`: `data_received` writes back what it got.

One operation is one message echoed.
"""

import asyncio

from support.serving import measure


class Echo(asyncio.Protocol):
    """Writes back what it receives."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Write the data back."""
        self.transport.write(data)


async def serve() -> int:
    """Listen on a free port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1024)
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve)
