"""One end of the interop tests, by our own API.

    native_peer.py server 127.0.0.1:4433 cert.pem key.pem [retry]
    native_peer.py client ca.pem            reads `CASE PORT [h3 FILE]` from standard input

The contract is that of crates/ringloop-quic/examples/interop.rs, without its HTTP/3.
"""

import asyncio
import sys
from typing import Any

from peer import ALPN, BYTES, BYTES_V2, DATAGRAMS, main, pattern, say

from ringloop import quic


async def serve(address: str, cert: str, key: str, *, retry: bool) -> None:
    """Serve until killed."""
    host, _, port = address.partition(":")
    await quic.serve(
        accepted,
        host,
        int(port),
        stream_handler=echo,
        retry="always" if retry else "never",
        certificate=cert,
        private_key=key,
        alpn=[ALPN],
        early_data=True,
    )
    say(event="ready")
    await asyncio.Event().wait()


async def accepted(connection: quic.Connection) -> None:
    """Echo datagrams; report the end."""
    try:
        while True:
            await connection.send_datagrams(await connection.receive_datagrams())
    except quic.QuicError as error:
        agreed = connection.handshake()
        resumed = bool(agreed and agreed.is_resumed)
        say(event="closed", resumed=resumed, **closing(error))


def closing(error: quic.QuicError) -> dict[str, Any]:
    """Code and reason of the peer's application."""
    if isinstance(error, quic.ConnectionClosedByPeer):
        return {"code": error.code, "reason": text(error.reason)}
    return {"code": None, "reason": str(error)}


def text(reason: str | bytes) -> str:
    """Write a reason."""
    return reason if isinstance(reason, str) else reason.decode(errors="replace")


async def echo(stream: quic.Stream) -> None:
    """Echo the data, or close as it requests."""
    is_first = True
    while data := await stream.read(1 << 16):
        if is_first and data.startswith(b"close "):
            code, _, reason = data.decode().removeprefix("close ").partition(" ")
            stream.connection.close(int(code), reason)
            return
        is_first = False
        await stream.send(data)
    stream.finish()


async def run(case: str, port: int, ca: str) -> dict[str, Any]:
    """Run one case; return its additions to the result."""
    config = quic.ClientConfig(alpn=[ALPN], ca_file=ca, version=2 if case == "v2" else 1)

    def connect(**more: Any) -> Any:
        return quic.connect(
            "127.0.0.1", port, configuration=config, server_name="localhost", **more
        )

    async with connect() as connection:
        match case:
            case "handshake":
                return {}
            case "resumption" | "early-data":
                await exchange(connection, 1000)
                # Tickets arrive after the handshake.
                await asyncio.sleep(0.2)
            case "key-update":
                for _ in range(4):
                    await exchange(connection, 100_000)
                    connection.update_keys()
            case "datagrams":
                await datagrams(connection)
            case "close-codes":
                # Until the server has the last flight no code may be sent (RFC 9000 §10.2.3).
                await exchange(connection, 100)
                connection.close(42, "as the client says")
            case _:
                await exchange(connection, BYTES_V2 if case == "v2" else BYTES)
    if case == "close-codes":
        async with connect() as connection:
            stream = await connection.open_stream()
            await stream.send(b"close 43 as the server says")
            await connection.wait_closed()
            return closing(connection.error)
    if case not in ("resumption", "early-data"):
        return {}
    early = case == "early-data"
    async with connect(early_data=early) as connection:
        await exchange(connection, 1000)
        await connection.wait_connected()
        agreed = connection.handshake()
        told = {"resumed": bool(agreed and agreed.is_resumed)}
        return told | ({"early": connection.early_data_accepted} if early else {})


async def exchange(connection: quic.Connection, size: int) -> None:
    """Send the pattern and receive it back."""
    data = pattern(size)
    stream = await connection.open_stream()

    async def send() -> None:
        await stream.send(data)
        stream.finish()

    _, back = await asyncio.gather(send(), stream.read_to_end())
    if back != data:
        raise ValueError(f"{len(back)} other bytes came back")


async def datagrams(connection: quic.Connection) -> None:
    """Send some and receive each back."""
    for at in range(DATAGRAMS):
        sent = f"datagram {at}".encode()
        await connection.send_datagram(sent)
        if await connection.receive_datagram() != sent:
            raise ValueError("another datagram came back")


if __name__ == "__main__":
    main(sys.argv[1:], serve, run)
