"""One end of the WebTransport interop tests, by the binding of web-transport-quinn; see
session_contract.py."""

import base64
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import session_roles
import web_transport as wt
from contract import main
from session_roles import EndedError, RejectedError


def der(path: str | Path) -> bytes:
    """Return what the first block of a PEM file has."""
    lines = Path(path).read_text().partition("-----END")[0].splitlines()
    return base64.b64decode("".join(lines[1:]))


async def checked(work: Awaitable[Any]) -> Any:
    """Tell the codes of the peer."""
    try:
        return await work
    except wt.StreamClosedByPeer as error:
        raise EndedError(error.code) from None


class Stream(session_roles.Stream):
    """A stream, or the half of one."""

    def __init__(self, sending: wt.SendStream | None, receiving: wt.RecvStream | None) -> None:
        self.sending = sending
        self.receiving = receiving

    async def write(self, data: bytes) -> None:
        """Send all."""
        assert self.sending is not None
        await checked(self.sending.write(data))

    async def finish(self) -> None:
        """End what is sent."""
        assert self.sending is not None
        await self.sending.finish()

    async def read(self, size: int = session_roles.READ_BYTES_MAX) -> bytes:
        """Receive some."""
        assert self.receiving is not None
        data: bytes = await checked(self.receiving.read(size))
        return data

    async def reset(self, code: int) -> None:
        """Reset the sending half."""
        assert self.sending is not None
        self.sending.reset(code)

    async def stop(self, code: int) -> None:
        """Stop the receiving half."""
        assert self.receiving is not None
        self.receiving.stop(code)


class Session(session_roles.Session):
    """A session."""

    def __init__(self, session: wt.Session) -> None:
        self.session = session

    async def open(self, *, bidirectional: bool) -> Stream:
        """Open a stream."""
        if bidirectional:
            return Stream(*await self.session.open_bi())
        return Stream(await self.session.open_uni(), None)

    async def accept(self, *, bidirectional: bool) -> Stream:
        """Take a stream of the peer."""
        if bidirectional:
            return Stream(*await self.session.accept_bi())
        return Stream(None, await self.session.accept_uni())

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
        await self.session.wait_closed()
        reason = self.session.close_reason
        if isinstance(reason, wt.SessionClosedByPeer) and reason.source == "session":
            return reason.code or 0, reason.reason
        raise reason or wt.SessionError("closed without a reason")


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until killed."""
    bind = f"{host}:{port}"
    async with wt.Server(certificate_chain=[der(cert)], private_key=der(key), bind=bind) as server:
        async for request in server:
            session_roles.start(answer(request))


async def answer(request: wt.SessionRequest) -> None:
    """Take a session at the paths that there are."""
    parts = urlsplit(request.url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    if session_roles.accepts(path):
        await session_roles.handle(Session(await request.accept()), path)
    else:
        await request.reject(404)


async def run(case: str, port: int, ca: str) -> None:
    """Run one case."""
    # It takes certificates by their hashes, or of the system's authorities.
    shown = wt.certificate_hash(der(Path(ca).with_name("localhost.pem")))

    @asynccontextmanager
    async def opened(path: str, protocols: tuple[str, ...]) -> AsyncIterator[Session]:
        async with wt.Client(server_certificate_hashes=[shown]) as client:
            try:
                session = await client.connect(f"https://127.0.0.1:{port}{path}")
            except wt.ConnectError as error:
                if "Some(404)" in str(error):
                    raise RejectedError(404) from None
                raise
            async with session:
                yield Session(session)

    await session_roles.play(case, opened)


if __name__ == "__main__":
    main(serve, run)
