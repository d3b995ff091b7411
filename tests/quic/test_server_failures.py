"""A server reports failed handshakes, but no error when a client just disconnects."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal

import pytest

from ringloop import quic
from ringloop.quic import _failures
from ringloop.quic._driver import bind
from ringloop.quic.asyncio import serve
from ringloop.quic.compat.aiopquic import asyncio as aiopquic
from ringloop.quic.compat.aiopquic.configuration import QuicConfiguration as AiopquicConfiguration
from ringloop.quic.configuration import QuicConfiguration
from tests.quic.support import client_config, dialled, served
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_failed_handshake_is_logged_reported_and_counted(
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
        assert stats.failures == (0, 1, 0, 0)
        assert stats.failures.tls == 1
        assert [type(it["exception"]) for it in reported] == [ZeroDivisionError]
        (record,) = (it for it in caplog.records if it.name == "ringloop.quic")
        assert f"127.0.0.1:{address[1]}" in record.getMessage()
        assert str(error) in record.getMessage()

    with caplog.at_level(logging.WARNING, "ringloop.quic"):
        run(main())


async def fail(certificates: Certificates, address: Any, count: int) -> None:
    for _time in range(count):
        with pytest.raises(quic.ConnectionClosed):
            async with dialled(certificates, address, alpn=["other"]):
                pass


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.name == "ringloop.quic"]


def test_a_flood_of_failures_does_not_fill_the_log(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_failures, "WINDOW_SECONDS", 1000.0)
    limit = _failures.LOGGED_PER_WINDOW

    async def main() -> None:
        told: list[Any] = []
        async with served(
            certificates, on_handshake_failed=lambda *failure: told.append(failure)
        ) as server:
            await within(fail(certificates, server.address, limit + 7))
            await wait_until(lambda: server.stats().failed == limit + 7)
            assert len(logged(caplog)) == limit
        assert len(told) == limit + 7
        assert logged(caplog)[limit].startswith("7 more handshakes failed")
        assert len(logged(caplog)) == limit + 1

    with caplog.at_level(logging.WARNING, "ringloop.quic"):
        run(main())


def test_unlogged_failures_are_summarized_in_time(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_failures, "WINDOW_SECONDS", 0.5)
    monkeypatch.setattr(_failures, "LOGGED_PER_WINDOW", 0)

    async def main() -> None:
        async with served(certificates) as server:
            await within(fail(certificates, server.address, 2))
            await wait_until(lambda: sum(map(first_number, logged(caplog))) == 2)

    with caplog.at_level(logging.WARNING, "ringloop.quic"):
        run(main())


def first_number(line: str) -> int:
    assert "more handshakes failed within 0.5 s" in line
    return int(line.split(maxsplit=1)[0])


def test_peers_reason_is_one_log_line(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        failures = _failures.Failures(asyncio.get_running_loop(), None, lambda _error: None)
        error = quic.TransportError(1, "first\r\nsecond \x1b[2J" + "é" * 5000, by_peer=True)
        native: Any = _Failed(error)
        failures.take(native)
        failures.close()

    with caplog.at_level(logging.WARNING, "ringloop.quic"):
        run(main())
    (line,) = logged(caplog)
    assert line.isprintable()
    assert r"first\r\nsecond \x1b[2Jé" in line
    assert len(line) < 700


class _Failed:
    """Replaces an endpoint: one failure."""

    def __init__(self, error: quic.ConnectionClosed) -> None:
        self._failures = [(("192.0.2.1", 1), error)]

    def take_failures(self) -> list[Any]:
        return self._failures


@pytest.mark.parametrize(
    ("start", "configured"),
    [(serve, QuicConfiguration), (aiopquic.serve, AiopquicConfiguration)],
    ids=["aioquic", "aiopquic"],
)
@pytest.mark.parametrize("is_fault", [False, True])
def test_servers_of_other_apis_see_failures(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    start: Any,
    configured: Any,
    is_fault: bool,
) -> None:
    configuration = configured(is_client=False, alpn_protocols=["test"])
    configuration.load_cert_chain(*certificates.issue())

    async def main() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, it: reported.append(it))

        def failed(*failure: Any) -> None:
            told.put_nowait(failure)
            if is_fault:
                raise ZeroDivisionError("asked for")

        server = await start(
            "127.0.0.1", 0, configuration=configuration, on_handshake_failed=failed
        )
        async with server:
            await within(fail(certificates, server.sockname, 1))
            address, error = await within(told.get())
            stats = server.stats()
            assert (stats.accepted, stats.completed, stats.failed) == (1, 0, 1)
        assert isinstance(error, quic.TlsError)
        assert f"127.0.0.1:{address[1]}" in logged(caplog)[0]
        assert [type(it["exception"]) for it in reported] == [ZeroDivisionError] * is_fault

    with caplog.at_level(logging.WARNING, "ringloop.quic"):
        run(main())


@pytest.mark.parametrize("is_fault", [False, True])
def test_exception_group_of_a_disconnect_is_not_reported(
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
def test_client_certificates_require_an_authority(
    certificates: Certificates, wanted: Literal["required", "optional"]
) -> None:
    certificate, key = certificates.issue()
    shown: dict[str, Any] = {"certificate": certificate, "private_key": key}
    with pytest.raises(quic.ConfigurationError, match="ca_file"):
        quic.ServerConfig(client_auth=wanted, **shown)
    quic.ServerConfig(client_auth=wanted, ca_file=certificates.authority, **shown)


def test_unseen_client_is_notified_of_the_servers_end(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            async with quic.Endpoint(bind("127.0.0.1")) as endpoint:
                config = client_config(certificates)
                client = endpoint.begin(config, server.address, "localhost")
                # Its first packet is in the server's socket, and the loop has not polled since.
                endpoint._native.flush()
                await within(server.wait_closed())
                with pytest.raises(quic.TransportError):
                    await within(client.wait_connected())

    run(main())
