"""`ringloop.quic.connection`: one connection without I/O, in aioquic's style."""

from __future__ import annotations

import copy
import io
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic import configuration as configurations
from ringloop.quic import events
from ringloop.quic.buffer import Buffer
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.connection import QuicConnection, QuicConnectionState
from ringloop.quic.errors import DatagramError, StreamClosedError
from ringloop.quic.packet import pull_quic_header
from ringloop.quic.tls import CipherSuite
from tests.quic.support import CLIENT, SERVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.tls import Certificates


def client_side(certificates: Certificates, **fields: Any) -> QuicConfiguration:
    configuration = QuicConfiguration(alpn_protocols=["test"], server_name="localhost", **fields)
    configuration.load_verify_locations(cafile=str(certificates.authority))
    return configuration


def server_side(certificates: Certificates, **fields: Any) -> QuicConfiguration:
    configuration = QuicConfiguration(alpn_protocols=["test"], is_client=False, **fields)
    configuration.load_cert_chain(*certificates.issue())
    return configuration


@dataclass
class Ends:
    """A client and a server, the events of both, and a clock that only the test advances."""

    client: QuicConnection
    configuration: QuicConfiguration
    server: Any = None
    now: float = 100.0
    up: list[events.QuicEvent] = field(default_factory=list)
    down: list[events.QuicEvent] = field(default_factory=list)
    # Ids by which a routing application would know the server's connection.
    routed: set[bytes] = field(default_factory=set)
    server_keywords: dict[str, Any] = field(default_factory=dict)

    def exchange(self, *, reads_at_server: bool = True) -> None:
        while True:
            up = self.client.datagrams_to_send(self.now)
            for data, address in up:
                assert address == SERVER
                self._to_server(data)
            down = self.server.datagrams_to_send(self.now) if self.server else []
            for data, address in down:
                assert address == CLIENT
                self.client.receive_datagram(data, SERVER, self.now)
            self._take(reads_at_server)
            if not up and not down:
                return

    def _to_server(self, data: bytes) -> None:
        header = pull_quic_header(Buffer(data=data), host_cid_length=8)
        if self.server is None:
            self.server = QuicConnection(
                configuration=self.configuration,
                original_destination_connection_id=header.destination_cid,
                **self.server_keywords,
            )
            self.routed = {header.destination_cid, self.server.host_cid}
        assert header.destination_cid in self.routed, "an id that the server was not told of"
        self.server.receive_datagram(data, CLIENT, self.now)

    def _take(self, reads_at_server: bool) -> None:
        while (event := self.client.next_event()) is not None:
            self.down.append(event)
        if self.server is None or not reads_at_server:
            return
        while (event := self.server.next_event()) is not None:
            self.up.append(event)
            if isinstance(event, events.ConnectionIdIssued):
                self.routed.add(event.connection_id)
            if isinstance(event, events.ConnectionIdRetired):
                self.routed.remove(event.connection_id)

    def run_until(self, condition: Callable[[], object]) -> None:
        for _deadline in range(1000):
            self.exchange()
            if condition():
                return
            timers = [end.get_timer() for end in (self.client, self.server)]
            self.now = max(self.now, min(timer for timer in timers if timer is not None))
            self.client.handle_timer(self.now)
            self.server.handle_timer(self.now)
        pytest.fail("it did not happen")

    def all(self, kind: type, *, at_server: bool) -> list[Any]:
        found = self.up if at_server else self.down
        return [event for event in found if isinstance(event, kind)]


def begin(certificates: Certificates, **fields: Any) -> Ends:
    client = QuicConnection(configuration=client_side(certificates, **fields))
    ends = Ends(client, server_side(certificates, **fields))
    client.connect(SERVER, ends.now)
    return ends


def connected(certificates: Certificates, **fields: Any) -> Ends:
    ends = begin(certificates, **fields)
    ends.exchange()
    assert ends.client._state is QuicConnectionState.CONNECTED
    return ends


def test_events_of_a_handshake_come_in_aioquics_order(certificates: Certificates) -> None:
    ends = begin(certificates)
    first = [data for data, _address in ends.client.datagrams_to_send(ends.now)]
    header = pull_quic_header(Buffer(data=first[0]), host_cid_length=8)
    assert header.destination_cid == ends.client.original_destination_connection_id
    assert header.source_cid == ends.client.host_cid
    for data in first:
        ends._to_server(data)
    ends.exchange()
    for found in (ends.up, ends.down):
        kept = [event for event in found if not isinstance(event, events.ConnectionIdIssued)]
        kept = [event for event in kept if not isinstance(event, events.ConnectionIdRetired)]
        assert kept == [
            events.ProtocolNegotiated(alpn_protocol="test"),
            events.HandshakeCompleted(
                alpn_protocol="test", early_data_accepted=False, session_resumed=False
            ),
        ]
    assert ends.all(events.ConnectionIdIssued, at_server=True)
    assert ends.client.tls.alpn_negotiated == "test"
    assert ends.client.get_cipher() in set(CipherSuite)
    assert ends.client.get_peercert() is not None


def test_data_written_before_the_handshake_arrives_after_it(certificates: Certificates) -> None:
    client = QuicConnection(configuration=client_side(certificates))
    assert client.get_next_available_stream_id() == 0
    client.send_stream_data(0, b"before connect", end_stream=True)
    assert client.get_next_available_stream_id() == 4
    ends = Ends(client, server_side(certificates))
    client.connect(SERVER, ends.now)
    assert client.get_next_available_stream_id() == 4
    client.send_stream_data(2, b"before the handshake")
    client.send_stream_data(2, b" ends")
    ends.exchange()
    data = {event.stream_id: event for event in ends.all(events.StreamDataReceived, at_server=True)}
    assert data[0].data == b"before connect"
    assert data[0].end_stream
    assert data[2].data == b"before the handshake ends"


def test_streams_past_the_limit_keep_their_numbers(certificates: Certificates) -> None:
    ends = connected(certificates, max_streams_bidi=3)
    for number in range(10):
        stream_id = ends.client.get_next_available_stream_id()
        assert stream_id == 4 * number
        ends.client.send_stream_data(stream_id, b"%d" % number, end_stream=True)
    ends.exchange()
    assert {event.stream_id for event in ends.all(events.StreamDataReceived, at_server=True)} == {
        0,
        4,
        8,
    }
    # A stream that ended on both sides makes room for the next.
    for stream_id in (0, 4, 8, 12, 16, 20, 24, 28, 32, 36):
        ends.run_until(
            lambda wanted=stream_id: any(  # type: ignore[misc]
                event.stream_id == wanted
                for event in ends.all(events.StreamDataReceived, at_server=True)
            )
        )
        ends.server.send_stream_data(stream_id, b"", end_stream=True)
    data = {
        event.stream_id: event.data for event in ends.all(events.StreamDataReceived, at_server=True)
    }
    assert data == {4 * number: b"%d" % number for number in range(10)}


def test_untaken_events_block_the_peer(certificates: Certificates) -> None:
    ends = connected(certificates, max_data=1 << 16, max_stream_data=1 << 16)
    ends.client.send_stream_data(0, bytes(1 << 20))
    ends.exchange(reads_at_server=False)
    sent = ends.client.stats().bytes_sent
    assert sent < 3 << 16
    ends.run_until(
        lambda: (
            sum(len(event.data) for event in ends.all(events.StreamDataReceived, at_server=True))
            == 1 << 20
        )
    )


def test_paused_stream_blocks_only_its_own_window(certificates: Certificates) -> None:
    ends = connected(certificates, max_stream_data=1 << 16)
    ends.client.send_stream_data(0, b"first")
    ends.exchange()
    ends.server.pause_stream(0)
    ends.client.send_stream_data(0, bytes(1 << 18), end_stream=True)
    ends.client.send_stream_data(4, b"other", end_stream=True)
    ends.exchange()
    received = ends.all(events.StreamDataReceived, at_server=True)
    assert [event.data for event in received] == [b"first", b"other"]
    ends.server.resume_stream(0)
    ends.run_until(lambda: ends.all(events.StreamDataReceived, at_server=True)[-1].end_stream)
    received = ends.all(events.StreamDataReceived, at_server=True)
    assert sum(len(event.data) for event in received if event.stream_id == 0) == 5 + (1 << 18)


def test_full_send_queue_is_a_buffer_error(certificates: Certificates) -> None:
    ends = connected(certificates, send_window=1 << 16, tx_max_queued_bytes=1 << 17)
    with pytest.raises(BufferError, match="tx_max_queued_bytes"):
        for _write in range(100):
            ends.client.send_stream_data(0, bytes(1 << 14))
    assert (1 << 17) <= ends.client.get_send_buffer_size() <= (1 << 17) + (1 << 14)
    assert ends.client.want_writable(0)
    ends.run_until(ends.client.take_writable)
    assert ends.client.get_send_buffer_size(0) == 0
    assert not ends.client.want_writable(0)


def test_resets_and_stops_carry_their_codes_and_may_be_repeated(
    certificates: Certificates,
) -> None:
    ends = connected(certificates)
    ends.client.send_stream_data(0, b"a")
    ends.client.send_stream_data(4, b"b")
    ends.exchange()
    ends.client.reset_stream(0, 11)
    ends.client.reset_stream(0, 12)
    ends.server.stop_stream(4, 13)
    ends.server.stop_stream(4, 14)
    ends.exchange()
    # A stop is answered by a reset with its code (RFC 9000 §3.5).
    resets = ends.all(events.StreamReset, at_server=True)
    assert resets == [events.StreamReset(error_code=11, stream_id=0)]
    assert ends.all(events.StopSendingReceived, at_server=False) == [
        events.StopSendingReceived(error_code=13, stream_id=4)
    ]
    ends.client.send_stream_data(4, b"nobody wants it")
    ends.client.reset_stream(4, 15)
    with pytest.raises(StreamClosedError):
        ends.client.send_stream_data(0, b"after a reset")


def test_unknown_streams_are_refused(certificates: Certificates) -> None:
    ends = connected(certificates)
    for stream_id in (0, 2, 4):
        with pytest.raises((StreamClosedError, ValueError)):
            ends.server.send_stream_data(stream_id, b"never opened by the client")
        ends.server.reset_stream(stream_id, 1)
    with pytest.raises(ValueError):
        ends.client.send_stream_data(3, b"the server's alone")
    with pytest.raises(ValueError):
        ends.client.stop_stream(2, 1)
    ends.client.reset_stream(8, 5)
    ends.client.send_stream_data(0, b"still alive", end_stream=True)
    ends.exchange()
    assert ends.all(events.StreamDataReceived, at_server=True)[-1].data == b"still alive"


def test_datagrams_wait_for_the_handshake_and_refusals_are_reported(
    certificates: Certificates,
) -> None:
    ends = begin(certificates, max_datagram_frame_size=65535, datagram_send_bytes=4096)
    assert ends.client.send_datagram_frame(b"early") == 5
    ends.exchange()
    ends.exchange()
    assert ends.all(events.DatagramFrameReceived, at_server=True) == [
        events.DatagramFrameReceived(data=b"early")
    ]
    taken = [ends.client.send_datagram_frame(bytes(1000)) for _datagram in range(10)]
    assert 1000 in taken
    assert taken[-1] == 0, "what is not taken is told"
    with pytest.raises(DatagramError):
        ends.client.send_datagram_frame(bytes(5000))


def test_datagrams_to_a_peer_without_support_are_refused(certificates: Certificates) -> None:
    ends = connected(certificates)
    assert ends.client.max_datagram_payload is None
    assert ends.client._remote_max_datagram_frame_size is None
    with pytest.raises(DatagramError):
        ends.client.send_datagram_frame(b"data")


def test_pings_key_updates_and_other_ids(certificates: Certificates) -> None:
    ends = begin(certificates)
    ends.client.request_key_update()
    ends.exchange()
    ends.client.send_ping(77)
    ends.run_until(lambda: ends.all(events.PingAcknowledged, at_server=False))
    assert ends.all(events.PingAcknowledged, at_server=False) == [events.PingAcknowledged(uid=77)]
    for number in range(3):
        ends.client.change_connection_id()
        ends.client.send_stream_data(4 * number, b"from another id", end_stream=True)
        ends.run_until(
            lambda count=number + 1: (  # type: ignore[misc]
                len(ends.all(events.StreamDataReceived, at_server=True)) == count
            )
        )
    assert ends.all(events.ConnectionIdRetired, at_server=True)


def test_early_change_of_the_connection_id_is_deferred(
    certificates: Certificates,
) -> None:
    """A client does not change ids until the handshake is confirmed (RFC 9000 §9)."""
    ends = begin(certificates)
    ends.client.change_connection_id()
    ends.run_until(lambda: ends.all(events.ConnectionIdRetired, at_server=True))
    assert not ends.all(events.PingAcknowledged, at_server=False)


def test_close_is_reported_at_both_ends_with_code_and_reason(certificates: Certificates) -> None:
    ends = connected(certificates)
    ends.client.close(error_code=7, reason_phrase="enough")
    ends.client.close(error_code=8)
    ends.exchange()
    end = events.ConnectionTerminated(error_code=7, frame_type=None, reason_phrase="enough")
    for at_server in (True, False):
        assert ends.all(events.ConnectionTerminated, at_server=at_server) == [end]
    assert ends.client._close_event == end
    assert ends.client._state is QuicConnectionState.TERMINATED
    # Further calls do not raise.
    ends.client.send_stream_data(0, b"late")
    ends.client.reset_stream(0, 1)
    ends.client.send_ping(1)
    ends.client.request_key_update()
    ends.run_until(lambda: ends.client.get_timer() is None or ends.server.get_timer() is None)


def test_silence_ends_a_connection_at_its_timer(certificates: Certificates) -> None:
    ends = connected(certificates, idle_timeout=5.0)
    while not ends.all(events.ConnectionTerminated, at_server=False):
        timer = ends.client.get_timer()
        assert timer is not None
        ends.now = max(ends.now, timer)
        ends.client.handle_timer(ends.now)
        ends._take(reads_at_server=True)
        ends.client.datagrams_to_send(ends.now)
    (end,) = ends.all(events.ConnectionTerminated, at_server=False)
    assert end.reason_phrase == "Idle timeout"
    assert 105.0 <= ends.now <= 120.0


def resume(certificates: Certificates, ends: Ends, tickets: list[Any], tokens: list[bytes]) -> Ends:
    configuration = copy.copy(ends.client.configuration)
    configuration.session_ticket, configuration.token = tickets[-1], tokens[-1]
    again = Ends(
        QuicConnection(configuration=configuration),
        ends.configuration,
        server_keywords=ends.server_keywords,
    )
    again.client.send_stream_data(0, b"early", end_stream=True)
    again.client.connect(SERVER, again.now)
    return again


def test_equal_settings_of_concurrent_threads_are_shared() -> None:
    inside = threading.Barrier(2, timeout=30)

    def make() -> object:
        inside.wait()
        return object()

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(configurations._shared, [(make, ())] * 2)
    configurations._SHARED.pop((make, ()))
    assert one is other


@pytest.mark.parametrize("accepts", [True, False])
def test_early_data_arrives_once_accepted_or_not(certificates: Certificates, accepts: bool) -> None:
    tickets: list[Any] = []
    tokens: list[bytes] = []
    client = QuicConnection(
        configuration=client_side(certificates),
        session_ticket_handler=tickets.append,
        token_handler=tokens.append,
    )
    keywords = {"session_ticket_handler": lambda ticket: None}
    ends = Ends(client, server_side(certificates), server_keywords=keywords)
    client.connect(SERVER, ends.now)
    ends.exchange()
    assert tickets
    assert tokens
    assert tickets[-1].is_valid
    assert tickets[-1].server_name == "localhost"
    assert client.tls.session_ticket is tickets[-1]
    if not accepts:
        ends.server_keywords = {}
    used: Any = tickets[-1]
    again = resume(certificates, ends, tickets, tokens)
    again.exchange()
    (done,) = again.all(events.HandshakeCompleted, at_server=False)
    assert done.early_data_accepted is accepts
    assert not used.is_valid, "a ticket is good for one connection"
    again.run_until(lambda: again.all(events.StreamDataReceived, at_server=True))
    received = again.all(events.StreamDataReceived, at_server=True)
    assert b"".join(event.data for event in received) == b"early"
    assert again.client.get_next_available_stream_id() == 4


def test_data_written_after_rejected_early_data_follows_it_once(
    certificates: Certificates,
) -> None:
    tickets: list[Any] = []
    client = QuicConnection(
        configuration=client_side(certificates), session_ticket_handler=tickets.append
    )
    keywords = {"session_ticket_handler": lambda ticket: None}
    ends = Ends(client, server_side(certificates), server_keywords=keywords)
    client.connect(SERVER, ends.now)
    ends.exchange()
    ends.server_keywords = {}
    again = resume(certificates, ends, tickets, [b""])
    client = again.client
    taken = client.next_event

    def writes_at_once() -> events.QuicEvent | None:
        event = taken()
        if isinstance(event, events.ProtocolNegotiated):
            stream_id = client.get_next_available_stream_id()
            client.send_stream_data(stream_id, b"new", end_stream=True)
        return event

    client.next_event = writes_at_once  # type: ignore[method-assign]
    again.run_until(lambda: len(again.all(events.StreamDataReceived, at_server=True)) > 1)
    again.exchange()
    got: dict[int, bytes] = {}
    for event in again.all(events.StreamDataReceived, at_server=True):
        got[event.stream_id] = got.get(event.stream_id, b"") + event.data
    assert got == {0: b"early", 4: b"new"}


def test_servers_are_verified_unless_disabled(certificates: Certificates) -> None:
    for mode, completes in ((None, False), (ssl.CERT_REQUIRED, False), (ssl.CERT_NONE, True)):
        configuration = QuicConfiguration(
            alpn_protocols=["test"], server_name="localhost", verify_mode=mode
        )
        other = certificates.issue("another authority's")[0]
        configuration.cafile = str(other)
        ends = Ends(QuicConnection(configuration=configuration), server_side(certificates))
        ends.client.connect(SERVER, ends.now)
        ends.exchange()
        assert bool(ends.all(events.HandshakeCompleted, at_server=False)) is completes
        if not completes:
            (end,) = ends.all(events.ConnectionTerminated, at_server=False)
            assert 0x100 <= end.error_code < 0x200
            assert end.frame_type is not None


def completes(certificates: Certificates, **trust: Any) -> bool:
    configuration = QuicConfiguration(alpn_protocols=["test"], server_name="localhost", **trust)
    ends = Ends(QuicConnection(configuration=configuration), server_side(certificates))
    ends.client.connect(SERVER, ends.now)
    ends.exchange()
    return bool(ends.all(events.HandshakeCompleted, at_server=False))


@pytest.mark.parametrize("replaces", [False, True])
def test_changed_authority_file_applies_at_once(
    certificates: Certificates, tmp_path: Path, replaces: bool
) -> None:
    other = certificates.issue("another authority's")[0].read_bytes()
    ours = certificates.authority.read_bytes()
    path = tmp_path / "authorities.pem"
    for trusted in (other, ours, other, ours):
        if replaces:
            (tmp_path / "new").write_bytes(trusted)
            (tmp_path / "new").replace(path)
        else:
            path.write_bytes(trusted)
        assert completes(certificates, cafile=str(path)) is (trusted is ours)
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        completes(certificates, cafile=str(path))


def test_changed_authority_directory_applies_at_once(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = certificates.issue("another authority's")[0].read_bytes()
    ours = certificates.authority.read_bytes()
    here = {"capath": str(tmp_path)}
    (tmp_path / "other.pem").write_bytes(other)
    assert not completes(certificates, **here)
    (tmp_path / "ours.pem").write_bytes(ours)
    assert completes(certificates, **here)
    # Writing to an existing file does not change the directory itself.
    (tmp_path / "ours.pem").write_bytes(other)
    assert not completes(certificates, **here)
    (tmp_path / "ours.pem").unlink()
    (tmp_path / "link.pem").symlink_to(certificates.authority)
    assert completes(certificates, **here)
    (tmp_path / "link.pem").unlink()
    assert not completes(certificates, **here)


def test_equal_settings_and_files_are_shared(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "ours.pem").write_bytes(certificates.authority.read_bytes())
    for trust in ({"cafile": str(certificates.authority)}, {"capath": str(tmp_path)}):
        first, second = (QuicConfiguration(**trust) for _ in range(2))  # type: ignore[arg-type]
        assert first.client_config() is second.client_config()


def test_secrets_go_to_a_file_object(certificates: Certificates) -> None:
    log = io.StringIO()
    ends = begin(certificates)
    client = QuicConnection(configuration=client_side(certificates, secrets_log_file=log))
    ends = Ends(client, ends.configuration)
    client.connect(SERVER, ends.now)
    ends.exchange()
    labels = {line.split()[0] for line in log.getvalue().splitlines()}
    assert {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"} <= labels


def test_impossible_configurations_are_refused(certificates: Certificates) -> None:
    client, server = client_side(certificates), server_side(certificates)
    with pytest.raises(ValueError, match="original_destination_connection_id"):
        QuicConnection(configuration=server)
    with pytest.raises(ValueError, match="for a client"):
        QuicConnection(configuration=client, original_destination_connection_id=bytes(8))
    with pytest.raises(ValueError, match="token_handler"):
        QuicConnection(
            configuration=server,
            original_destination_connection_id=bytes(8),
            token_handler=lambda token: None,
        )
    with pytest.raises(ValueError, match="retry_source_connection_id"):
        QuicConnection(
            configuration=server,
            original_destination_connection_id=bytes(8),
            retry_source_connection_id=bytes(8),
        )
    with pytest.raises(ValueError, match="certificate"):
        QuicConnection(
            configuration=QuicConfiguration(is_client=False),
            original_destination_connection_id=bytes(8),
        )
    with pytest.raises(ValueError, match="No private key"):
        server.load_cert_chain(certificates.authority, certificates.authority)
    keyless = QuicConfiguration(is_client=False)
    keyless.load_cert_chain(certificates.authority)
    with pytest.raises(ValueError, match="key is missing"):
        QuicConnection(configuration=keyless, original_destination_connection_id=bytes(8))
    pinned = client_side(certificates, assert_fingerprint="ab:cd")
    with pytest.raises(ValueError, match="assert_fingerprint"):
        QuicConnection(configuration=pinned).connect(SERVER, 1.0)
    connection = QuicConnection(configuration=client)
    connection.connect(SERVER, 1.0)
    with pytest.raises(RuntimeError, match="a single time"):
        connection.connect(SERVER, 1.0)
