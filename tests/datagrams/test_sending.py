"""Sending on datagram endpoints: room, flow control, errors, and gathering in an iteration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import wait_until, within
from tests.support.datagrams import (
    HEADER_LEN,
    LARGEST,
    Recorder,
    endpoint,
    fill,
    name_of,
    unix_pair,
)

if TYPE_CHECKING:
    from tests.support.datagrams import Run


def test_too_long_datagram_is_an_error_of_its_sender(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            sender.transport.sendto(bytes(LARGEST + 1))
            # Reported before sendto returns.
            assert [error.errno for error in sender.errors] == [90]  # EMSGSIZE
            sender.transport.sendto(b"short")
            await wait_until(lambda: receiver.received)
            assert receiver.data == [b"short"]

    run(main())


def test_a_full_socket_pauses_and_resumes_the_protocol(run: Run) -> None:
    async def main() -> None:
        left, right = unix_pair()
        right.setblocking(False)
        async with endpoint(sock=left) as sender:
            with right:
                transport = sender.transport
                transport.set_write_buffer_limits(high=1000, low=200)
                assert transport.get_write_buffer_limits() == (200, 1000)
                fill(transport, lambda: transport.get_write_buffer_size() > 0)
                assert transport.get_write_buffer_size() == 100 + HEADER_LEN
                assert "pause" not in sender.calls
                queued = 1 + fill(transport, lambda: "pause" in sender.calls)
                assert queued == 1000 // (100 + HEADER_LEN) + 1
                assert transport.get_write_buffer_size() == queued * (100 + HEADER_LEN)

                def resumed() -> bool:
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            right.recv(1000)
                    return "resume" in sender.calls

                await wait_until(resumed)
                assert sender.calls == ["made", "pause", "resume"]
                if sys.version_info[:3] != (3, 13, 0):  # 3.13.0 forgets the headers it counted
                    await wait_until(lambda: transport.get_write_buffer_size() == 0)

    run(main())


def test_bad_limits_are_refused(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as protocol:
            with pytest.raises(ValueError, match=r"high .* must be >= low"):
                protocol.transport.set_write_buffer_limits(high=1, low=2)

    run(main())


def test_network_errors_reach_error_received(run: Run) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
            # Keeps the port, and receives only from its connected peer.
            deaf.bind(("127.0.0.1", 0))
            deaf.connect(("127.0.0.1", 9))
            async with endpoint(remote_addr=deaf.getsockname()) as protocol:
                protocol.transport.sendto(b"refused")
                await wait_until(lambda: protocol.errors)
                assert type(protocol.errors[0]) is ConnectionRefusedError
                assert protocol.errors[0].errno == 111
                assert not protocol.transport.is_closing()
                deaf.connect(name_of(protocol))
                deaf.send(b"still there")
                await wait_until(lambda: protocol.received)
                assert protocol.data == [b"still there"]

    run(main())


def test_error_received_is_called_inside_sendto_and_may_raise(
    run: Run,
) -> None:
    class Raises(Recorder):
        def error_received(self, exc: Exception) -> None:
            raise LookupError("mine") from exc

    async def main() -> None:
        async with endpoint(Raises) as protocol:
            with pytest.raises(LookupError, match="mine"):
                protocol.transport.sendto(bytes(LARGEST + 1), ("127.0.0.1", 9))
            assert not protocol.transport.is_closing()

    run(main())


@pytest.mark.loop_errors
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (None, TypeError),
        (("127.0.0.1",), TypeError),
        (("127.0.0.1", "x"), TypeError),
        (("127.0.0.1", 70000), OverflowError),
        (("127.0.0.1", -1), OverflowError),
        (["127.0.0.1", 9], TypeError),
    ],
)
def test_invalid_address_ends_the_endpoint(
    run: Run, loop: asyncio.AbstractEventLoop, address: Any, kind: type[Exception]
) -> None:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    async def main() -> None:
        async with endpoint() as protocol:
            protocol.transport.sendto(b"x", address)
            assert protocol.transport.is_closing()
            assert type(await within(asyncio.shield(protocol.lost))) is kind
            assert [c["message"] for c in told] == ["Fatal write error on datagram transport"]
            assert told[0]["protocol"] is protocol
            assert protocol.errors == []

    run(main())


def test_wrong_data_and_wrong_addresses_are_refused_at_the_call(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            for wrong in ("text", 5, [1]):
                with pytest.raises(TypeError, match="must be a bytes-like object, not '"):
                    sender.transport.sendto(wrong)
            with pytest.raises(ValueError, match="Invalid address: must be None or"):
                sender.transport.sendto(b"x", ("127.0.0.1", 1))
            sender.transport.sendto(b"same", name_of(receiver))
            await wait_until(lambda: receiver.received)
            assert receiver.data == [b"same"]

    run(main())


def test_assigned_address_is_the_only_one(run: Run) -> None:
    """asyncio_dgram assigns it, because asyncio does not look for the peer of a socket it is given."""

    async def main() -> None:
        async with endpoint() as receiver:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(name_of(receiver))
            async with endpoint(sock=sock) as sender:
                transport: Any = sender.transport
                assert transport._address is None
                transport._address = transport.get_extra_info("peername")
                assert transport._address == name_of(receiver)
                with pytest.raises(ValueError, match="Invalid address: must be None or"):
                    transport.sendto(b"x", ("127.0.0.1", 1))
                transport.sendto(b"to the peer")
                transport.sendto(b"named", name_of(receiver))
                transport._address = None
                transport.sendto(b"any")
                await wait_until(lambda: len(receiver.received) == 3)
                assert receiver.data == [b"to the peer", b"named", b"any"]

    run(main())


def test_sends_after_the_end_are_dropped_and_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with endpoint() as receiver, endpoint(remote_addr=name_of(receiver)) as sender:
            sender.transport.close()
            await within(asyncio.shield(sender.lost))
            with caplog.at_level(logging.WARNING, logger="asyncio"):
                for _ in range(6):
                    sender.transport.sendto(b"late")
            assert caplog.messages == ["socket.send() raised exception."] * 2
            assert sender.errors == []

    run(main())
