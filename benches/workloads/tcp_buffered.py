"""TCP echo by `asyncio.BufferedProtocol`: the loop receives into the protocol's own buffer.

One operation is one message echoed. What is written is a copy: the transport may keep it, and the next
receive overwrites the buffer.
"""

import asyncio

from support.serving import measure

BUFFER_LEN = 256 * 1024


class Echo(asyncio.BufferedProtocol):
    """Writes back what it receives."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and make the buffer."""
        self.transport = transport  # type: ignore[assignment]
        self.buffer = memoryview(bytearray(BUFFER_LEN))

    def get_buffer(self, _: int) -> memoryview:
        """Offer the whole buffer."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Write the filled part back."""
        self.transport.write(bytes(self.buffer[:nbytes]))


async def serve() -> int:
    """Listen on a free port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1024)
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve)
