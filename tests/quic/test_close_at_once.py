"""A client that closes as soon as it is connected: the server hears of the connection and of the code.

A close that leaves with the last flight of the handshake does so in a packet of the handshake's,
in which no program's code may stand (RFC 9000 §10.2.3): the server hears APPLICATION_ERROR, and
never of a connection that was established.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ringloop import quic
from tests.quic.support import dialled, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.tls import Certificates

    Run = Callable[[Any], Any]


def test_the_code_of_a_close_at_once_arrives(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        heard: asyncio.Future[ConnectionError | None] = asyncio.get_running_loop().create_future()

        async def handle(connection: quic.Connection) -> None:
            await connection.wait_closed()
            heard.set_result(connection.error)

        async with served(certificates, handler=handle) as server:
            async with dialled(certificates, server.address) as client:
                client.close(42, "at once")
            error = await within(heard)
            assert isinstance(error, quic.ConnectionClosedByPeer)
            assert error.code == 42

    run(main())
