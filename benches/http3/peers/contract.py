"""What every server of benches/http3 does, whatever it is made of.

Owns: the contract with the load generator. Called by: the servers.

HTTP/3: `GET /` is answered with a greeting, `GET /N` with N bytes in chunks of 64 KiB, a POST with
the number of bytes of its body. A stream of QUIC or of a WebTransport session begins with a line,
`GET N`, `POST` or `INFO`, and is answered likewise; INFO with the counts of bytes and datagrams and
the time in nanoseconds.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

GREETING = b"Hello, world!"
CHUNK = bytes(65536)


class Counts:
    """What a server has received on all sessions."""

    def __init__(self) -> None:
        self.bytes = 0
        self.datagrams = 0

    def snapshot(self) -> bytes:
        """The answer of INFO."""
        return b"%d %d %d" % (self.bytes, self.datagrams, time.monotonic_ns())


def chunks(count: int) -> Iterator[bytes]:
    """Give so many bytes."""
    full, rest = divmod(count, len(CHUNK))
    for _ in range(full):
        yield CHUNK
    if rest:
        yield CHUNK[:rest]


async def answer(
    pieces: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[object]], counts: Counts
) -> None:
    """Answer one stream; `write` waits for room."""
    head = b""
    async for piece in pieces:
        head += piece
        if b"\n" in head:
            break
    line, _, rest = head.partition(b"\n")
    match line.split():
        case [b"GET", count]:
            for chunk in chunks(int(count)):
                await write(chunk)
        case [b"POST"]:
            received = len(rest)
            counts.bytes += received
            async for piece in pieces:
                received += len(piece)
                counts.bytes += len(piece)
            await write(b"%d" % received)
        case _:
            await write(counts.snapshot())
