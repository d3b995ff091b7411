"""`ringloop.quic.connection`: its end is the last event, once; notifications do not pile up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringloop.quic import events
from tests.quic.support import SERVER
from tests.quic.test_shape_connection import begin, connected

if TYPE_CHECKING:
    from tests.support.tls import Certificates


def test_termination_is_reported_once_if_both_ends_close(certificates: Certificates) -> None:
    """The client's close waits for the end of its handshake; the server's arrives meanwhile."""
    ends = begin(certificates)
    client = ends.client
    while ends.server is None or not ends.all(events.HandshakeCompleted, at_server=False):
        for data, _address in client.datagrams_to_send(ends.now):
            ends._to_server(data)
        for data, _address in ends.server.datagrams_to_send(ends.now):
            client.receive_datagram(data, SERVER, ends.now)
        ends._take(reads_at_server=True)
    # As if the acknowledgement of the handshake were still in flight.
    (finished, *rest) = client.datagrams_to_send(ends.now)
    ends._to_server(finished[0])
    for data, _address in rest:
        ends._to_server(data)
    ends.server.close(error_code=8, reason_phrase="the server's")
    down = ends.server.datagrams_to_send(ends.now)
    client.send_ping(1)
    client.close(error_code=7, reason_phrase="the client's")
    for data, _address in down:
        client.receive_datagram(data, SERVER, ends.now)
    ends.run_until(lambda: ends.client._endpoint.connection_count == 0)
    told = [event for event in ends.down if not isinstance(event, events.ConnectionIdIssued)]
    assert ends.all(events.ConnectionTerminated, at_server=False) == [
        events.ConnectionTerminated(7, None, "the client's")
    ]
    assert isinstance(told[-1], events.ConnectionTerminated)
    assert client._close_event == told[-1]


def test_no_event_after_the_end(certificates: Certificates) -> None:
    ends = connected(certificates)
    ends.client.send_stream_data(0, b"question")
    ends.client.send_ping(1)
    ends.exchange()
    ends.server.send_stream_data(0, b"answer")
    ends.server.change_connection_id()
    down = ends.server.datagrams_to_send(ends.now)
    ends.client.send_ping(2)
    ends.client.send_stream_data(4, b"goes first", end_stream=True)
    ends.client.close(error_code=7)
    for data, _address in down:
        ends.client.receive_datagram(data, SERVER, ends.now)
    ends.run_until(lambda: ends.client._endpoint.connection_count == 0)
    for told in (ends.down, ends.up):
        kinds = [type(event) for event in told]
        assert kinds.count(events.ConnectionTerminated) == 1
        assert kinds[-1] is events.ConnectionTerminated
    assert ends.all(events.StreamDataReceived, at_server=True)[-1] == events.StreamDataReceived(
        b"goes first", end_stream=True, stream_id=4
    )


def test_untaken_notifications_do_not_pile_up(certificates: Certificates) -> None:
    ends = connected(certificates)
    for _turn in range(50):
        ends.client.send_stream_data(0, b"question")
        ends.exchange()
        ends.server.send_stream_data(0, b"answer")
        ends.exchange()
    for end in (ends.client, ends.server):
        _accepted, eventful, _gone = end._endpoint.take()
        assert len(eventful) == 1
        assert end._endpoint.take() is None
    # Once taken, it is notified again.
    ends.client.send_stream_data(0, b"question")
    ends.exchange()
    assert ends.server._endpoint.take() == ([], [ends.server._native.key], [])


def test_strangers_first_packet_does_not_affect_a_connection(
    certificates: Certificates,
) -> None:
    ends = connected(certificates)
    stranger = begin(certificates).client
    for data, _address in stranger.datagrams_to_send(ends.now):
        ends.server.receive_datagram(data, ("192.0.2.9", 9), ends.now)
        # The stranger is told that it is unknown here, in fewer bytes than it sent.
        answers = ends.server.datagrams_to_send(ends.now)
        assert sum(len(answer) for answer, _address in answers) < len(data)
    assert ends.server._endpoint.connection_count == 1
    ends.client.send_stream_data(0, b"goes on", end_stream=True)
    ends.exchange()
    assert ends.all(events.StreamDataReceived, at_server=True) == [
        events.StreamDataReceived(b"goes on", end_stream=True, stream_id=0)
    ]
