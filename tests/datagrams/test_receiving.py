"""Receiving on datagram endpoints: pauses, protocols that raise, floods and GSO batches."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import wait_until, within
from tests.support.datagrams import Recorder, endpoint, name_of, unix_pair

if TYPE_CHECKING:
    from tests.support.datagrams import Run


def test_unix_datagram_longer_than_the_receive_size_is_truncated(run: Run) -> None:
    received_max = 256 * 1024

    async def main() -> None:
        left, right = unix_pair()
        left.setsockopt(socket.SOL_SOCKET, 32, 1 << 20)  # SO_SNDBUFFORCE
        async with endpoint(sock=right) as receiver:
            with left:
                try:
                    left.send(b"x" * (received_max + 1000))
                except OSError as error:
                    pytest.skip(f"no datagram of that size here: {error}")
                left.send(b"next")
                await wait_until(lambda: len(receiver.received) == 2)
            assert [len(data) for data in receiver.data] == [received_max, 4]

    run(main())


def test_close_in_a_callback_delivers_nothing_more(run: Run) -> None:
    class ClosesAtOnce(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.close()

    async def main() -> None:
        async with endpoint(ClosesAtOnce) as receiver:
            receiver.transport.pause_reading()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(10):
                    sender.sendto(b"%d" % number, name_of(receiver))
            receiver.transport.resume_reading()
            assert await within(asyncio.shield(receiver.lost)) is None
            assert receiver.data == [b"0"]
            assert receiver.calls == ["made", "lost"]

    run(main())


def test_pause_keeps_the_rest_of_a_batch_in_order(run: Run) -> None:
    class PausesOften(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if int(data) % 7 == 3:
                self.transport.pause_reading()

    async def main() -> None:
        async with endpoint(PausesOften) as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(100):
                    sender.sendto(b"%d" % number, name_of(receiver))
            for stop in range(4, 100, 7):
                await wait_until(lambda: not receiver.transport.is_reading())
                assert len(receiver.received) == stop
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert len(receiver.received) == stop
                receiver.transport.resume_reading()
            await wait_until(lambda: len(receiver.received) == 100)
            assert [int(data) for data in receiver.data] == list(range(100))

    run(main())


@pytest.mark.loop_errors
def test_protocol_that_raises_is_reported_and_continues(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    class Raises(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"1":
                raise LookupError("mine")

    async def main() -> None:
        async with endpoint(Raises) as receiver:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for number in range(3):
                    sender.sendto(b"%d" % number, name_of(receiver))
            await wait_until(lambda: len(receiver.received) == 3)
            assert not receiver.transport.is_closing()
            assert len(told) == 1
            assert told[0]["message"].startswith("Exception in callback ")
            assert "._read_ready()" in told[0]["message"]
            assert repr(told[0]["exception"]) == "LookupError('mine')"

    run(main())


def test_an_interrupt_leaves_the_loop_and_loses_no_datagram(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    class Interrupts(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"3":
                raise KeyboardInterrupt

    made: list[Recorder] = []

    async def begin() -> None:
        _, protocol = await loop.create_datagram_endpoint(Interrupts, local_addr=("127.0.0.1", 0))
        made.append(protocol)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(10):
                sender.sendto(b"%d" % number, name_of(protocol))

    async def end() -> None:
        await wait_until(lambda: len(made[0].received) == 10)
        assert [int(data) for data in made[0].data] == list(range(10))
        made[0].transport.close()
        await within(asyncio.shield(made[0].lost))

    run(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    run(end())
