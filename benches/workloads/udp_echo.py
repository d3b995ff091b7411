"""UDP echo: one endpoint, `datagram_received` sends back what it got.

One operation is one datagram echoed. Each of the load generator's sockets has one in flight.
"""

import asyncio

from support.serving import measure


class Echo(asyncio.DatagramProtocol):
    """Sends back what it receives."""

    transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send the datagram back."""
        self.transport.sendto(data, addr)


async def serve() -> int:
    """Bind to a free port."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    return int(transport.get_extra_info("sockname")[1])


if __name__ == "__main__":
    measure(serve, load="udp-echo")
