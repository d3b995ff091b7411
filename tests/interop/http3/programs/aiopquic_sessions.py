"""A client of the WebTransport interop tests, by aiopquic; see session_contract.py.

Its server takes sessions at one path.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import session_roles
from aiopquic.asyncio.webtransport import WebTransportError, connect_webtransport
from aiopquic.quic.events import (
    WebTransportDatagramReceived,
    WebTransportNewStream,
    WebTransportSessionClosed,
    WebTransportStopSending,
    WebTransportStreamReset,
)
from contract import main
from session_roles import EndedError, RejectedError

UNIDIRECTIONAL = 2


class Stream(session_roles.Stream):
    """A stream."""

    def __init__(self, session: "Session", stream_id: int) -> None:
        self.session = session.session
        self.stopped = session.stopped
        self.id = stream_id
        self.pieces = self.session.receive_stream_data(stream_id)
        self.left = b""

    async def write(self, data: bytes) -> None:
        """Send all."""
        stopped = self.stopped.setdefault(self.id, asyncio.get_running_loop().create_future())
        if stopped.done():
            raise EndedError(stopped.result())
        try:
            await self.session.send_stream_data_drained(self.id, data)
        except WebTransportError:
            raise EndedError(await stopped) from None

    async def finish(self) -> None:
        """End what is sent."""
        await self.session.send_stream_data_drained(self.id, b"", True)

    async def read(self, size: int = session_roles.READ_BYTES_MAX) -> bytes:
        """Receive some."""
        while not self.left:
            event = await anext(self.pieces, None)
            if event is None:
                return b""
            if isinstance(event, WebTransportStreamReset):
                raise EndedError(event.error_code)
            self.left = bytes(event.data)
        data, self.left = self.left[:size], self.left[size:]
        return data

    async def reset(self, code: int) -> None:
        """Reset the sending half."""
        self.session.reset_stream(self.id, code)

    async def stop(self, code: int) -> None:
        """Stop the receiving half."""
        self.session.stop_stream(self.id, code)


class Session(session_roles.Session):
    """A session, whose events go to a queue of their kind."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.protocol = session.negotiated_protocol
        self.streams: dict[bool, asyncio.Queue[int]] = {
            True: asyncio.Queue(),
            False: asyncio.Queue(),
        }
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()
        self.stopped: dict[int, asyncio.Future[int]] = {}
        self.end: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        session_roles.start(self.sort())

    async def sort(self) -> None:
        """Take the events."""
        async for event in self.session.events():
            match event:
                case WebTransportNewStream(stream_id=stream_id):
                    self.streams[not stream_id & UNIDIRECTIONAL].put_nowait(stream_id)
                case WebTransportDatagramReceived(data=data):
                    self.datagrams.put_nowait(bytes(data))
                case WebTransportStopSending(stream_id=stream_id, error_code=code):
                    future = asyncio.get_running_loop().create_future()
                    self.stopped.setdefault(stream_id, future).set_result(code)
                case WebTransportSessionClosed(error_code=code, reason=reason):
                    self.end.set_result((code, bytes(reason).decode()))

    async def open(self, *, bidirectional: bool) -> Stream:
        """Open a stream."""
        return Stream(self, await self.session.create_stream(bidir=bidirectional))

    async def accept(self, *, bidirectional: bool) -> Stream:
        """Take a stream of the peer."""
        return Stream(self, await self.streams[bidirectional].get())

    async def send_datagram(self, data: bytes) -> None:
        """Send a datagram."""
        self.session.send_datagram_frame(data)

    async def read_datagram(self) -> bytes:
        """Receive a datagram."""
        return await self.datagrams.get()

    async def close(self, code: int, reason: str) -> None:
        """Close it."""
        await self.session.aclose(code, reason.encode())

    async def closed(self) -> tuple[int, str]:
        """Wait until the peer closes it."""
        return await self.end


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Not there."""
    raise NotImplementedError


async def run(case: str, port: int, ca: str) -> None:
    """Run one case."""

    @asynccontextmanager
    async def opened(path: str, protocols: tuple[str, ...]) -> AsyncIterator[Session]:
        connecting = connect_webtransport(
            "127.0.0.1",
            port,
            path,
            sni="localhost",
            ca_file=ca,
            wt_available_protocols=list(protocols) or None,
        )
        try:
            session = await connecting.__aenter__()
        except WebTransportError as error:
            if "HTTP 404" in str(error):
                raise RejectedError(404) from None
            raise
        try:
            yield Session(session)
        finally:
            await connecting.__aexit__(None, None, None)

    await session_roles.play(case, opened)


if __name__ == "__main__":
    main(serve, run)
