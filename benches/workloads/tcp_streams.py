"""TCP echo by the streams of the standard library: read, write, drain.

One operation is one message echoed.
"""

import asyncio

from support.serving import measure

READ_LEN = 256 * 1024


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write back what is read, until EOF."""
    while data := await reader.read(READ_LEN):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve() -> int:
    """Listen on a free port."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0, backlog=1024)
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve)
