"""The protocol without I/O: input, output, aioquic's events."""

from __future__ import annotations

import gc
import random
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from ringloop._native import quic as native
from ringloop.quic import errors
from tests.quic.support import CLIENT, SERVER, Pair, client_config

if TYPE_CHECKING:
    from tests.support.tls import Certificates


def connected(
    certificates: Certificates, pair: Pair
) -> tuple[native.EventConnection, native.EventConnection]:
    client = pair.connect(client_config(certificates))
    pair.run_until(lambda: pair.accepted and not pair.accepted[-1].is_handshaking)
    server = pair.accepted[-1]
    client.take_events()
    server.take_events()
    return client, server


def test_handshake_event_has_the_negotiated_values(certificates: Certificates) -> None:
    pair = Pair.make(certificates)
    client = pair.connect(client_config(certificates))
    pair.exchange()
    (server,) = pair.accepted
    agreed = [
        native.ProtocolNegotiated(alpn_protocol="test"),
        native.HandshakeCompleted("test", early_data_accepted=False, session_resumed=False),
    ]
    assert client.take_events() == agreed
    assert server.take_events() == agreed
    assert server.handshake().server_name == "localhost"  # type: ignore[union-attr]
    assert client.peer_certificates()
    both = [side.export_keying_material("label", b"context", 32) for side in (client, server)]
    assert both[0] == both[1]


def test_bytes_of_a_stream_arrive_in_order_through_a_bad_network(
    certificates: Certificates,
) -> None:
    rng = random.Random(7)
    held: list[bytes] = []

    def network(datagram: bytes, _from_client: bool) -> list[bytes]:
        fate = rng.random()
        if fate < 0.05:
            return []
        if fate < 0.10:
            return [datagram, datagram]
        if fate < 0.15:
            held.append(datagram)
            return []
        if fate < 0.20:
            at = rng.randrange(len(datagram))
            return [datagram[:at] + bytes([datagram[at] ^ 0x55]) + datagram[at + 1 :]]
        arriving, held[:] = [datagram, *held], []
        return arriving

    pair = Pair.make(certificates)
    client, server = connected(certificates, pair)
    pair.network = network
    data = rng.randbytes(300_000)
    stream = client.next_stream_id()
    client.send_stream_data(stream, data, end_stream=True)
    received, ends = bytearray(), []

    def arrived() -> bool:
        for event in server.take_events():
            assert isinstance(event, native.StreamDataReceived)
            assert event.stream_id == stream
            received.extend(event.data)
            ends.append(event.end_stream)
        return any(ends)

    pair.run_until(arrived)
    assert received == data
    assert ends[-1]
    assert ends.count(True) == 1


def test_reset_and_stop_carry_their_codes(certificates: Certificates) -> None:
    pair = Pair.make(certificates)
    client, server = connected(certificates, pair)
    client.send_stream_data(0, b"a")
    pair.exchange()
    assert server.take_events() == [native.StreamDataReceived(b"a", end_stream=False, stream_id=0)]
    client.reset_stream(0, 17)
    server.reset_stream(0, 18)
    pair.exchange()
    assert server.take_events() == [native.StreamReset(17, 0)]
    assert client.take_events() == [native.StreamReset(18, 0)]
    client.send_stream_data(4, b"b")
    pair.exchange()
    server.take_events()
    server.stop_stream(4, 19)
    pair.exchange()
    assert client.take_events() == [native.StopSendingReceived(19, 4)]


def test_streams_beyond_the_peers_limit_wait_for_credit(certificates: Certificates) -> None:
    pair = Pair.make(certificates, server={"max_streams_uni": 2})
    client, server = connected(certificates, pair)
    for number in range(5):
        stream = client.next_stream_id(unidirectional=True)
        assert stream == 2 + 4 * number
        client.send_stream_data(stream, bytes([number]), end_stream=True)
    pair.exchange()
    seen: dict[int, bytes] = {}

    def all_arrived() -> bool:
        for event in server.take_events():
            if isinstance(event, native.StreamDataReceived):
                seen[event.stream_id] = event.data
        return len(seen) == 5

    pair.run_until(all_arrived)
    assert seen == {2 + 4 * number: bytes([number]) for number in range(5)}


def test_untaken_events_give_the_peer_no_credit(certificates: Certificates) -> None:
    pair = Pair.make(certificates, server={"max_stream_data": 10_000, "max_data": 10_000})
    client, server = connected(certificates, pair)
    client.send_stream_data(0, bytes(100_000), end_stream=True)
    pair.exchange()
    pair.now += 1
    pair.exchange()
    received = 0
    event = server.next_event()
    assert isinstance(event, native.StreamDataReceived)
    received += len(event.data)
    assert received <= 10_000

    def done() -> bool:
        nonlocal received
        for event in server.take_events():
            received += len(event.data)  # type: ignore[attr-defined]
        return received == 100_000

    pair.run_until(done)


def test_notification_is_repeated_if_events_were_not_taken(
    certificates: Certificates,
) -> None:
    """The caller that got the notification may have failed before it took the events."""
    pair = Pair.make(certificates)
    client, server = connected(certificates, pair)
    for _ in range(3):
        client.send_stream_data(0, b"x")
        for datagram, _address in pair.client.datagrams_to_send(pair.now):
            pair.server.receive_datagram(datagram, CLIENT, pair.now)
        assert pair.server.take() == ([], [server.key], [])
        assert pair.server.take() is None
    told = server.take_events()
    assert [event.data for event in told] == [b"xxx"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", [0, 5, 2**62 - 1])
def test_close_event_has_code_and_reason_at_both_ends(
    certificates: Certificates, code: int
) -> None:
    pair = Pair.make(certificates)
    client, server = connected(certificates, pair)
    client.close(code, "good bye")
    pair.exchange()
    told = native.ConnectionTerminated(code, frame_type=None, reason_phrase="good bye")
    assert client.take_events() == [told]
    assert server.take_events() == [told]
    assert isinstance(server.error, errors.ConnectionClosedByPeer)
    with pytest.raises(errors.ConnectionClosedByPeer, match="good bye"):
        server.send_stream_data(1, b"too late")
    pair.run_until(lambda: len(pair.gone) == 2)
    assert pair.client.connection_count == pair.server.connection_count == 0
    assert server.close_info == told


def test_silence_ends_the_connection(certificates: Certificates) -> None:
    pair = Pair.make(certificates, server={"idle_timeout": 5.0})
    client, server = connected(certificates, pair)
    pair.run_until(lambda: client.is_closed and server.is_closed)
    assert isinstance(client.error, errors.IdleTimeout)
    assert client.take_events() == [native.ConnectionTerminated(1, 0, "Idle timeout")]


def test_untrusted_certificate_ends_the_handshake_with_an_alert(
    certificates: Certificates,
) -> None:
    pair = Pair.make(certificates)
    authority = certificates.issue("somebody-else")[0]
    client = pair.connect(client_config(certificates, ca_file=authority))
    pair.exchange()
    error = client.error
    assert isinstance(error, errors.TlsError)
    assert error.alert in {42, 46, 48}, error


def test_ping_is_acknowledged_with_its_number(certificates: Certificates) -> None:
    pair = Pair.make(certificates)
    client, _ = connected(certificates, pair)
    client.ping(77)
    taken: list[native.QuicEvent] = []

    def acknowledged() -> bool:
        taken.extend(client.take_events())
        return native.PingAcknowledged(77) in taken

    pair.run_until(acknowledged)


def test_retry_validates_the_clients_address(certificates: Certificates) -> None:
    pair = Pair.make(certificates, retry="always")
    pair.connect(client_config(certificates))
    first = pair.client.datagrams_to_send(pair.now)
    for datagram, _ in first:
        pair.server.receive_datagram(datagram, CLIENT, pair.now)
    assert pair.server.connection_count == 0
    for datagram, _ in pair.server.datagrams_to_send(pair.now):
        pair.client.receive_datagram(datagram, ("192.0.2.2", 4433), pair.now)
    pair.run_until(lambda: pair.accepted)


def test_garbage_is_dropped(certificates: Certificates) -> None:
    rng = random.Random(3)
    pair = Pair.make(certificates)
    client, server = connected(certificates, pair)
    for length in [0, 1, 5, 20, 21, 1200, 1500, 65000]:
        pair.server.receive_datagram(rng.randbytes(length), CLIENT, pair.now)
        pair.client.receive_datagram(rng.randbytes(length), ("192.0.2.2", 4433), pair.now)
    pair.now += 0.1
    pair.exchange()
    client.send_stream_data(0, b"still here")
    pair.exchange()
    assert server.take_events() == [native.StreamDataReceived(b"still here", False, 0)]


def test_events_are_plain_values() -> None:
    event = native.StreamDataReceived(data=b"x", end_stream=True, stream_id=8)
    assert isinstance(event, native.QuicEvent)
    assert repr(event) == "StreamDataReceived(data=b'x', end_stream=True, stream_id=8)"
    assert event == native.StreamDataReceived(b"x", True, 8)
    assert event != native.StreamDataReceived(b"x", True, 4)
    assert event != native.StreamReset(error_code=1, stream_id=8)
    match event:
        case native.StreamDataReceived(data, end, stream):
            assert (data, end, stream) == (b"x", True, 8)
        case _:
            pytest.fail("it did not match")


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"verify": False, "alp": ["x"]}, TypeError, "unexpected keyword argument 'alp'"),
        ({"verify": False, "idle_timeout": -1}, ValueError, "idle_timeout is -1: give 0.001 to"),
        ({"verify": False, "congestion": "vegas"}, ValueError, "no congestion control"),
        ({"verify": False, "initial_mtu": 100}, ValueError, "initial_mtu"),
        ({"verify": False, "version": 3}, ValueError, "not a supported version of QUIC"),
        ({"verify": False, "alpn": "h3"}, TypeError, "list of protocols"),
        ({"ca_data": b"nothing"}, ValueError, "certificate|DER|BadEncoding"),
        ({"ca_file": "/nonexistent"}, FileNotFoundError, "No such file"),
    ],
)
def test_wrong_configuration_is_refused_with_its_cause(
    keywords: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        native.ClientConfig(**keywords)  # type: ignore[arg-type]


def test_flush_refused_by_the_loop_is_requested_again(certificates: Certificates) -> None:
    class Loop:
        """As much of a loop as an endpoint needs; the first call is refused."""

        def __init__(self) -> None:
            self.asked = 0

        def call_soon(self, _callback: object) -> None:
            self.asked += 1
            if self.asked == 1:
                raise RuntimeError("not now")

        call_soon_threadsafe = call_later = call_soon

    loop: Any = Loop()
    endpoint = native.Endpoint(events=True)
    endpoint.attach(loop, lambda *_: None, lambda: None)
    with pytest.raises(RuntimeError, match="not now"):
        endpoint.connect(client_config(certificates), SERVER, "localhost")
    endpoint.connect(client_config(certificates), SERVER, "localhost")
    assert loop.asked == 2
    endpoint.detach()


class Asked:
    """As much of a loop as an endpoint needs; counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    @classmethod
    def by(cls, endpoint: native.Endpoint) -> Asked:
        loop: Any = cls()
        endpoint.attach(loop, lambda *_: None, lambda: None)
        return loop  # type: ignore[no-any-return]

    def call_soon(self, _callback: object) -> None:
        self.count += 1

    call_soon_threadsafe = call_later = call_soon


def test_datagrams_before_a_too_long_one_are_sent(certificates: Certificates) -> None:
    pair = Pair.make(certificates)
    client, server = connected(certificates, pair)
    pair.exchange()
    loop = Asked.by(pair.client)
    with pytest.raises(errors.DatagramError):
        client.send_datagrams([b"1", b"2", bytes(1 << 16), b"3"])
    assert loop.count == 1
    pair.exchange()
    assert server.receive_datagrams() == [b"1", b"2"]
    pair.client.detach()


def test_credit_for_a_reset_read_late_is_sent(certificates: Certificates) -> None:
    pair = Pair.make(certificates, {"max_streams_uni": 1})
    client, server = connected(certificates, pair)
    client.send_stream_data(2, b"x")
    pair.exchange()
    stream = native.Stream(server, 2)
    client.reset_stream(2, 7)
    client.send_stream_data(6, b"waits for credit")
    pair.exchange()
    assert client.waits_for_credit(unidirectional=True)
    loop = Asked.by(pair.server)
    with pytest.raises(errors.StreamResetError):
        stream._take(10)
    assert loop.count == 1
    pair.exchange()
    assert not client.waits_for_credit(unidirectional=True)
    pair.server.detach()


def test_key_log_that_references_its_endpoint_is_collected() -> None:
    class Log:
        endpoint: native.Endpoint

        def line(self, text: str) -> None:
            raise AssertionError(text)

    log = Log()
    log.endpoint = native.Endpoint()
    log.endpoint.connect(native.ClientConfig(keylog=log.line), SERVER, "localhost", 1.0)
    watched = weakref.ref(log)
    del log
    gc.collect()
    assert watched() is None


def test_move_after_a_lossy_handshake_is_announced_soon(certificates: Certificates) -> None:
    """The engine's probe timeout is long then, and the first packet from the new address is lost."""
    pair = Pair.make(certificates)
    client = pair.connect(client_config(certificates))
    passed: list[bytes] = []

    def first_alone(datagram: bytes, from_client: bool) -> list[bytes]:
        if from_client:
            passed.append(datagram)
        return [] if from_client and len(passed) > 2 else [datagram]

    # The last flight is lost repeatedly, so that the probe timeout grows.
    pair.network = first_alone
    before = pair.now
    pair.run_until(lambda: pair.now > before + 3)
    pair.network = lambda datagram, from_client: [datagram]
    pair.run_until(lambda: client.is_confirmed)
    lost: list[bytes] = []

    def lossy(datagram: bytes, from_client: bool) -> list[bytes]:
        # The server sends to the old address until it hears from the new one.
        if from_client and len(lost) >= 3:
            pair.network = lambda datagram, from_client: [datagram]
            return [datagram]
        lost.append(datagram)
        return []

    pair.network = lossy
    client.local_address_changed()
    moved, received = pair.now, client.stats().bytes_received
    pair.run_until(lambda: client.stats().bytes_received > received)
    assert pair.now < moved + 1.5
