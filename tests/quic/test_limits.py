"""The cost of strangers and greedy peers for a server, without I/O.

The test controls the clock and the network.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from tests.quic.support import CLIENT, SERVER, Pair, client_config, server_config
from tests.support import until_memory_stays

if TYPE_CHECKING:
    from tests.support.tls import Certificates

# A certificate larger than three times a client's first flight.
NAMES = ",".join(
    ["DNS:localhost", *[f"DNS:a-rather-long-name-{n}.example.org" for n in range(300)]]
)


def first_flight(certificates: Certificates) -> list[bytes]:
    """The first datagrams of a client."""
    client = native.Endpoint(events=True)
    client.connect(client_config(certificates), SERVER, "localhost", 100.0)
    return [datagram for datagram, _ in client.datagrams_to_send(100.0)]


@pytest.mark.parametrize("heard", [1, 2])
def test_unvalidated_address_is_limited_to_three_times_its_bytes(
    certificates: Certificates, heard: int
) -> None:
    certificate, key = certificates.issue("long", NAMES)
    config = native.ServerConfig(certificate=certificate, private_key=key, alpn=["test"])
    server, now = native.Endpoint(events=True, server=config), 100.0
    came = went = 0
    flight = first_flight(certificates)
    assert len(flight) >= heard
    for datagram in flight[:heard]:
        came += len(datagram)
        server.receive_datagram(datagram, CLIENT, now)
        went += sum(len(data) for data, _ in server.datagrams_to_send(now))
        assert went <= 3 * came
    # It retransmits until it times out; the client sends nothing.
    while (deadline := server.next_timeout()) is not None:
        now = max(now, deadline)
        server.handle_timer(now)
        went += sum(len(data) for data, _ in server.datagrams_to_send(now))
        assert went <= 3 * came
    server.take()
    assert server.connection_count == 0
    if heard == len(flight):
        assert went > 2 * came, "there was more to say than that"


def test_long_certificate_arrives_despite_the_amplification_limit(
    certificates: Certificates,
) -> None:
    certificate, key = certificates.issue("long", NAMES)
    config = native.ServerConfig(certificate=certificate, private_key=key, alpn=["test"])
    pair = Pair(
        client=native.Endpoint(events=True), server=native.Endpoint(events=True, server=config)
    )
    connection = pair.connect(client_config(certificates))
    pair.run_until(lambda: not connection.is_handshaking)
    assert len(connection.peer_certificates()[0]) > 7200


@pytest.mark.one_thread("it looks at the memory of the process")
def test_flood_of_first_packets_creates_no_state_with_retry(certificates: Certificates) -> None:
    pair = Pair.make(certificates, retry="always")
    server = pair.server
    (datagram, *_rest) = first_flight(certificates)

    def flood(addresses: range) -> None:
        for number in addresses:
            address = (f"198.51.{number >> 8 & 255}.{number & 255}", 1024 + number % 50_000)
            server.receive_datagram(datagram, address, pair.now)
            ((answer, to),) = server.datagrams_to_send(pair.now)
            assert to == address
            assert len(answer) < 200, "a Retry"
            assert server.connection_count == 0
            assert server.next_timeout() is None

    flood(range(1000))
    for _ in until_memory_stays(4 << 20):
        flood(range(1000, 6000))
    connection = pair.connect(client_config(certificates))
    pair.run_until(lambda: not connection.is_handshaking)
    assert server.connection_count == 1


def test_queued_answers_are_bounded(certificates: Certificates) -> None:
    pair = Pair.make(certificates, retry="always")
    (datagram, *_rest) = first_flight(certificates)
    for number in range(2000):
        pair.server.receive_datagram(datagram, ("198.51.100.1", 1024 + number), pair.now)
    assert len(pair.server.datagrams_to_send(pair.now)) == 256


def test_retry_is_required_during_many_handshakes(
    certificates: Certificates,
) -> None:
    pair = Pair.make(certificates, retry="auto")
    server, flooder, config = pair.server, native.Endpoint(events=True), client_config(certificates)
    ports = count(1024)
    for _ in range(200):
        flooder.connect(config, SERVER, "localhost", pair.now)
        address = ("198.51.100.1", next(ports))
        for datagram, _ in flooder.datagrams_to_send(pair.now):
            server.receive_datagram(datagram, address, pair.now)
        assert server.connection_count <= 129
        server.datagrams_to_send(pair.now)
    assert server.connection_count >= 128
    pair.has_strangers = True
    # It outlives the silent ones.
    legitimate = pair.connect(client_config(certificates, keep_alive=5))
    pair.run_until(lambda: not legitimate.is_handshaking)
    # The silent ones time out.
    pair.run_until(lambda: server.connection_count == 1, 120)
    assert not legitimate.is_closed


def test_connections_past_the_maximum_are_refused_until_there_is_room(
    certificates: Certificates,
) -> None:
    pair = Pair.make(certificates, max_connections=3)
    config = client_config(certificates)
    connections = [pair.connect(config) for _ in range(5)]
    pair.exchange()
    refused = [connection for connection in connections if connection.is_closed]
    assert len(refused) == 2
    for connection in refused:
        assert isinstance(connection.error, quic.TransportError)
        assert connection.error.code == 2  # CONNECTION_REFUSED
    connections[0].close(0, "", pair.now)
    pair.run_until(lambda: pair.server.connection_count == 2)
    connection = pair.connect(config)
    pair.run_until(lambda: not connection.is_handshaking)
    assert connection.error is None


def test_unread_data_is_bounded_by_the_windows(
    certificates: Certificates,
) -> None:
    windows: dict[str, Any] = {
        "max_stream_data": 50_000,
        "max_data": 200_000,
        "max_data_grown": 200_000,
    }
    pair = Pair.make(certificates, windows)
    config = client_config(certificates, send_window=100_000, send_window_min=100_000)
    connection = pair.connect(config)
    pair.exchange()
    streams: list[int] = []
    # The peer raises the limit once half of the allowed streams are open.
    for _ in range(5):
        while (stream := connection.open_stream_nowait()) is not None:
            streams.append(stream)
            connection.send_stream_data(stream, b"x", False)
        pair.exchange()
    assert len(streams) == 100
    for _ in range(3):
        for stream in streams:
            connection.send_stream_data(stream, bytes(10_000), False)
        pair.exchange()
    # The rest is still here, and the peer's application has no event to store.
    (peer,) = pair.accepted
    assert connection.streams_queued > 3_000_000 - 200_000 - 100_000
    assert connection.stats().bytes_sent < 300_000
    assert peer.error is None
    assert connection.error is None


@pytest.mark.parametrize("closer", ["client", "server", "both"])
@pytest.mark.parametrize("kind", ["close", "endpoint"])
def test_close_after_any_datagram_ends_both_sides(
    certificates: Certificates, closer: str, kind: str
) -> None:
    """At every step of a handshake and after it: no end waits forever or keeps a connection."""
    config, server = client_config(certificates), server_config(certificates)
    for step in range(24):
        pair = Pair(
            client=native.Endpoint(events=True),
            server=native.Endpoint(events=True, server=server),
        )
        _close_after(pair, pair.connect(config), step, closer, kind)
        pair.run_until(pair.is_over, 240)


def _close_after(
    pair: Pair, connection: native.EventConnection, step: int, closer: str, kind: str
) -> None:
    seen = count()

    def end() -> None:
        ends = {"client": (pair.client, [connection]), "server": (pair.server, pair.accepted)}
        for which in ends if closer == "both" else [closer]:
            endpoint, own = ends[which]
            if kind == "endpoint":
                endpoint.close(9, "over", pair.now)
                continue
            for one in own:
                one.close(9, "over", pair.now)
                one.close(10, "again", pair.now)
                assert one.is_closed

    def network(datagram: bytes, _from_client: bool) -> list[bytes]:
        number = next(seen)
        if number == step:
            end()
        elif number < step:
            _act(connection, pair.accepted)
        return [datagram]

    pair.network = network
    for _ in range(step + 2):
        pair.exchange()
        _act(connection, pair.accepted)
    if next(seen) <= step:
        # Fewer datagrams than that: close an idle end.
        end()
    # A server that was closed before it knew the connection closes it now.
    pair.run_until(lambda: connection.is_closed or pair.accepted)
    end()


def _act(client: native.EventConnection, accepted: list[native.EventConnection]) -> None:
    for connection in [client, *accepted]:
        if connection.is_closed or connection.is_handshaking:
            continue
        stream = connection.open_stream_nowait()
        if stream is not None:
            connection.send_stream_data(stream, bytes(3000), True)
        connection.send_datagram(bytes(100), True)
        connection.update_keys()
