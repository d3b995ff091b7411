"""One end of the WebTransport interop tests, by pywebtransport; see session_contract.py."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pywebtransport as wt
import session_roles
from contract import WrongError, main
from pywebtransport.types import EventType
from session_contract import PROTOCOL
from session_roles import EndedError, RejectedError


class Stream(session_roles.Stream):
    """A stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        stream.events.on(event_type=EventType.STREAM_STOP_SENDING_RECEIVED, handler=self.on_stopped)

    def on_stopped(self, event: wt.Event) -> None:
        """Keep the code, which the failed write does not tell."""
        self.stopped.set_result(event.data["error_code"] if event.data else 0)

    async def write(self, data: bytes) -> None:
        """Send all."""
        try:
            await self.stream.write_all(data=data)
        except wt.StreamError:
            raise EndedError(await self.stopped) from None

    async def finish(self) -> None:
        """End what is sent."""
        await self.stream.write(data=b"", end_stream=True)

    async def read(self, size: int = session_roles.READ_BYTES_MAX) -> bytes:
        """Receive some."""
        try:
            data: bytes = await self.stream.read(max_size=size)
        except wt.StreamError as error:
            raise EndedError(error.error_code) from None
        return data

    async def reset(self, code: int) -> None:
        """Reset the sending half."""
        await self.stream.reset(error_code=code)

    async def stop(self, code: int) -> None:
        """Stop the receiving half."""
        await self.stream.stop_receiving(error_code=code)


class Session(session_roles.Session):
    """A session."""

    def __init__(self, session: wt.WebTransportSession) -> None:
        self.session = session
        self.protocol = session.wt_protocol
        ended = session.events.wait_for(event_type=EventType.SESSION_CLOSED)
        self.ended = asyncio.ensure_future(ended)

    async def open(self, *, bidirectional: bool) -> Stream:
        """Open a stream."""
        if bidirectional:
            return Stream(await self.session.create_bidirectional_stream())
        return Stream(await self.session.create_unidirectional_stream())

    async def accept(self, *, bidirectional: bool) -> Stream:
        """Take a stream of the peer."""
        coming: AsyncIterator[Any] = self.session.incoming_unidirectional_streams()
        if bidirectional:
            coming = self.session.incoming_bidirectional_streams()
        async for stream in coming:
            return Stream(stream)
        raise WrongError("the session is over")

    async def send_datagram(self, data: bytes) -> None:
        """Send a datagram."""
        await self.session.send_datagram(data=data)

    async def read_datagram(self) -> bytes:
        """Receive a datagram."""
        return await self.session.read_datagram()

    async def close(self, code: int, reason: str) -> None:
        """Close it."""
        await self.session.close(error_code=code, reason=reason)

    async def closed(self) -> tuple[int, str]:
        """Wait until the peer closes it."""
        data: dict[str, Any] = (await self.ended).data or {}
        return data.get("error_code", 0), data.get("reason") or ""


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until killed."""
    config = wt.ServerConfig(bind_host=host, bind_port=port, certfile=cert, keyfile=key)
    async with wt.WebTransportServer(config=config) as server:
        await server.listen()
        async for connection in server.incoming_connections():
            session_roles.start(take(connection))


async def take(connection: wt.WebTransportConnection) -> None:
    """Take the sessions of a connection at the paths that there are."""
    async for session in connection.incoming_sessions():
        if session_roles.accepts(session.path):
            offers = PROTOCOL in (session.wt_available_protocols or ())
            served = Session(session)
            await session.accept(wt_protocol=PROTOCOL if offers else None)
            session_roles.start(session_roles.handle(served, session.path))
        else:
            await session.reject(status_code=404)


async def run(case: str, port: int, ca: str) -> None:
    """Run one case."""

    @contextlib.asynccontextmanager
    async def opened(path: str, protocols: tuple[str, ...]) -> AsyncIterator[Session]:
        url = f"https://127.0.0.1:{port}{path}"
        async with wt.WebTransportClient(config=wt.ClientConfig(ca_certs=ca)) as client:
            try:
                session = await client.connect(
                    url=url, wt_available_protocols=list(protocols) or None
                )
            except wt.ClientError as error:
                # Its word for each status that is not 2xx.
                if error.error_code == wt.ErrorCodes.H3_REQUEST_REJECTED:
                    raise RejectedError from None
                raise
            yield Session(session)

    await session_roles.play(case, opened)


if __name__ == "__main__":
    main(serve, run)
