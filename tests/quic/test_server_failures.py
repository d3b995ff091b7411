"""A server hears of clients that did not get in, and is told of no error where a client just went."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal

import pytest

from ringloop import quic
from ringloop.quic._driver import bind
from tests.quic.support import client_config, dialled, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.tls import Certificates

    Run = Callable[[Any], Any]


def test_a_failed_handshake_is_logged_told_and_counted(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()

        def failed(address: Any, error: Exception) -> None:
            told.put_nowait((address, error))
            raise ZeroDivisionError("asked for")

        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, it: reported.append(it))
        async with served(certificates, on_handshake_failed=failed) as server:
            with pytest.raises(quic.ConnectionClosed):
                async with dialled(certificates, server.address, alpn=["other"]):
                    pass
            address, error = await within(told.get())
            async with dialled(certificates, server.address):
                await within(server.accept())
            stats = server.stats()
        assert address[0] == "127.0.0.1"
        assert isinstance(error, quic.ConnectionClosed)
        assert (stats.accepted, stats.completed, stats.failed) == (2, 1, 1)
        assert [type(it["exception"]) for it in reported] == [ZeroDivisionError]
        (record,) = (it for it in caplog.records if it.name == "ringloop.quic")
        assert f"127.0.0.1:{address[1]}" in record.getMessage()
        assert str(error) in record.getMessage()

    with caplog.at_level(logging.WARNING, "ringloop.quic"):
        run(main())


@pytest.mark.parametrize("is_fault", [False, True])
def test_a_group_of_a_disconnects_errors_is_none_of_the_handlers(
    run: Run, certificates: Certificates, is_fault: bool
) -> None:
    async def main() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, it: reported.append(it))
        ended = asyncio.Event()

        async def read(connection: quic.Connection) -> None:
            try:
                await connection.accept_stream()
            finally:
                if is_fault:
                    raise ZeroDivisionError("asked for")

        async def handle(connection: quic.Connection) -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(read(connection))
                    group.create_task(connection.receive_datagram())
            finally:
                ended.set()

        async with served(certificates, handler=handle) as server:
            async with dialled(certificates, server.address):
                pass
            await within(ended.wait())
        assert bool(reported) is is_fault

    run(main())


@pytest.mark.parametrize("wanted", ["required", "optional"])
def test_clients_cannot_be_asked_for_certificates_without_an_authority(
    certificates: Certificates, wanted: Literal["required", "optional"]
) -> None:
    certificate, key = certificates.issue()
    shown: dict[str, Any] = {"certificate": certificate, "private_key": key}
    with pytest.raises(quic.ConfigurationError, match="ca_file"):
        quic.ServerConfig(client_auth=wanted, **shown)
    quic.ServerConfig(client_auth=wanted, ca_file=certificates.authority, **shown)


def test_a_client_that_the_server_has_not_seen_hears_of_its_end(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            async with quic.Endpoint(bind("127.0.0.1")) as endpoint:
                config = client_config(certificates)
                client = endpoint.begin(config, server.address, "localhost")
                # Its first packet is in the server's socket, and the loop has not looked since.
                endpoint._native.flush()
                await within(server.wait_closed())
                with pytest.raises(quic.TransportError):
                    await within(client.wait_connected())

    run(main())
