"""A flood of datagrams: one endpoint, whose protocol counts what it receives.

One operation is one datagram received. More are sent than any loop can take; the kernel drops the rest.
A datagram that begins with `?` is the load generator's request for the count. With `--segments` the
sender sends GSO batches of that many segments (`UDP_SEGMENT`), as QUIC stacks do.
"""

import asyncio

from support.serving import measure


class Count(asyncio.DatagramProtocol):
    """Counts what it receives."""

    transport: asyncio.DatagramTransport
    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Count it, or answer."""
        if data.startswith(b"?"):
            self.transport.sendto(b"%d" % self.count, addr)
        else:
            self.count += 1


async def serve() -> int:
    """Bind to a free port."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Count, local_addr=("127.0.0.1", 0))
    return int(transport.get_extra_info("sockname")[1])


if __name__ == "__main__":
    measure(serve, load="udp-flood")
