"""`ringloop.quic.h3`: HTTP/3 without I/O in aioquic's style, between two connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic.connection import QuicConnection
from ringloop.quic.events import StopSendingReceived, StreamReset
from ringloop.quic.h3.connection import (
    H3_ALPN,
    ErrorCode,
    FrameUnexpected,
    H3Connection,
    ProtocolError,
    Setting,
)
from ringloop.quic.h3.events import (
    DatagramReceived,
    DataReceived,
    H3Event,
    HeadersReceived,
    WebTransportStreamDataReceived,
)
from ringloop.quic.h3.exceptions import H3Error, InvalidStreamTypeError, NoAvailablePushIDError
from tests.quic.h3_pair import CONNECT, GET, OK, POST, Pair, body, pair
from tests.quic.support import SERVER
from tests.quic.test_shape_connection import Ends, client_side, connected, server_side
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from tests.support.tls import Certificates

# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3_000_000])
def test_request_and_response_with_bodies(both: Pair, size: int) -> None:
    assert both.client is not None
    assert both.server is not None
    stream_id = both.request(POST, end_stream=False)
    data = pattern(size)
    both.client.send_data(stream_id, data, end_stream=True)
    assert body(both.take(at_server=True)) == data
    headers = [*OK, (b"content-length", b"%d" % size)]
    both.server.send_headers(stream_id, headers)
    both.server.send_data(stream_id, memoryview(data), end_stream=False)
    both.server.send_data(stream_id, b"", end_stream=True)
    first, *rest = both.take(at_server=False)
    assert first == HeadersReceived(headers, stream_id, stream_ended=False)
    assert body(rest) == data


def test_fields_keep_their_order_and_duplicates(both: Pair) -> None:
    both.request([*GET, (b"x", b"1"), (b"cookie", b"a"), (b"x", b"2"), (b"cookie", b"b")])


def test_repeated_fields_use_the_dynamic_table(both: Pair) -> None:
    headers = [*GET, (b"user-agent", b"x" * 1000)]
    sizes = []
    for _request in range(4):
        before = both.ends.client.stats().bytes_sent
        both.request(headers)
        sizes.append(both.ends.client.stats().bytes_sent - before)
    assert sizes[-1] < sizes[0] - 500


def test_message_without_a_body_ends_with_its_headers(both: Pair) -> None:
    assert both.server is not None
    stream_id = both.request()
    both.server.send_headers(stream_id, [(b":status", b"204")], end_stream=True)
    assert both.take(at_server=False) == [HeadersReceived([(b":status", b"204")], stream_id, True)]


def test_end_behind_the_headers_is_empty_data(both: Pair) -> None:
    assert both.client is not None
    stream_id = both.request(end_stream=False)
    both.client.send_data(stream_id, b"", end_stream=True)
    assert both.take(at_server=True) == [DataReceived(b"", stream_id, stream_ended=True)]


def test_trailers_both_ways(both: Pair) -> None:
    assert both.client is not None
    assert both.server is not None
    stream_id = both.request(POST, end_stream=False)
    trailers = [(b"sum", b"1"), (b"sum", b"2")]
    both.client.send_data(stream_id, b"up", end_stream=False)
    both.client.send_headers(stream_id, trailers, end_stream=True)
    assert both.take(at_server=True) == [
        DataReceived(b"up", stream_id, stream_ended=False),
        HeadersReceived(trailers, stream_id, stream_ended=True),
    ]
    both.server.send_headers(stream_id, OK)
    both.server.send_data(stream_id, b"down", end_stream=False)
    both.server.send_headers(stream_id, trailers, end_stream=True)
    assert both.take(at_server=False) == [
        HeadersReceived(OK, stream_id, stream_ended=False),
        DataReceived(b"down", stream_id, stream_ended=False),
        HeadersReceived(trailers, stream_id, stream_ended=True),
    ]


def test_interim_responses_come_before_the_final_one(both: Pair) -> None:
    assert both.server is not None
    stream_id = both.request()
    sent = [[(b":status", b"100")], [(b":status", b"103"), (b"link", b"</a>")], OK]
    for headers in sent:
        both.server.send_headers(stream_id, headers)
    both.server.send_data(stream_id, b"x", end_stream=True)
    assert both.take(at_server=False) == [
        *[HeadersReceived(headers, stream_id, stream_ended=False) for headers in sent],
        DataReceived(b"x", stream_id, stream_ended=True),
    ]


def test_response_to_head_declares_a_length_without_a_body(both: Pair) -> None:
    assert both.server is not None
    stream_id = both.request([(b":method", b"HEAD"), *GET[1:]])
    headers = [*OK, (b"content-length", b"100")]
    both.server.send_headers(stream_id, headers, end_stream=True)
    assert both.take(at_server=False) == [HeadersReceived(headers, stream_id, stream_ended=True)]


def test_requests_written_before_the_handshake_arrive(certificates: Certificates) -> None:
    client = QuicConnection(configuration=client_side(certificates))
    http = H3Connection(client)
    http.send_headers(client.get_next_available_stream_id(), GET, end_stream=True)
    http.send_headers(client.get_next_available_stream_id(), GET, end_stream=True)
    ends = Ends(client, server_side(certificates))
    client.connect(SERVER, ends.now)
    ends.exchange()
    both = Pair(ends, http, H3Connection(ends.server))
    assert both.take(at_server=True) == [
        HeadersReceived(GET, 0, True),
        HeadersReceived(GET, 4, True),
    ]


def test_settings_of_both_ends(certificates: Certificates) -> None:
    ends = connected(certificates)
    http = H3Connection(ends.client, enable_webtransport=True)
    assert http.received_settings is None
    sent = http.sent_settings
    assert sent[Setting.ENABLE_WEBTRANSPORT] == sent[Setting.H3_DATAGRAM] == 1
    assert sent[Setting.ENABLE_CONNECT_PROTOCOL] == 1
    both = Pair(ends, http, H3Connection(ends.server))
    both.exchange()
    assert both.server is not None
    assert both.server.received_settings == sent
    assert http.received_settings == both.server.sent_settings
    assert Setting.H3_DATAGRAM not in both.server.sent_settings
    assert H3_ALPN == ["h3"]


def test_settings_announce_datagrams_where_quic_takes_them(certificates: Certificates) -> None:
    both = pair(certificates, max_datagram_frame_size=65536)
    assert both.client is not None
    assert both.client.sent_settings[Setting.H3_DATAGRAM] == 1


def test_datagrams_both_ways(certificates: Certificates) -> None:
    both = pair(certificates, max_datagram_frame_size=65536)
    assert both.client is not None
    assert both.server is not None
    both.request()
    stream_id = both.request(end_stream=False)
    both.client.send_datagram(stream_id, b"up")
    assert both.take(at_server=True) == [DatagramReceived(b"up", stream_id)]
    both.server.send_datagram(stream_id, memoryview(b"down"))
    assert both.take(at_server=False) == [DatagramReceived(b"down", stream_id)]
    for wrong in (1, 2, 3):
        with pytest.raises(InvalidStreamTypeError):
            both.client.send_datagram(wrong, b"")


# --- WebTransport ---------------------------------------------------------------------------------


@pytest.mark.parametrize("by_server", [False, True])
@pytest.mark.parametrize("is_unidirectional", [False, True])
def test_webtransport_streams(
    certificates: Certificates, by_server: bool, is_unidirectional: bool
) -> None:
    both = pair(certificates, webtransport=True, max_datagram_frame_size=65536)
    assert both.client is not None
    assert both.server is not None
    session = both.request(CONNECT, end_stream=False)
    both.server.send_headers(session, OK)
    assert both.take(at_server=False) == [HeadersReceived(OK, session, stream_ended=False)]

    def came(data: bytes, *, ended: bool) -> list[H3Event]:
        return [WebTransportStreamDataReceived(data, stream_id, ended, session)]

    opener = both.server if by_server else both.client
    near, far = both.ends.client, both.ends.server
    if by_server:
        near, far = far, near
    stream_id = opener.create_webtransport_stream(session, is_unidirectional)
    assert stream_id % 4 == by_server + 2 * is_unidirectional
    assert both.take(at_server=not by_server) == []
    for part in (b"first", b"second"):
        near.send_stream_data(stream_id, part)
        assert both.take(at_server=not by_server) == came(part, ended=False)
    near.send_stream_data(stream_id, b"", True)
    assert both.take(at_server=not by_server) == came(b"", ended=True)
    if not is_unidirectional:
        far.send_stream_data(stream_id, b"back")
        assert both.take(at_server=by_server) == came(b"back", ended=False)
        far.send_stream_data(stream_id, b"end", True)
        assert both.take(at_server=by_server) == came(b"end", ended=True)
    # Nothing of it is kept.
    assert both.client._sessions == both.server._sessions == {}


def test_reset_of_a_webtransport_stream(certificates: Certificates) -> None:
    both = pair(certificates, webtransport=True, max_datagram_frame_size=65536)
    assert both.client is not None
    assert both.server is not None
    session = both.request(CONNECT, end_stream=False)
    stream_id = both.client.create_webtransport_stream(session, is_unidirectional=True)
    both.ends.client.send_stream_data(stream_id, b"some")
    assert len(both.take(at_server=True)) == 1
    both.ends.client.reset_stream(stream_id, 7)
    assert both.take(at_server=True) == []
    assert both.ends.all(StreamReset, at_server=True) == [StreamReset(7, stream_id)]
    assert both.server._sessions == {}


def test_webtransport_streams_where_it_was_not_announced(certificates: Certificates) -> None:
    both = pair(certificates)
    assert both.server is not None
    both.server.create_webtransport_stream(0)
    assert both.end(at_server=True) == (
        ErrorCode.H3_STREAM_CREATION_ERROR,
        "a bidirectional stream opened by a server",
    )


# --- misuse ---------------------------------------------------------------------------------------


def test_headers_and_data_out_of_turn(both: Pair) -> None:
    client, server = both.client, both.server
    assert client is not None
    assert server is not None
    with pytest.raises(FrameUnexpected) as refused:
        client.send_data(0, b"x", end_stream=False)
    assert isinstance(refused.value, ProtocolError)
    assert refused.value.error_code is ErrorCode.H3_FRAME_UNEXPECTED
    assert refused.value.reason_phrase
    with pytest.raises(FrameUnexpected):
        client.send_headers(2, GET)
    stream_id = both.request()
    for _twice in range(2):
        with pytest.raises(FrameUnexpected):
            client.send_data(stream_id, b"x", end_stream=False)
        with pytest.raises(FrameUnexpected):
            client.send_headers(stream_id, GET)
    with pytest.raises(FrameUnexpected):
        server.send_data(stream_id, b"x", end_stream=False)
    with pytest.raises(FrameUnexpected):
        server.send_headers(stream_id, [(b":status", b"100")], end_stream=True)
    with pytest.raises(FrameUnexpected):
        server.send_headers(stream_id + 4, OK)
    server.send_headers(stream_id, OK)
    server.send_headers(stream_id, [(b"sum", b"1")], end_stream=True)
    with pytest.raises(FrameUnexpected):
        server.send_headers(stream_id, [])
    # Both sides are over, and forgotten.
    assert len(both.take(at_server=False)) == 2
    with pytest.raises(FrameUnexpected):
        server.send_data(stream_id, b"x", end_stream=True)
    with pytest.raises(FrameUnexpected):
        client.send_headers(stream_id, GET)
    assert both.end(at_server=True) is None


@pytest.mark.parametrize("headers", [[("a", "b")], [(b"a",)], [7], 7])
def test_headers_are_pairs_of_bytes(both: Pair, headers: Any) -> None:
    assert both.client is not None
    with pytest.raises((TypeError, IndexError)):
        both.client.send_headers(0, headers)
    both.request()


def test_headers_longer_than_the_peer_accepts(both: Pair) -> None:
    assert both.client is not None
    with pytest.raises(H3Error, match="longer than the peer accepts"):
        both.client.send_headers(0, [*GET, (b"x", bytes(100_000))])
    both.request()


def test_what_is_sent_on_a_stopped_stream_is_dropped(both: Pair) -> None:
    assert both.server is not None
    stream_id = both.request()
    both.server.send_headers(stream_id, OK)
    both.exchange()
    both.ends.client.stop_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
    both.exchange()
    assert both.ends.all(StopSendingReceived, at_server=True)
    both.server.send_data(stream_id, b"x", end_stream=False)
    both.server.send_headers(stream_id, [(b"sum", b"1")], end_stream=True)
    both.request()


def test_what_is_sent_behind_the_end_of_the_connection_is_dropped(both: Pair) -> None:
    assert both.server is not None
    stream_id = both.request()
    both.ends.client.close(error_code=ErrorCode.H3_NO_ERROR)
    assert both.end(at_server=True) == (ErrorCode.H3_NO_ERROR, "")
    both.server.send_headers(stream_id, OK)
    both.server.send_data(stream_id, b"x", end_stream=True)
    both.server.send_data(stream_id, b"x", end_stream=True)


def test_headers_behind_the_end_that_fill_the_table_are_dropped(both: Pair) -> None:
    assert both.server is not None
    stream_ids = [both.request(), both.request()]
    both.ends.client.close(error_code=ErrorCode.H3_NO_ERROR)
    assert both.end(at_server=True) == (ErrorCode.H3_NO_ERROR, "")
    both.ends.now += 10
    both.ends.server.handle_timer(both.ends.now)
    for stream_id in stream_ids:
        both.server.send_headers(stream_id, [*OK, (b"x-repeated", b"y" * 50)], end_stream=True)


def test_pushes_are_refused(both: Pair) -> None:
    assert both.client is not None
    assert both.server is not None
    stream_id = both.request()
    with pytest.raises(NoAvailablePushIDError):
        both.server.send_push_promise(stream_id, GET)
    with pytest.raises(InvalidStreamTypeError):
        both.server.send_push_promise(1, GET)
    with pytest.raises(RuntimeError, match="server"):
        both.client.send_push_promise(stream_id, GET)
    assert issubclass(NoAvailablePushIDError, H3Error)


def test_no_message_is_torn_where_the_queue_is_full(certificates: Certificates) -> None:
    both = pair(certificates, max_stream_data=100_000, tx_max_queued_bytes=50_000)
    assert both.client is not None
    stream_id = both.request(POST, end_stream=False)
    sent = bytearray()
    with pytest.raises(BufferError):
        for size in range(1_000, 1_000_000, 777):
            both.client.send_data(stream_id, pattern(size), end_stream=False)
            sent += pattern(size)
    assert len(sent) > 100_000
    got = both.take(at_server=True)
    both.client.send_data(stream_id, b"end", end_stream=True)
    assert body(got + both.take(at_server=True)) == sent + b"end"


def test_requests_that_the_program_resets_and_stops_leave_nothing(both: Pair) -> None:
    client, server = both.client, both.server
    assert client is not None
    assert server is not None
    for by_server in (False, True):
        stream_id = both.request(end_stream=False)
        quic = both.ends.server if by_server else both.ends.client
        quic.reset_stream(stream_id, ErrorCode.H3_INTERNAL_ERROR)
        quic.stop_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        with pytest.raises(FrameUnexpected):
            (server if by_server else client).send_data(stream_id, b"x", end_stream=False)
        assert both.take(at_server=True) == both.take(at_server=False) == []
        assert both.ends.all(StreamReset, at_server=not by_server) == [
            StreamReset(ErrorCode.H3_INTERNAL_ERROR, stream_id)
        ]
        # The other end ends its side, too, as the stop has it do.
        assert client._core.request_count == server._core.request_count == 0
    session = both.request()
    assert both.end(at_server=True) is None
    assert session == 8


def test_webtransport_stream_that_the_program_stops_leaves_nothing(
    certificates: Certificates,
) -> None:
    both = pair(certificates, webtransport=True, max_datagram_frame_size=65536)
    assert both.client is not None
    assert both.server is not None
    session = both.request(CONNECT, end_stream=False)
    stream_id = both.client.create_webtransport_stream(session, is_unidirectional=True)
    both.ends.client.send_stream_data(stream_id, b"some")
    assert len(both.take(at_server=True)) == 1
    both.ends.server.stop_stream(stream_id, 7)
    both.ends.client.send_stream_data(stream_id, bytes(100_000))
    assert both.take(at_server=True) == []
    assert both.server._sessions == {}
    assert both.end(at_server=True) is None


def test_requests_leave_nothing(both: Pair) -> None:
    assert both.server is not None
    for _request in range(300):
        stream_id = both.request()
        both.server.send_headers(stream_id, OK, end_stream=True)
        assert len(both.take(at_server=False)) == 1
        both.ends.up.clear()
        both.ends.down.clear()
        both.handled[:] = 0, 0
    assert both.client is not None
    assert both.client._core.request_count == both.server._core.request_count == 0
    assert both.end(at_server=True) is None
