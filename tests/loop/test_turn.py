"""The order within an iteration, as in `_run_once`: ready callbacks, I/O, timers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any

from tests import support
from tests.support.datagrams import unix_pair
from tests.support.tcp import Recorder, closed, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_ready_callbacks_run_before_polled_io(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with connected(first) as (transport, peer):
            peer.sock.sendall(b"first")
            await support.wait_until(lambda: first.data == b"first", "the first bytes")
            # After a write the loop polls the kernel before it runs more callbacks.
            transport.write(b"question")
            peer.sock.sendall(b"second")
            asyncio.get_running_loop().call_soon(transport.set_protocol, second)
            await support.wait_until(lambda: first.data == b"first" and second.data, "the rest")
            assert first.data == b"first"
            assert second.data == b"second"

    run(main())


def test_immediately_due_timer_runs_after_ready_callbacks(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        order: list[str] = []
        loop.call_at(loop.time(), order.append, "timer")
        loop.call_soon(order.append, "scheduled")
        await support.wait_until(lambda: len(order) == 2, "both")
        assert order == ["scheduled", "timer"]

    run(main())


def test_callbacks_run_in_scheduling_order_across_a_poll(
    run: Run,
) -> None:
    order: list[str] = []

    class Scheduling(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            asyncio.get_running_loop().call_soon(order.append, "by the bytes")

    def scheduled() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(order.append, "before")
        loop.call_at(loop.time() - 1, order.append, "timer of the next turn")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        protocol = Scheduling()
        # Data on a Unix socket is readable when the send returns; TCP may deliver a little later.
        ours, peer = socket.socketpair()
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        await asyncio.sleep(0.01)
        # After a write the loop polls the kernel before it runs more callbacks, and finds this.
        peer.sendall(b"x")
        transport.write(b"y")
        loop.call_at(loop.time() - 1, order.append, "timer")
        loop.call_soon(scheduled)
        await support.wait_until(lambda: len(order) == 4, "all of them")
        peer.close()
        await closed(transport)
        assert order[:3] == ["timer", "before", "by the bytes"]

    run(main())


def test_received_datagram_precedes_a_due_timer(run: Run) -> None:
    order: list[str] = []

    class Noting(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            order.append("datagram")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, sender = unix_pair()
        transport, _ = await loop.create_datagram_endpoint(Noting, sock=ours)
        await asyncio.sleep(0.01)
        loop.call_later(0.01, order.append, "timer")
        # A Unix socket delivers within the send: both are readable when the loop polls.
        sender.send(b"x")
        sender.close()
        time.sleep(0.02)  # noqa: ASYNC251
        loop.call_soon(lambda: loop.call_soon(order.append, "scheduled"))
        await support.wait_until(lambda: len(order) == 3, "all of them")
        transport.close()
        assert order == ["datagram", "timer", "scheduled"]

    run(main())


def test_kernel_is_polled_between_generations_of_callbacks(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        order: list[str] = []
        with contextlib.ExitStack() as stack:
            (left, to_left), (right, to_right) = (
                [stack.enter_context(end) for end in socket.socketpair()] for _ in range(2)
            )

            def left_is_readable() -> None:
                # No `remove_reader`: changing a watcher makes the loop poll anyway.
                left.recv(1)
                order.append("left")
                to_right.send(b"x")
                loop.call_soon(generation, 1)

            def generation(number: int) -> None:
                order.append(f"generation {number}")
                if number < 3:
                    loop.call_soon(generation, number + 1)

            def right_is_readable() -> None:
                loop.remove_reader(right)
                order.append("right")

            loop.add_reader(left, left_is_readable)
            loop.add_reader(right, right_is_readable)
            to_left.send(b"x")
            await support.wait_until(lambda: len(order) == 5, "all of it")
            loop.remove_reader(left)
        assert order == ["left", "generation 1", "right", "generation 2", "generation 3"]

    run(main())
