"""Client connections by `asyncio.open_connection`, closed at once.

One operation is one connection: opened, closed by the writer, `wait_closed` over. The server is a
blocking program on another CPU.
"""

import asyncio

from support.connecting import measure_churn


async def churn(host: str, port: int) -> None:
    """Open and close one connection."""
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    measure_churn(churn)
