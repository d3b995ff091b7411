"""`ringloop.quic.h3`: what a peer may not send, and what has to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic.buffer import encode_uint_var
from ringloop.quic.events import ConnectionTerminated, StopSendingReceived, StreamReset
from ringloop.quic.h3.connection import (
    ErrorCode,
    FrameType,
    StreamType,
)
from ringloop.quic.h3.events import (
    DataReceived,
    Headers,
    HeadersReceived,
)
from ringloop.quic.h3.exceptions import H3Error
from tests.h3.raw import frame, number
from tests.quic.h3_pair import GET, OK, POST, body, pair
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from ringloop.quic.connection import QuicConnection
    from tests.support.tls import Certificates


def lines(headers: Headers) -> bytes:
    """Field lines without tables (RFC 9204 §4.5.6)."""
    return b"".join(
        number(len(name), 3, 0x20) + name + number(len(value), 7, 0) + value
        for name, value in headers
    )


def section(headers: Headers) -> bytes:
    return frame(FrameType.HEADERS, b"\0\0" + lines(headers))


CONTROL = bytes([StreamType.CONTROL]) + frame(FrameType.SETTINGS)
INSERTED = b"from-table", b"yes"
# Capacity 4096, and one entry (RFC 9204 §4.3).
ENCODER = (
    bytes([StreamType.QPACK_ENCODER])
    + number(4096, 5, 0x20)
    + number(len(INSERTED[0]), 5, 0x40)
    + INSERTED[0]
    + number(len(INSERTED[1]), 7, 0)
    + INSERTED[1]
)
# Needs one insertion, and refers to it.
REFERRING = b"\x02\0" + lines(POST) + b"\x80"


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_headers_wait_for_the_encoder_stream(certificates: Certificates, size: int) -> None:
    both = pair(certificates, raw="client")
    client = both.ends.client
    client.send_stream_data(2, CONTROL)
    data = pattern(size)
    message = frame(FrameType.HEADERS, REFERRING) + frame(FrameType.DATA, data)
    client.send_stream_data(0, message, end_stream=True)
    assert both.take(at_server=True) == []
    client.send_stream_data(6, ENCODER)
    first, *rest = both.take(at_server=True)
    assert first == HeadersReceived([*POST, INSERTED], 0, stream_ended=False)
    assert body(rest) == data


def test_stream_that_waits_is_paused(certificates: Certificates) -> None:
    both = pair(certificates, raw="client")
    client = both.ends.client
    client.send_stream_data(2, CONTROL)
    client.send_stream_data(0, frame(FrameType.HEADERS, REFERRING))
    assert both.take(at_server=True) == []
    client.send_stream_data(0, frame(FrameType.DATA, b"more"))
    before = len(both.ends.up)
    both.exchange()
    assert len(both.ends.up) == before, "its events came"
    client.send_stream_data(6, ENCODER)
    assert both.take(at_server=True) == [
        HeadersReceived([*POST, INSERTED], 0, stream_ended=False),
        DataReceived(b"more", 0, stream_ended=False),
    ]


def test_peer_that_gives_no_credit_for_answers_is_left(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringloop.quic.h3.connection._OWN_BYTES_MAX", 200)
    both = pair(certificates, raw="client", max_stream_data=300)
    client, server = both.ends.client, both.server
    assert server is not None
    client.send_stream_data(2, CONTROL)
    client.send_stream_data(6, ENCODER)
    # The server's decoder acknowledges each section on it, by one to three bytes.
    client.pause_stream(11)
    message = frame(FrameType.HEADERS, REFERRING) + frame(FrameType.HEADERS, b"\x02\0\x80")
    # QUIC merges 16 KiB of such writes before they count as queued.
    for first in range(0, 6000, 50):
        for stream_id in range(4 * first, 4 * first + 200, 4):
            client.send_stream_data(stream_id, message, end_stream=True)
        for event in both.take(at_server=True):
            if isinstance(event, HeadersReceived) and not event.stream_ended:
                server.send_headers(event.stream_id, OK, end_stream=True)
        if (end := both.end(at_server=False)) is not None:
            break
    assert end == (ErrorCode.H3_EXCESSIVE_LOAD, "no credit for the control and QPACK streams")
    assert first > 2000


def sends(stream_id: int, data: bytes, *, end_stream: bool = False) -> Any:
    def act(quic: QuicConnection) -> None:
        quic.send_stream_data(stream_id, data, end_stream)

    return act


CLIENTS: list[tuple[ErrorCode, Any]] = [
    (ErrorCode.H3_MISSING_SETTINGS, sends(2, b"\0" + frame(FrameType.GOAWAY, b"\0"))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(2, CONTROL + frame(FrameType.SETTINGS))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(2, CONTROL + frame(FrameType.DATA, b"x"))),
    (ErrorCode.H3_SETTINGS_ERROR, sends(2, b"\0" + frame(FrameType.SETTINGS, b"\x02\0"))),
    (ErrorCode.H3_SETTINGS_ERROR, sends(2, b"\0" + frame(FrameType.SETTINGS, b"\x21\1\x21\1"))),
    (ErrorCode.H3_FRAME_ERROR, sends(2, b"\0" + frame(FrameType.SETTINGS, b"\x21"))),
    (ErrorCode.H3_ID_ERROR, sends(2, CONTROL + frame(FrameType.MAX_PUSH_ID, b"\5")
                                  + frame(FrameType.MAX_PUSH_ID, b"\4"))),
    (ErrorCode.H3_FRAME_ERROR, sends(2, CONTROL + frame(FrameType.MAX_PUSH_ID, b"\5\5"))),
    (ErrorCode.H3_CLOSED_CRITICAL_STREAM, sends(2, CONTROL, end_stream=True)),
    (ErrorCode.H3_STREAM_CREATION_ERROR, sends(2, bytes([StreamType.PUSH]))),
    (ErrorCode.QPACK_ENCODER_STREAM_ERROR, sends(6, b"\x02" + number(5000, 5, 0x20))),
    (ErrorCode.QPACK_DECODER_STREAM_ERROR, sends(10, b"\x03" + number(1, 6, 0))),
    (ErrorCode.QPACK_DECOMPRESSION_FAILED, sends(0, frame(FrameType.HEADERS, b"\0\0\x80"))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(0, frame(FrameType.DATA, b"x"))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(0, section(GET) + frame(FrameType.SETTINGS))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(0, section(GET) + frame(FrameType.PUSH_PROMISE, b"\0"))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(0, section(GET) + frame(0x8))),
    (ErrorCode.H3_FRAME_ERROR, sends(0, section(GET) + b"\0\5abc", end_stream=True)),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([(b"x", b"y")]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([*GET, (b"X", b"y")]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([*GET, (b"connection", b"close")]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([*GET, GET[0]]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([*GET, (b"content-length", b"-1")]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([*GET, (b"content-length", b"2")])
                                       + frame(FrameType.DATA, b"x"), end_stream=True)),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section(GET) + section([(b":path", b"/")]))),
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(0, section(GET) + section([]) + section([]))),
    (ErrorCode.H3_DATAGRAM_ERROR, lambda quic: quic.send_datagram_frame(b"\x40")),
    (ErrorCode.H3_CLOSED_CRITICAL_STREAM, lambda quic: quic.stop_stream(3, 0)),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CLIENTS)))
def test_violations_by_clients_close_the_connection(certificates: Certificates, index: int) -> None:
    code, act = CLIENTS[index]
    both = pair(certificates, raw="client", max_datagram_frame_size=65536)
    act(both.ends.client)
    end = both.end(at_server=False)
    assert end is not None
    assert ErrorCode(end[0]) is code, end
    assert end[1]
    assert both.server is not None
    # It is over: nothing more is told.
    assert both.server.handle_event(both.ends.up[-1]) == []
    assert isinstance(both.ends.up[-1], ConnectionTerminated)


SERVERS: list[tuple[ErrorCode, Any]] = [
    (ErrorCode.H3_FRAME_UNEXPECTED, sends(3, CONTROL + frame(FrameType.MAX_PUSH_ID, b"\0"))),
    (ErrorCode.H3_ID_ERROR, sends(3, bytes([StreamType.PUSH, 0]))),
    (ErrorCode.H3_STREAM_CREATION_ERROR, sends(1, section(OK))),
    (ErrorCode.H3_ID_ERROR, sends(3, CONTROL + frame(FrameType.GOAWAY, b"\1"))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section(GET))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([(b":status", b"1000")]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([(b":status", b"101")]))),
    (ErrorCode.H3_MESSAGE_ERROR, sends(0, section([(b":status", b"100")]), end_stream=True)),
    (ErrorCode.H3_ID_ERROR, sends(0, frame(FrameType.PUSH_PROMISE, b"\0\0\0"))),
    (ErrorCode.H3_EXCESSIVE_LOAD, sends(0, section([*OK, (b"x", bytes([65]) * 70_000)]))),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(SERVERS)))
def test_violations_by_servers_close_the_connection(certificates: Certificates, index: int) -> None:
    code, act = SERVERS[index]
    both = pair(certificates, raw="server")
    assert both.client is not None
    both.client.send_headers(0, GET, end_stream=True)
    both.exchange()
    act(both.ends.server)
    end = both.end(at_server=True)
    assert end is not None
    assert ErrorCode(end[0]) is code, end


def test_request_without_headers_ends_only_its_stream(certificates: Certificates) -> None:
    both = pair(certificates, raw="client")
    client = both.ends.client
    client.send_stream_data(0, frame(0x21), end_stream=True)
    assert both.take(at_server=True) == []
    assert both.ends.all(StreamReset, at_server=False) == [
        StreamReset(ErrorCode.H3_REQUEST_INCOMPLETE, 0)
    ]
    client.send_stream_data(4, section(GET), end_stream=True)
    assert both.take(at_server=True) == [HeadersReceived(GET, 4, stream_ended=True)]


def test_request_with_too_many_fields_is_answered_with_431(certificates: Certificates) -> None:
    both = pair(certificates)
    assert both.client is not None
    both.client.send_headers(0, GET + [(b"x", b"%d" % index) for index in range(300)], True)
    assert both.take(at_server=True) == []
    assert HeadersReceived([(b":status", b"431")], 0, stream_ended=True) in both.to_client
    both.to_client.clear()
    both.request()


def test_unknown_frames_and_streams_are_ignored(certificates: Certificates) -> None:
    both = pair(certificates, raw="client")
    client = both.ends.client
    client.send_stream_data(2, CONTROL + frame(0x21, b"x"))
    client.send_stream_data(6, encode_uint_var(0x21) + b"x")
    client.send_stream_data(0, frame(0x21, b"x") + section(GET) + frame(0x40), end_stream=True)
    events = both.take(at_server=True)
    assert events[0] == HeadersReceived(GET, 0, stream_ended=bool(len(events) == 1))
    assert both.ends.all(StopSendingReceived, at_server=False) == [
        StopSendingReceived(ErrorCode.H3_STREAM_CREATION_ERROR, 6)
    ]


@pytest.mark.parametrize("stream_id", [6, 0])
def test_rest_of_a_refused_stream_is_dropped(certificates: Certificates, stream_id: int) -> None:
    both = pair(certificates, raw="client")
    client = both.ends.client
    client.send_stream_data(2, CONTROL)
    # Bytes that would open a second control stream, or be DATA without headers: in several events.
    refused = {
        6: encode_uint_var(0x21),
        0: section([*GET, *[(b"x", b"%d" % index) for index in range(300)]]),
    }
    client.send_stream_data(stream_id, refused[stream_id] + bytes(300_000), end_stream=True)
    assert both.take(at_server=True) == []
    assert both.end(at_server=False) is None
    client.send_stream_data(4, section(GET), end_stream=True)
    assert both.take(at_server=True) == [HeadersReceived(GET, 4, stream_ended=True)]


def test_going_away_resets_the_requests_that_are_not_processed(certificates: Certificates) -> None:
    both = pair(certificates, raw="server")
    assert both.client is not None
    for stream_id in (0, 4):
        both.client.send_headers(stream_id, GET, end_stream=True)
    both.exchange()
    server = both.ends.server
    server.send_stream_data(3, CONTROL + frame(FrameType.GOAWAY, b"\4"))
    server.send_stream_data(0, section(OK), end_stream=True)
    assert both.take(at_server=False) == [HeadersReceived(OK, 0, stream_ended=True)]
    assert both.ends.all(StreamReset, at_server=False) == [
        StreamReset(ErrorCode.H3_REQUEST_REJECTED, 4)
    ]
    with pytest.raises(H3Error, match="no more requests"):
        both.client.send_headers(8, GET)
    assert both.end(at_server=True) is None
