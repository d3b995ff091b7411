"""The handshake has its own timeout, whatever the peer sends and however long the idle timeout is."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from ringloop.quic import errors
from ringloop.quic.asyncio import connect, serve
from ringloop.quic.buffer import Buffer
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.connection import QuicConnection
from ringloop.quic.events import ConnectionTerminated
from tests.quic.support import Pair, client_config, dialled, relayed, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

SHORT = {"handshake_timeout": 0.3, "idle_timeout": None, "initial_rtt": 0.05}


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """Give the address of a socket that is never read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()


def first_packet(datagram: bytes) -> bytes:
    """Cut a datagram after its first packet, an Initial (RFC 9000 §17.2.2)."""
    buf = Buffer(data=datagram)
    buf.seek(5)
    for _id in range(2):
        buf.seek(buf.tell() + 1 + datagram[buf.tell()])
    buf.seek(buf.pull_uint_var() + buf.tell())
    length = buf.pull_uint_var()
    return datagram[: buf.tell() + length]


def is_initial(datagram: bytes) -> bool:
    # Ignores the fixed bit, which may have any value (RFC 9287).
    return datagram[0] & 0xB0 == 0x80


@pytest.mark.parametrize("idle_timeout", [None, 300.0])
def test_handshake_times_out_without_an_answer(
    run: Run, certificates: Certificates, silent: tuple[str, int], idle_timeout: float | None
) -> None:
    async def main() -> None:
        with pytest.raises(quic.HandshakeTimeout) as caught:
            async with dialled(certificates, silent, **SHORT | {"idle_timeout": idle_timeout}):
                pass
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, ConnectionError)
        assert f"no answer from 127.0.0.1:{silent[1]}" in str(caught.value)

    run(within(main()))


def test_server_that_falls_silent_during_the_handshake(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            passed: list[bytes] = []
            send = relay._send

            def first_alone(sock: socket.socket, data: bytes, to: Any) -> None:
                if sock is not relay._front:
                    send(sock, data, to)
                elif not passed:
                    passed.append(data)
                    send(sock, first_packet(data), to)

            relay._send = first_alone  # type: ignore[method-assign]
            with pytest.raises(quic.HandshakeTimeout, match="it has answered"):
                # Long enough for the answer of a slow machine.
                limits = SHORT | {"handshake_timeout": 2.0}
                async with dialled(certificates, relay.address, **limits):
                    pass
            assert passed

    run(within(main()))


def test_client_that_falls_silent_is_counted_and_reported(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()

        def failed(address: Any, error: Exception) -> None:
            told.put_nowait((address, error))

        async with (
            served(certificates, on_handshake_failed=failed, **SHORT) as server,
            relayed(server.address) as relay,
        ):
            send = relay._send
            relay._send = lambda sock, data, to: (  # type: ignore[method-assign]
                send(sock, data, to) if sock is not relay._front else None
            )
            config = client_config(certificates, initial_rtt=0.02)
            client = native.Endpoint()
            client.connect(config, relay.address, "localhost", 0.0)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for datagram, address in client.datagrams_to_send(0.0):
                    sock.sendto(datagram, address)
                address, error = await told.get()
            assert isinstance(error, quic.HandshakeTimeout)
            assert f"127.0.0.1:{address[1]}" in str(error)
            stats = server.stats()
            assert (stats.accepted, stats.failed, stats.completed) == (1, 1, 0)
            assert stats.handshakes == 0
            assert stats.failures.timed_out == 1
            (record,) = (it for it in caplog.records if it.name == "ringloop.quic")
            assert str(error) in record.getMessage()

    run(within(main()))


def test_trickle_does_not_extend_the_handshake_timeout(certificates: Certificates) -> None:
    leaf, key = certificates.issue()
    # A chain of several datagrams.
    chain = [leaf.read_bytes(), *[certificates.authority.read_bytes()] * 4]
    endless = native.ServerConfig(
        certificate=chain, private_key=key, alpn=["test"], handshake_timeout=None, idle_timeout=None
    )
    pair = Pair(
        client=native.Endpoint(events=True),
        server=native.Endpoint(events=True, server=endless, retry="always"),
    )
    arrived = 0

    def trickle(datagram: bytes, from_client: bool) -> list[bytes]:
        nonlocal arrived
        if from_client:
            # Unacknowledged data is retransmitted to a validated address.
            return [datagram] if arrived == 0 else []
        if is_initial(datagram):
            return [first_packet(datagram)]
        # Of the rest only the end arrives, repeatedly, and never the beginning.
        is_end = datagram[0] & 0xB0 == 0xA0 and len(datagram) < 1200
        arrived += is_end
        return [datagram] if is_end or datagram[0] & 0xB0 == 0xB0 else []  # a Retry passes

    pair.network = trickle
    config = client_config(certificates, handshake_timeout=23.0, idle_timeout=20.0)
    client = pair.connect(config)
    began = pair.now
    pair.run_until(lambda: client.is_closed)
    assert arrived > 1
    assert pair.now - began == pytest.approx(23.0, abs=0.1)
    assert isinstance(client.error, errors.HandshakeTimeout)


def test_answering_peer_is_notified_of_the_timeout(certificates: Certificates) -> None:
    pair = Pair.make(certificates, server={"handshake_timeout": None, "idle_timeout": None})
    pair.network = lambda datagram, from_client: (
        [datagram] if from_client else [first_packet(datagram)] if is_initial(datagram) else []
    )
    client = pair.connect(client_config(certificates, handshake_timeout=5.0, idle_timeout=None))
    pair.run_until(lambda: client.is_closed)
    assert isinstance(client.error, errors.HandshakeTimeout)
    ((_, error),) = pair.server.take_failures()
    assert isinstance(error, errors.TransportError)
    assert error.by_peer
    pair.run_until(pair.is_over)


def test_client_that_only_retransmits_times_out(certificates: Certificates) -> None:
    limits = {"handshake_timeout": 12.0, "idle_timeout": 10.0}
    pair = Pair.make(certificates, server=limits)
    pair.network = lambda datagram, from_client: [datagram] if from_client else []
    pair.connect(client_config(certificates, handshake_timeout=None, idle_timeout=50.0))
    began = pair.now
    pair.run_until(lambda: pair.server.counts()[4])
    assert pair.now - began == pytest.approx(12.0, abs=0.1)
    ((address, error),) = pair.server.take_failures()
    assert isinstance(error, errors.HandshakeTimeout)
    assert address[0] in str(error)


def test_idle_timeout_applies_during_the_handshake(certificates: Certificates) -> None:
    pair = Pair.make(certificates)
    pair.network = lambda _datagram, _from_client: []
    client = pair.connect(client_config(certificates, handshake_timeout=60.0, idle_timeout=5.0))
    pair.run_until(lambda: client.is_closed)
    assert isinstance(client.error, errors.IdleTimeout)


def test_handshake_timeout_ends_with_the_handshake(certificates: Certificates) -> None:
    limits = {"handshake_timeout": 1.0, "idle_timeout": None}
    pair = Pair.make(certificates, server=limits)
    client = pair.connect(client_config(certificates, **limits))
    pair.run_until(lambda: pair.accepted and client.is_confirmed)
    for _second in range(30):
        pair.now += 1.0
        pair.client.handle_timer(pair.now)
        pair.server.handle_timer(pair.now)
        pair.exchange()
    assert not client.is_closed
    assert not pair.accepted[0].is_closed


def test_handshake_timeout_is_one_event(silent: tuple[str, int]) -> None:
    configuration = QuicConfiguration(
        is_client=True, idle_timeout=None, handshake_timeout=2.0, server_name="localhost"
    )
    configuration.verify_mode = 0
    connection = QuicConnection(configuration=configuration)
    now = 100.0
    connection.connect(silent, now=now)
    ended: list[ConnectionTerminated] = []
    connection.datagrams_to_send(now)
    while (timer := connection.get_timer()) is not None:
        now = timer
        connection.handle_timer(now)
        while (event := connection.next_event()) is not None:
            assert isinstance(event, ConnectionTerminated)
            ended.append(event)
        assert bool(ended) or connection.datagrams_to_send(now)
    assert now == pytest.approx(102.0, abs=0.1)
    (event,) = ended
    assert event.reason_phrase == f"no answer from 127.0.0.1:{silent[1]} in the handshake's time"
    assert connection.datagrams_to_send(now) == []


def test_both_apis_accept_a_handshake_timeout(
    run: Run, certificates: Certificates, silent: tuple[str, int]
) -> None:
    ours = QuicConfiguration(is_client=False, alpn_protocols=["test"], handshake_timeout=0.0)
    ours.load_cert_chain(*certificates.issue())
    theirs = QuicConfiguration(is_client=True, handshake_timeout=0.3, idle_timeout=None)

    async def main() -> None:
        with pytest.raises(quic.ConfigurationError, match=r"handshake_timeout is 0\.0: give"):
            await serve("127.0.0.1", 0, configuration=ours)
        with pytest.raises(ConnectionError, match="no answer from 127"):
            async with connect(*silent, configuration=theirs):
                pass

    run(within(main()))
