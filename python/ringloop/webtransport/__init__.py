"""WebTransport for asyncio: sessions with streams and datagrams, for browsers and programs.

::

    async def handler(session):
        async for stream in session:
            await stream.send(await stream.read(1000))
            stream.close()

    server = await webtransport.serve(handler, "localhost", 4433, certificate=..., private_key=...)

    async with webtransport.connect("https://localhost:4433/chat", ca_file=...) as session:
        stream = await session.open_stream()

Draft-ietf-webtrans-http3, in the dialects that are deployed: 02 (Chromium, Firefox), 07 (Safari) and
13. Streams are those of `ringloop.quic`, with codes of 32 bits.
"""

from __future__ import annotations

from ringloop.h3._limits import SessionLimits
from ringloop.webtransport._certificate import (
    BrowserCertificate,
    certificate_for_browsers,
    certificate_hash,
)
from ringloop.webtransport._connect import connect, open_session
from ringloop.webtransport._errors import SessionClosed, SessionRejected
from ringloop.webtransport._serve import (
    Server,
    accept,
    is_session_request,
    offered_protocols,
    serve,
)
from ringloop.webtransport._session import Close, Session

__all__ = [
    "BrowserCertificate",
    "Close",
    "Server",
    "Session",
    "SessionClosed",
    "SessionLimits",
    "SessionRejected",
    "accept",
    "certificate_for_browsers",
    "certificate_hash",
    "connect",
    "is_session_request",
    "offered_protocols",
    "open_session",
    "serve",
]
