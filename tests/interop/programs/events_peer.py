"""One end of the interop tests, with an aioquic-style API: aioquic, qh3, aiopquic, ours.

    events_peer.py PACKAGE server 127.0.0.1:4433 cert.pem key.pem [retry]
    events_peer.py PACKAGE client ca.pem            reads `CASE PORT` from standard input

The contract is that of crates/ringloop-quic/examples/interop.rs. Runs in the peers' environment,
not in that of the tests.
"""

import asyncio
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from peer import ALPN, BYTES, BYTES_V2, DATAGRAMS, main, pattern, say

PACKAGE = sys.argv[1]
INNER = PACKAGE if PACKAGE == "ringloop.quic" else f"{PACKAGE}.quic"
package = importlib.import_module(f"{PACKAGE}.asyncio")
protocols = importlib.import_module(f"{PACKAGE}.asyncio.protocol")
configuration = importlib.import_module(f"{INNER}.configuration")
events = importlib.import_module(f"{INNER}.events")

VERSION_1, VERSION_2 = 0x00000001, 0x6B3343CF
# aiopquic has no call for a key update, but updates keys after this many packets.
KEY_UPDATE_PACKETS = 100


# --- the server -----------------------------------------------------------------------------------


class Server(protocols.QuicConnectionProtocol):
    """Echoes everything."""

    resumed = False
    begun: set[int] | None = None

    def quic_event_received(self, event: Any) -> None:
        """Handle one event."""
        match type(event):
            case events.StreamDataReceived:
                self.echo(event.stream_id, bytes(event.data), event.end_stream)
            case events.DatagramFrameReceived:
                self._quic.send_datagram_frame(bytes(event.data))
            case events.HandshakeCompleted:
                self.resumed = event.session_resumed
            case events.ConnectionTerminated:
                # An application's code has no frame type.
                code = event.error_code if event.frame_type is None else None
                say(event="closed", code=code, reason=event.reason_phrase, resumed=self.resumed)

    def echo(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """Echo the data, or close as it requests."""
        self.begun = self.begun or set()
        if stream_id not in self.begun and data.startswith(b"close "):
            code, _, reason = data.decode().removeprefix("close ").partition(" ")
            close(self, int(code), reason)
            return
        self.begun.add(stream_id)
        self.send(stream_id, data, is_end)

    def send(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """Send; aiopquic reports when it has no room."""
        try:
            self._quic.send_stream_data(stream_id, data, is_end)
        except BufferError:
            asyncio.get_running_loop().call_later(0.002, self.send, stream_id, data, is_end)


def close(protocol: Any, code: int, reason: str) -> None:
    """Close with an application code."""
    protocol._quic.close(error_code=code, reason_phrase=reason)
    if hasattr(protocol, "transmit"):
        protocol.transmit()


async def serve(address: str, cert: str, key: str, *, retry: bool) -> None:
    """Serve until killed."""
    host, _, port = address.partition(":")
    # qh3 speaks only version 1 by default.
    versions = {} if PACKAGE == "aiopquic" else {"supported_versions": [VERSION_1, VERSION_2]}
    settings = configure(is_client=False, **versions)
    settings.load_cert_chain(cert, key)
    tickets: dict[bytes, Any] = {}
    more: dict[str, Any] = {}
    if PACKAGE != "aiopquic":
        more["session_ticket_fetcher"] = lambda label: tickets.get(label)
        more["session_ticket_handler"] = lambda ticket: tickets.update({ticket.ticket: ticket})
    await package.serve(
        host, int(port), configuration=settings, create_protocol=Server, retry=retry, **more
    )
    say(event="ready")
    await asyncio.Event().wait()


def configure(*, is_client: bool, **more: Any) -> Any:
    """The configuration that both sides share."""
    return configuration.QuicConfiguration(
        is_client=is_client, alpn_protocols=[ALPN], max_datagram_frame_size=65535, **more
    )


# --- the client -----------------------------------------------------------------------------------


class Client(protocols.QuicConnectionProtocol):
    """Collects received data, by stream."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.received: dict[int, bytearray] = {}
        self.ended: dict[int, asyncio.Future[None]] = {}
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()
        self.completed: Any = None
        self.terminated: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event: Any) -> None:
        """Handle one event."""
        match type(event):
            case events.StreamDataReceived if event.stream_id in self.received:
                self.received[event.stream_id] += event.data
                if event.end_stream:
                    self.ended[event.stream_id].set_result(None)
            case events.DatagramFrameReceived:
                self.datagrams.put_nowait(bytes(event.data))
            case events.HandshakeCompleted:
                self.completed = event
            case events.ConnectionTerminated if not self.terminated.done():
                self.terminated.set_result(event)
                for ended in self.ended.values():
                    if not ended.done():
                        ended.set_exception(ConnectionError(f"closed: {event}"))
                        ended.exception()

    async def send(self, stream_id: int, data: bytes) -> None:
        """Send all, and EOF."""
        if PACKAGE == "aiopquic":
            pieces = [data[at : at + 65536] for at in range(0, len(data), 65536)]
            for piece in pieces[:-1]:
                await self._quic.send_stream_data_drained(stream_id, piece)
            await self._quic.send_stream_data_drained(stream_id, pieces[-1], True)
        else:
            self._quic.send_stream_data(stream_id, data, True)
            self.transmit()

    async def exchange(self, size: int) -> None:
        """Send the pattern and receive it back."""
        stream_id, data = self._quic.get_next_available_stream_id(), pattern(size)
        self.received[stream_id] = bytearray()
        self.ended[stream_id] = asyncio.get_running_loop().create_future()
        await self.send(stream_id, data)
        await self.ended[stream_id]
        if self.received[stream_id] != data:
            raise ValueError(f"{len(self.received[stream_id])} other bytes came back")


class Session:
    """The clients of one case; they share the state for resumption."""

    def __init__(self, case: str, port: int, ca: str, folder: str) -> None:
        self.case, self.port = case, port
        self.tickets: list[Any] = []
        self.has_ticket = asyncio.Event()
        more: dict[str, Any] = {"server_name": "localhost"}
        if case == "v2":
            more["supported_versions"] = [VERSION_2]
        if PACKAGE == "aiopquic":
            more["session_ticket_file"] = str(Path(folder, "tickets"))
            if case == "key-update":
                more["key_update_interval"] = KEY_UPDATE_PACKETS
        self.settings = configure(is_client=True, **more)
        self.settings.load_verify_locations(ca)
        if case == "v2" and PACKAGE != "aiopquic":
            self.settings.original_version = VERSION_2

    def connect(self, **more: Any) -> Any:
        """Connect."""
        if PACKAGE != "aiopquic":
            more["session_ticket_handler"] = self.keep
        return package.connect(
            "127.0.0.1", self.port, configuration=self.settings, create_protocol=Client, **more
        )

    def keep(self, ticket: Any) -> None:
        """Keep a ticket."""
        self.tickets.append(ticket)
        self.has_ticket.set()

    async def ticket(self) -> None:
        """Wait for a ticket, which arrives after the handshake; aiopquic writes it to a file unseen."""
        await (asyncio.sleep(0.2) if PACKAGE == "aiopquic" else self.has_ticket.wait())


async def run(case: str, port: int, ca: str) -> dict[str, Any]:
    """Run one case; return its additions to the result."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(case, port, ca, folder)
        async with session.connect() as client:
            match case:
                case "handshake":
                    pass
                case "resumption" | "early-data":
                    await client.exchange(1000)
                    await session.ticket()
                case "key-update":
                    await key_update(client)
                case "datagrams":
                    await datagrams(client)
                case "close-codes":
                    # Until the server has the last flight no code may be sent (RFC 9000 §10.2.3).
                    await client.exchange(100)
                    close(client, 42, "as the client says")
                    await client.terminated
                case "v2":
                    await client.exchange(BYTES_V2)
                case _:
                    await client.exchange(BYTES)
        if case in ("resumption", "early-data"):
            return await again(session)
        return await closed_by(session) if case == "close-codes" else {}


async def key_update(client: Client) -> None:
    """Update keys between transfers."""
    for _ in range(4):
        await client.exchange(100_000)
        if PACKAGE != "aiopquic":
            # The server may have updated the keys in its last packet. aioquic, which does not wait until
            # that update is acknowledged (RFC 9001 §6.1), would update them twice before it sends again.
            await client.ping()
            client.request_key_update()


async def datagrams(client: Client) -> None:
    """Send some and receive each back."""
    for at in range(DATAGRAMS):
        sent = f"datagram {at}".encode()
        client._quic.send_datagram_frame(sent)
        if hasattr(client, "transmit"):
            client.transmit()
        if await client.datagrams.get() != sent:
            raise ValueError("another datagram came back")


async def again(session: Session) -> dict[str, Any]:
    """Connect a second time, with the state of the first."""
    early = session.case == "early-data"
    if PACKAGE != "aiopquic":
        session.settings.session_ticket = session.tickets[-1]
    more = {"wait_connected": False} if early else {}
    async with session.connect(**more) as client:
        await client.exchange(1000)
        if early and PACKAGE == "aiopquic":
            await client.wait_connected()
        told = {"resumed": client.completed.session_resumed}
        if early:
            told["early"] = client.completed.early_data_accepted
        return told


async def closed_by(session: Session) -> dict[str, Any]:
    """Make the server close."""
    async with session.connect() as client:
        stream_id = client._quic.get_next_available_stream_id()
        await client.send(stream_id, b"close 43 as the server says")
        event = await client.terminated
        return {"code": event.error_code, "reason": event.reason_phrase}


if __name__ == "__main__":
    main(sys.argv[2:], serve, run)
