"""One end of the WebTransport interop tests, by `ringloop.webtransport`; see session_contract.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import session_roles
from contract import main
from session_contract import PROTOCOL
from session_roles import EndedError, RejectedError

from ringloop import h3, quic, webtransport


class Stream(session_roles.Stream):
    """A stream."""

    def __init__(self, stream: quic.Stream) -> None:
        self.stream = stream

    async def write(self, data: bytes) -> None:
        """Send all."""
        try:
            await self.stream.send(data)
        except quic.StreamStoppedError as error:
            raise EndedError(error.code) from None

    async def finish(self) -> None:
        """End what is sent."""
        self.stream.finish()

    async def read(self, size: int = session_roles.READ_BYTES_MAX) -> bytes:
        """Receive some."""
        try:
            return await self.stream.read(size)
        except quic.StreamResetError as error:
            raise EndedError(error.code) from None

    async def reset(self, code: int) -> None:
        """Reset the sending half."""
        self.stream.reset(code)

    async def stop(self, code: int) -> None:
        """Stop the receiving half."""
        self.stream.stop(code)


class Session(session_roles.Session):
    """A session."""

    def __init__(self, session: webtransport.Session) -> None:
        self.session = session
        self.protocol = session.protocol

    async def open(self, *, bidirectional: bool) -> Stream:
        """Open a stream."""
        if bidirectional:
            return Stream(await self.session.open_stream())
        return Stream(await self.session.open_unidirectional_stream())

    async def accept(self, *, bidirectional: bool) -> Stream:
        """Take a stream of the peer."""
        if bidirectional:
            return Stream(await self.session.accept_stream())
        return Stream(await self.session.accept_unidirectional_stream())

    async def send_datagram(self, data: bytes) -> None:
        """Send a datagram."""
        self.session.send_datagram(data)

    async def read_datagram(self) -> bytes:
        """Receive a datagram."""
        return await self.session.receive_datagram()

    async def close(self, code: int, reason: str) -> None:
        """Close it."""
        self.session.close(code, reason)

    async def closed(self) -> tuple[int, str]:
        """Wait until the peer closes it."""
        end = await self.session.wait_closed()
        return end.code, end.reason


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until killed."""

    async def handle(session: webtransport.Session) -> None:
        await session_roles.handle(Session(session), session.path)

    await webtransport.serve(handle, host, port, accepts=accepts, certificate=cert, private_key=key)
    await asyncio.Event().wait()


async def accepts(request: h3.Request) -> webtransport.Session | None:
    """Take a session at the paths that there are."""
    if not session_roles.accepts(request.path or ""):
        await request.respond(404)
        return None
    offers = PROTOCOL in webtransport.offered_protocols(request)
    return await webtransport.accept(request, protocol=PROTOCOL if offers else None)


async def run(case: str, port: int, ca: str) -> None:
    """Run one case."""

    @asynccontextmanager
    async def opened(path: str, protocols: tuple[str, ...]) -> AsyncIterator[Session]:
        url = f"https://127.0.0.1:{port}{path}"
        trust = {"ca_file": ca, "server_name": "localhost"}
        try:
            session = await webtransport.open_session(url, protocols=protocols, **trust)
        except webtransport.SessionRejected as error:
            raise RejectedError(error.status) from None
        async with session:
            yield Session(session)

    await session_roles.play(case, opened)


if __name__ == "__main__":
    main(serve, run)
