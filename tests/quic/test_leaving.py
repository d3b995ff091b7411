"""Leaving a connection waits only until the close is sent; what is closed too late raises."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic._driver import bind
from ringloop.quic.asyncio import QuicConnectionProtocol, connect, serve
from ringloop.quic.configuration import QuicConfiguration
from tests.quic.support import client_config
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import LoopLog
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def loop_of(run: Any) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = run.__self__
    return loop


def configurations(certificates: Certificates) -> tuple[QuicConfiguration, QuicConfiguration]:
    server = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    server.load_cert_chain(*certificates.issue())
    client = QuicConfiguration(is_client=True, alpn_protocols=["test"], server_name="localhost")
    client.load_verify_locations(cafile=str(certificates.authority))
    return server, client


def test_leaving_returns_once_the_close_is_sent(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        ours, theirs = configurations(certificates)
        made: list[QuicConnectionProtocol] = []

        class Kept(QuicConnectionProtocol):
            def __init__(self, *arguments: Any, **keywords: Any) -> None:
                super().__init__(*arguments, **keywords)
                made.append(self)

        async with await serve("127.0.0.1", 0, configuration=ours, create_protocol=Kept) as server:
            host, port = server.sockname[:2]
            async with connect(host, port, configuration=theirs) as client:
                endpoint: Any = client._transport
            assert client._closed.is_set()
            assert endpoint.is_closing()
            # The socket stays open for late packets, and closes by itself.
            assert not endpoint._driver.is_closed
            await within(made[0].wait_closed())
            await within(endpoint.wait_closed())
            assert endpoint._driver.is_closed

    run(main())


def test_leftover_endpoints_end_with_the_loop(run: Run, certificates: Certificates) -> None:
    left: list[weakref.ref[Any]] = []

    async def main() -> None:
        ours, theirs = configurations(certificates)
        server = await serve("127.0.0.1", 0, configuration=ours)
        async with connect(*server.sockname[:2], configuration=theirs) as client:
            endpoint: Any = client._transport
        left.append(weakref.ref(endpoint._driver))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        server.abort()

    run(main())
    loop_of(run).close()
    gc.collect()
    assert left[0]() is None


def test_close_after_the_loop_is_closed_raises(run: Run, certificates: Certificates) -> None:
    kept: list[Any] = []

    async def main() -> None:
        certificate, key = certificates.issue()
        server = await quic.serve(
            host="127.0.0.1", certificate=certificate, private_key=key, alpn=["test"]
        )
        client = await quic.open_connection(
            *server.address[:2],
            server_name="localhost",
            ca_file=certificates.authority,
            alpn=["test"],
        )
        kept.extend([server, client])

    run(main())
    loop_of(run).close()
    server, client = kept
    for _time in range(2):
        for end in (client, client.endpoint, server):
            with pytest.raises(RuntimeError, match="Event loop is closed"):
                end.close()
    assert not client.is_closed
    for endpoint in (client.endpoint, server):
        endpoint._driver.close()
    assert client.is_closed
    client.close()


def test_close_after_the_loop_is_closed_in_the_aioquic_api(
    run: Run, certificates: Certificates, loop_log: LoopLog
) -> None:
    kept: list[Any] = []

    async def main() -> None:
        ours, _ = configurations(certificates)

        class Kept(QuicConnectionProtocol):
            def __init__(self, *arguments: Any, **keywords: Any) -> None:
                super().__init__(*arguments, **keywords)
                kept.append(self)

        server = await serve("127.0.0.1", 0, configuration=ours, create_protocol=Kept)
        client = await quic.open_connection(
            *server.sockname[:2],
            server_name="localhost",
            ca_file=certificates.authority,
            alpn=["test"],
        )
        await within(client.ping())
        kept.extend([server, client])

    run(main())
    loop_of(run).close()
    protocol, server, client = kept
    for _time in range(2):
        for end in (protocol, server):
            with pytest.raises(RuntimeError, match=r"Event loop is closed: .* nothing was changed"):
                end.close()
    assert not protocol._closed.is_set()
    assert not loop_log.take()
    server.abort()
    client.endpoint._driver.close()


def test_aioquic_style_server_notifies_an_unseen_client(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        ours, _ = configurations(certificates)
        server = await serve("127.0.0.1", 0, configuration=ours)
        async with quic.Endpoint(bind("127.0.0.1")) as endpoint:
            client = endpoint.begin(client_config(certificates), server.sockname, "localhost")
            # Its first packet is in the server's socket, and the loop has not polled since.
            endpoint._native.flush()
            server.close()
            await within(server.wait_closed())
            with pytest.raises(quic.TransportError, match="CONNECTION_REFUSED"):
                await within(client.wait_connected())

    run(main())
