"""`ringloop.quic.h3` and aioquic's HTTP/3, each with the other and with itself, on our QUIC."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

from ringloop.quic.events import ConnectionTerminated, StreamReset
from ringloop.quic.h3 import connection as ours
from tests.ecosystem.quic import shim
from tests.quic.h3_pair import CONNECT, GET, OK, POST, Pair
from tests.quic.test_h3_violations import frame, section, sends
from tests.quic.test_shape_connection import connected
from tests.support.tcp import pattern
from tests.support.tls import Certificates


@pytest.fixture(scope="module")
def theirs() -> Any:
    """aioquic's HTTP/3 on our connections."""
    kept = dict(sys.modules)
    import aioquic.h3.connection  # noqa: F401

    shim.install("aioquic")
    import aioquic.h3.connection as module

    yield module
    sys.modules.clear()
    sys.modules.update(kept)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["ours-theirs", "theirs-ours", "theirs-theirs", "ours-ours"])
def both(request: pytest.FixtureRequest, theirs: Any, certificates: Certificates) -> Pair:
    ends = connected(certificates, max_datagram_frame_size=65536)
    modules = {"ours": ours, "theirs": theirs}
    client, server = [modules[name].H3Connection for name in request.param.split("-")]
    made = Pair(ends, client(ends.client, True), server(ends.server, True))
    made.exchange()
    return made


def told(both: Pair, *, at_server: bool) -> list[dict[str, Any]]:
    """The events of an end, as values that both kinds have; a body is one."""
    found: list[dict[str, Any]] = []
    for event in both.take(at_server=at_server):
        fields = {**dataclasses.asdict(event), "kind": type(event).__name__}
        if found and found[-1]["kind"] == fields["kind"] == "DataReceived":
            fields["data"] = found.pop()["data"] + fields["data"]
        found.append(fields)
    return found


def message(stream_id: int, *parts: Any) -> list[dict[str, Any]]:
    """The events of a message: sections and bodies."""
    common = {"stream_id": stream_id, "push_id": None}
    found = [
        {"kind": "DataReceived", "data": part, **common}
        if isinstance(part, bytes)
        else {"kind": "HeadersReceived", "headers": part, **common}
        for part in parts
    ]
    return [{**one, "stream_ended": one is found[-1]} for one in found]


TRAILERS = [(b"sum", b"1"), (b"sum", b"2")]


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_messages(both: Pair, size: int) -> None:
    data = pattern(size)
    request = [*POST, (b"cookie", b"a"), (b"x", b"1"), (b"cookie", b"b")]
    for _again in range(3):
        stream_id = both.ends.client.get_next_available_stream_id()
        both.client.send_headers(stream_id, request)
        both.client.send_data(stream_id, data, end_stream=False)
        both.client.send_headers(stream_id, TRAILERS, end_stream=True)
        assert told(both, at_server=True) == message(stream_id, request, data, TRAILERS)
        early = [(b":status", b"103"), (b"link", b"</a>")]
        both.server.send_headers(stream_id, early)
        both.server.send_headers(stream_id, OK)
        both.server.send_data(stream_id, data, end_stream=True)
        assert told(both, at_server=False) == message(stream_id, early, OK, data)


def test_end_alone(both: Pair) -> None:
    both.client.send_headers(0, GET)
    both.exchange()
    both.client.send_data(0, b"", end_stream=True)
    assert told(both, at_server=True) == message(0, GET, b"")


def test_sessions(both: Pair) -> None:
    both.client.send_headers(0, CONNECT)
    both.exchange()
    both.server.send_headers(0, OK)
    both.exchange()
    both.to_client.clear()
    both.to_server.clear()
    for at_server, quic, opener in (
        (True, both.ends.client, both.client),
        (False, both.ends.server, both.server),
    ):
        opener.send_datagram(0, b"datagram")
        assert told(both, at_server=at_server) == [
            {"kind": "DatagramReceived", "data": b"datagram", "stream_id": 0}
        ]
        for is_unidirectional in (False, True):
            stream_id = opener.create_webtransport_stream(0, is_unidirectional)
            quic.send_stream_data(stream_id, b"all", end_stream=True)
            assert told(both, at_server=at_server) == [
                {
                    "kind": "WebTransportStreamDataReceived",
                    "data": b"all",
                    "stream_id": stream_id,
                    "stream_ended": True,
                    "session_id": 0,
                }
            ]


VIOLATIONS = [
    sends(2, frame(4)),
    sends(2, frame(0, b"x")),
    sends(2, b"", end_stream=True),
    sends(14, b"\0"),
    sends(14, b"\1"),
    sends(0, frame(0, b"x")),
    sends(0, frame(1, b"\0\0\x80")),
    sends(0, section(GET) + frame(4)),
    sends(0, section(GET) + frame(5, b"\0")),
    sends(0, section(GET) + frame(8)),
    sends(0, section(GET) + b"\0\5abc", end_stream=True),
    sends(0, section([(b"x", b"y")])),
    sends(0, section([*GET, (b"X", b"y")])),
    sends(0, section([*GET, (b"connection", b"close")])),
    sends(0, section([*GET, GET[0]])),
    sends(0, section([*GET, (b"content-length", b"2")]) + frame(0, b"x"), end_stream=True),
    sends(0, section(GET) + section([(b":path", b"/")])),
    sends(0, section(GET) + 2 * section([(b"x", b"y")])),
    sends(0, frame(0x21), end_stream=True),
    lambda quic: quic.send_datagram_frame(b"\x40"),
    lambda quic: quic.stop_stream(3, 0),
]


@pytest.mark.parametrize("index", range(len(VIOLATIONS)))
def test_violations_have_the_same_codes(
    theirs: Any, certificates: Certificates, index: int
) -> None:
    ends = []
    for module in (theirs, ours):
        quic = connected(certificates, max_datagram_frame_size=65536)
        both = Pair(quic, None, module.H3Connection(quic.server, True))
        # A well-behaved client, which then goes wrong.
        control = sends(2, b"\0" + frame(4))
        control(quic.client)
        both.exchange()
        VIOLATIONS[index](quic.client)
        both.exchange()
        closes = quic.all(ConnectionTerminated, at_server=False)
        resets = quic.all(StreamReset, at_server=False)
        ends.append([[one.error_code for one in ended] for ended in (closes, resets)])
    assert ends[0] == ends[1]
    assert any(ends[1])
