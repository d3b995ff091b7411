"""The public members of classes are the documented ones."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic import asyncio as shaped
from ringloop.quic.asyncio.server import QuicServer
from ringloop.quic.compat.aiopquic import connection as aiopquic
from ringloop.quic.connection import QuicConnection
from ringloop.quic.h3.connection import H3Connection
from tests.quic.support import both
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

DOCS = Path(__file__).resolve().parents[2] / "docs"


def members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def section(page: str, title: str) -> str:
    """The text below a heading of a page, up to the next heading of its level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {title}$(.*?)(?=^\1 |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[2]


@pytest.mark.parametrize("kind", [quic.Connection, quic.Stream, quic.Endpoint])
def test_members_are_those_of_the_reference(kind: type) -> None:
    named = set(re.findall(r"`(\w+)`", section("quic.md", f"`{kind.__name__}`")))

    assert named - {"True", "False", "None"} >= members(kind), "named in docs/quic.md"
    unknown = {name for name in named if hasattr(kind, name)} ^ members(kind)
    assert not unknown


# Members of aioquic's classes, and our additions (docs/quic-migration.md).
OTHERS: dict[type, str] = {
    QuicConnection: """
        change_connection_id close configuration connect datagrams_to_send get_cipher get_issuercerts
        get_next_available_stream_id get_peer_address get_peercert get_send_buffer_size get_timer
        handle_timer max_concurrent_bidi_streams max_concurrent_uni_streams max_datagram_payload
        next_event original_destination_connection_id pause_stream peer_transport_parameters
        receive_datagram receive_many_datagrams request_key_update reset_stream resume_stream
        send_datagram_frame send_ping send_stream_data set_stream_priority stats stop_stream
        take_writable want_writable
    """,
    shaped.QuicConnectionProtocol: """
        aclose change_connection_id close connect connection_lost connection_made create_stream
        datagram_received error_received get_extra_info pause_writing ping quic_event_received
        request_key_update resume_writing transmit wait_closed wait_connected wait_created
    """,
    QuicServer: """
        abort aclose close get_extra_info get_protocol is_closing sendto set_protocol sockname
        stats wait_closed
    """,
    quic.ClientConfig: "",
    quic.ServerConfig: "remove_certificate set_certificate",
    quic.Worker: "close",
    H3Connection: """
        create_webtransport_stream handle_event received_settings send_data send_datagram
        send_headers send_push_promise sent_settings
    """,
}
AIOPQUIC = """
    bytes_received bytes_sent clear_tx_data_drain_pending closed get_tx_data_drain_event
    send_stream_data_drained set_tx_data_drain_pending stop tx_data_ring_used tx_event_ring_fill
"""


@pytest.mark.parametrize("kind", OTHERS)
def test_members_of_the_other_classes(kind: type) -> None:
    assert members(kind) == set(OTHERS[kind].split())


def test_additions_of_aiopquic_to_aioquic() -> None:
    added = members(aiopquic.QuicConnection) - members(QuicConnection)
    assert added == set(AIOPQUIC.split())


@pytest.mark.parametrize("kind", [quic.Connection, quic.Stream, quic.Endpoint])
def test_every_public_member_is_described(kind: type) -> None:
    for name in members(kind) - {"connection"}:
        assert (inspect.getdoc(getattr(kind, name)) or "").strip(), name


def test_nowait_methods_return_streams(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            assert server.accept_stream_nowait() is None
            opened = client.open_stream_nowait()
            assert isinstance(opened, quic.Stream)
            await within(opened.send(b"x"))
            opened.finish()
            stream = await within(server.accept_stream())
            assert await within(stream.read_to_end()) == b"x"
            one_way = client.open_stream_nowait(unidirectional=True)
            assert one_way is not None
            assert not one_way.is_bidirectional
            one_way.finish()
            while (taken := server.accept_stream_nowait(unidirectional=True)) is None:
                await within(client.ping())
            assert isinstance(taken, quic.Stream)
            assert taken.id == one_way.id

    run(main())


def test_no_more_streams_than_the_peer_allows(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"max_streams_bidi": 2}) as (client, _server):
            kept = [client.open_stream_nowait() for _ in range(3)]
            assert [stream is None for stream in kept] == [False, False, True]

    run(main())
