"""A TCP transport's attributes, its protocols, and the contexts of their callbacks."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    connected,
    pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


# --- attributes -----------------------------------------------------------------------------------


def test_extra_info(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            sock = transport.get_extra_info("socket")
            assert type(sock).__name__ == "TransportSocket"
            assert type(sock).__module__ == "asyncio.trsock"
            assert sock.fileno() >= 0
            assert transport.get_extra_info("sockname") == peer.sock.getpeername()
            assert transport.get_extra_info("peername") == peer.sock.getsockname()
            assert transport.get_extra_info("nothing") is None
            assert transport.get_extra_info("nothing", 7) == 7

    run(main())


def test_extra_info_outlives_the_connection(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            name = peer.sock.getsockname()
            transport.close()
            await protocol.until_lost()
            assert transport.get_extra_info("peername") == name

    run(main())


def test_nagle_is_off(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    run(main())


def test_is_a_true_transport(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            assert isinstance(transport, asyncio.Transport)
            assert isinstance(transport, asyncio.ReadTransport)
            assert isinstance(transport, asyncio.WriteTransport)
            given: Any = transport
            assert given._start_tls_compatible is True
            given.anything = 5
            assert given.__dict__["anything"] == 5
            assert {given: 1}[given] == 1
            assert weakref.ref(given)() is given
            with pytest.raises(AttributeError):
                getattr(given, "nothing")  # noqa: B009 - the lookup is the test

    run(main())


def test_repr_names_descriptor_and_state(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, _):
            fd = transport.get_extra_info("socket").fileno()
            text = repr(transport)
            assert f"fd={fd}" in text
            assert "read=polling" in text
            assert "write=<idle, bufsize=0>" in text
            transport.pause_reading()
            assert "read=idle" in repr(transport)
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            assert "write=<polling, bufsize=" in repr(transport)
            transport.close()
            assert "closing" in repr(transport)

    run(main())


def test_set_protocol_in_the_middle(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with connected(first) as (transport, peer):
            await peer.send(b"one")
            await support.wait_until(lambda: first.data == b"one", "the first message")
            transport.set_protocol(second)
            assert transport.get_protocol() is second
            await peer.send(b"two")
            await support.wait_until(lambda: second.data == b"two", "the second message")
            peer.close()
            await second.until_lost()
            assert first.events == ["connection_made", "data_received"]
            assert second.events == ["data_received", "eof_received", "connection_lost"]

    run(main())


def test_set_protocol_inside_data_received(run: Run) -> None:
    second = Recorder()

    class Upgrades(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.set_protocol(second)

    async def main() -> None:
        first = Upgrades()
        async with connected(first) as (_, peer):
            data = pattern(300_000)
            await peer.send(data)
            await support.wait_until(
                lambda: len(first.data) + len(second.data) == len(data), "all bytes"
            )
            assert len(first.chunks) == 1
            assert first.data + second.data == data

    run(main())


def test_protocol_set_after_close_gets_connection_lost(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with connected(first) as (transport, _):
            transport.close()
            transport.set_protocol(second)
            await second.until_lost()
            assert first.events == ["connection_made"]
            assert second.events == ["connection_lost"]

    run(main())


# --- contexts -------------------------------------------------------------------------------------


def test_contexts_of_the_callbacks(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    class Notes(Recorder):
        def note(self, event: str) -> None:
            super().note(f"{event} {variable.get()}")
            variable.set(event)

        def data_received(self, data: bytes) -> None:
            self.note("data_received")
            self.data += data

    async def main() -> None:
        variable.set("creator")
        protocol = Notes()
        async with connected(protocol) as (transport, peer):
            variable.set("later")
            await peer.send(b"1")
            await support.wait_until(lambda: protocol.data == b"1", "the first message")
            await peer.send(b"2")
            await support.wait_until(lambda: protocol.data == b"12", "the second message")
            variable.set("closer")
            transport.close()
            await support.wait_until(lambda: len(protocol.events) == 4, "connection_lost")
            # Since 3.15 a connection has one context; before, each callback was scheduled in a
            # copy.
            one = sys.version_info >= (3, 15)
            assert protocol.events == [
                "connection_made creator",
                f"data_received {'connection_made' if one else 'creator'}",
                "data_received data_received",
                f"connection_lost {'data_received' if one else 'closer'}",
            ]

    run(main())
