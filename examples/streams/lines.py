"""A server that answers lines, and its client, by ringloop's fast streams.

    python examples/streams/lines.py

Each line comes back in capitals; an empty one ends the conversation. `asyncio.start_server` and
`asyncio.open_connection` do the same, with the standard library's readers and writers.
"""

import asyncio

import ringloop

LINES = [b"hello\n", b"streams\n"]


async def capitals(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one client."""
    while (line := await reader.readline()).strip():
        writer.write(line.upper())
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def talk(port: int) -> list[bytes]:
    """Send all lines and return the answers."""
    reader, writer = await ringloop.open_connection("127.0.0.1", port)
    writer.writelines([*LINES, b"\n"])
    await writer.drain()
    answers = [line async for line in reader]
    writer.close()
    await writer.wait_closed()
    return answers


async def main() -> None:
    """Serve on a free port, and be the client, too."""
    server = await ringloop.start_server(capitals, "127.0.0.1", 0)
    async with server:
        for answer in await talk(server.sockets[0].getsockname()[1]):
            print(answer.decode().rstrip())


if __name__ == "__main__":
    ringloop.run(main())
