"""Flooded datagram endpoints: order, fairness, memory, and GSO batches, which protocols never see.

A sender that sets `UDP_SEGMENT` passes the kernel up to 64 datagrams as one message; a socket with
`UDP_GRO` receives them as one, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import PATIENCE_SECONDS, resident_bytes, wait_until
from tests.support.datagrams import Recorder, endpoint, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.datagrams import Run

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104  # linux/udp.h
TRAIN = 40
FLOOD = 100_000
# What a flood may leave behind: receive buffers, one batch of messages, the allocator's slack.
GROWTH_BYTES_MAX = 48 << 20


@pytest.fixture
def trains() -> Iterator[socket.socket]:
    """A socket that sends GSO batches of datagrams of 8 bytes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, 8)
        yield sock


def train(start: int, count: int = TRAIN) -> bytes:
    """Numbered datagrams, for a socket that splits them."""
    return b"".join(struct.pack("Q", number) for number in range(start, start + count))


def numbers(protocol: Recorder) -> list[int]:
    assert {len(data) for data in protocol.data} <= {8}
    return [struct.unpack("Q", data)[0] for data in protocol.data]


def receives_trains(sock: Any) -> bool:
    return bool(sock.getsockopt(SOL_UDP, UDP_GRO))


async def flood(receiver: Recorder, trains: socket.socket, rounds: int = 10) -> int:
    """Send many GSO batches per round; return how many datagrams arrived, all of them in order."""
    sent = 0
    for _ in range(rounds):
        before = len(receiver.received)
        # As many as a default receive buffer holds, and a full batch of messages.
        for _ in range(4):
            trains.sendto(train(sent), name_of(receiver))
            sent += TRAIN
        await wait_until(lambda: len(receiver.received) == before + 4 * TRAIN)  # noqa: B023
    assert numbers(receiver) == list(range(sent))
    assert {source for _, source in receiver.received} == {trains.getsockname()}
    return sent


def test_gso_batches_are_delivered_datagram_by_datagram(run: Run, trains: Any) -> None:
    async def main() -> None:
        async with endpoint() as receiver:
            count = await flood(receiver, trains)
            # Single ones between them, empty ones included.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
                for data in (b"", b"longer than any of a train", b"x", b""):
                    plain.sendto(data, name_of(receiver))
                    trains.sendto(train(0, 3), name_of(receiver))
                await wait_until(lambda: len(receiver.received) == count + 16)
            of_trains = {train(number, 1) for number in range(3)}
            tail = [data for data in receiver.data[count:] if data not in of_trains]
            assert tail == [b"", b"longer than any of a train", b"x", b""]

    run(main())


def test_only_sockets_of_the_loop_enable_gro(run: Run, loop_name: str, trains: Any) -> None:
    async def main() -> None:
        async with endpoint() as receiver:
            sock = receiver.transport.get_extra_info("socket")
            # Only once it is flooded: it costs the machine something.
            assert not receives_trains(sock)
            await flood(receiver, trains)
            assert receives_trains(sock) == (loop_name != "asyncio")
            copy = sock.dup()
        with copy:
            # The owner of a duplicate receives single datagrams once the endpoint is closed.
            assert not receives_trains(copy)
            copy.settimeout(PATIENCE_SECONDS)
            trains.sendto(train(0), copy.getsockname())
            assert copy.recv(1000) == train(0, 1)
        brought = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        brought.bind(("127.0.0.1", 0))
        async with endpoint(sock=brought) as receiver:
            await flood(receiver, trains)
            assert not receives_trains(brought)

    run(main())


def test_runs_of_an_iteration_are_sent_as_gso_batches(run: Run, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio sends each by itself")

    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            peer.setblocking(False)
            peer.setsockopt(SOL_UDP, UDP_GRO, 1)
            async with endpoint() as sender:
                for number in range(1 + 64 + 10):
                    sender.transport.sendto(train(number, 1), peer.getsockname())
                messages: list[bytes] = []

                def all_came() -> bool:
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            messages.append(peer.recv(10_000))
                    return sum(map(len, messages)) == 8 * (1 + 64 + 10)

                await wait_until(all_came)
        assert messages == [train(0, 1), train(1, 64), train(65, 10)]

    run(main())


def test_pause_inside_a_gso_batch_keeps_the_rest(run: Run, trains: Any) -> None:
    class PausesOften(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if len(self.received) % 7 == 3:
                self.transport.pause_reading()

    async def main() -> None:
        async with endpoint() as receiver:
            sent = await flood(receiver, trains)
            pausing = PausesOften()
            pausing.transport = receiver.transport
            receiver.transport.set_protocol(pausing)
            for start in range(0, 4 * TRAIN, TRAIN):
                trains.sendto(train(sent + start), name_of(receiver))
            for stop in range(3, 4 * TRAIN, 7):
                await wait_until(lambda: not receiver.transport.is_reading())
                assert len(pausing.received) == stop
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert len(pausing.received) == stop
                receiver.transport.resume_reading()
            await wait_until(lambda: len(pausing.received) == 4 * TRAIN)
            assert numbers(pausing) == list(range(sent, sent + 4 * TRAIN))
            receiver.transport.set_protocol(receiver)

    run(main())


@pytest.mark.parametrize("is_paused", [False, True], ids=["reading", "paused"])
def test_flood_of_a_hundred_thousand_leaves_memory_bounded(
    run: Run, trains: Any, is_paused: bool
) -> None:
    class Counts(Recorder):
        count = 0
        last = -1
        size = 0

        def datagram_received(self, data: bytes, addr: Any) -> None:
            (number,) = struct.unpack("Q", data[:8])
            # Some are dropped if the buffer is full; none is repeated or reordered.
            assert number > self.last
            self.last = number
            self.size += len(data)
            self.count += 1

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with endpoint(Counts) as receiver:
            to = name_of(receiver)
            over = loop.create_future()
            turns = 0

            def send() -> None:
                # Until the loop has run other callbacks, for which a busy machine has to let it
                # run.
                deadline = time.monotonic() + PATIENCE_SECONDS
                end = 0
                while end < FLOOD or (turns <= 10 and time.monotonic() < deadline):
                    trains.sendto(train(end), to)
                    end += TRAIN
                loop.call_soon_threadsafe(over.set_result, end)

            def tick() -> None:
                nonlocal turns
                turns += 1
                if not over.done():
                    loop.call_soon(tick)

            before = resident_bytes()
            if is_paused:
                receiver.transport.pause_reading()
            tick()
            thread = threading.Thread(target=send)
            thread.start()
            end = await over
            thread.join()
            # The flood did not starve other callbacks.
            assert turns > 10
            if is_paused:
                assert receiver.count == 0
                receiver.transport.resume_reading()
            last = itertools.count(end)

            def caught_up() -> bool:
                # It is dropped itself while the buffer is full.
                trains.sendto(train(next(last), 1), to)
                return bool(receiver.last >= end)

            await wait_until(caught_up)
            assert receiver.size == 8 * receiver.count
            assert resident_bytes() - before < GROWTH_BYTES_MAX

    run(main())


def test_flooded_endpoint_does_not_starve_others(run: Run, trains: Any) -> None:
    async def main() -> None:
        async with endpoint() as flooded, endpoint() as quiet:
            await flood(flooded, trains)
            over = threading.Event()
            to = name_of(flooded)

            def send() -> None:
                while not over.is_set():
                    trains.sendto(train(0), to)

            thread = threading.Thread(target=send)
            thread.start()
            try:

                def has_had(count: int) -> bool:
                    # Repeated, because the kernel drops some during a flood.
                    quiet.transport.sendto(os.urandom(8), name_of(quiet))
                    return len(quiet.received) >= count

                for _ in range(20):
                    wanted = len(quiet.received) + 1
                    await wait_until(functools.partial(has_had, wanted))
            finally:
                over.set()
                thread.join()

    run(main())
