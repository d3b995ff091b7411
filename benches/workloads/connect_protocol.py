"""Client connections by `loop.create_connection`, closed at once.

One operation is one connection: opened, closed by the transport, `connection_lost` called. The server
is a blocking program on another CPU.
"""

import asyncio

from support.connecting import measure_churn


class Closing(asyncio.Protocol):
    """Tells when the connection is lost."""

    def __init__(self, lost: asyncio.Future[None]) -> None:
        """Tell `lost`."""
        self.lost = lost

    def connection_lost(self, _: Exception | None) -> None:
        """Tell."""
        self.lost.set_result(None)


async def churn(host: str, port: int) -> None:
    """Open and close one connection."""
    loop = asyncio.get_running_loop()
    lost = loop.create_future()
    transport, _ = await loop.create_connection(lambda: Closing(lost), host, port)
    transport.close()
    await lost


if __name__ == "__main__":
    measure_churn(churn)
