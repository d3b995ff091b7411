"""call_soon_threadsafe: nothing is lost, a sleeping loop wakes, a closed one refuses."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import LoopFactory

Loop = asyncio.AbstractEventLoop


def test_message_wakes_a_sleeping_loop(loop: Loop) -> None:
    def send() -> None:
        support.wait_until_blocking(loop.is_running)
        time.sleep(0.01)  # let it fall asleep: it must end either way
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=send)
    thread.start()
    loop.run_forever()
    thread.join()


def test_nothing_is_lost_and_each_sender_keeps_its_order(
    loop: Loop, run: Callable[..., Any]
) -> None:
    senders, messages = 8, 2000
    got: dict[int, list[int]] = {sender: [] for sender in range(senders)}

    def send(sender: int) -> None:
        for number in range(messages):
            loop.call_soon_threadsafe(got[sender].append, number)

    async def main() -> None:
        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
        for thread in threads:
            thread.start()
        await support.wait_until(lambda: not any(thread.is_alive() for thread in threads))
        await asyncio.sleep(0)

    run(main())
    assert got == {sender: list(range(messages)) for sender in range(senders)}


def test_ping_pong_between_threads_never_stalls(loop: Loop) -> None:
    rounds = 500
    done = threading.Event()
    turn = threading.Event()

    def thread_side() -> None:
        for _ in range(rounds):
            assert turn.wait(support.PATIENCE_SECONDS)
            turn.clear()
            loop.call_soon_threadsafe(turn_back)
        done.set()

    count = 0

    def turn_back() -> None:
        nonlocal count
        count += 1
        if count == rounds:
            loop.stop()
        turn.set()

    thread = threading.Thread(target=thread_side)
    thread.start()
    turn.set()
    loop.run_forever()
    thread.join()
    assert done.is_set()
    assert count == rounds


def test_own_thread_keeps_one_order(loop: Loop) -> None:
    ran: list[int] = []
    loop.call_soon_threadsafe(ran.append, 1)
    loop.call_soon(ran.append, 2)
    loop.call_soon_threadsafe(ran.append, 3)

    def inside() -> None:
        loop.call_soon_threadsafe(ran.append, 4)
        loop.call_soon(ran.append, 5)
        loop.call_soon_threadsafe(loop.stop)

    loop.call_soon(inside)
    loop.run_forever()
    assert ran == [1, 2, 3, 4, 5]


def test_context_is_the_callers(loop: Loop, run: Callable[..., Any]) -> None:
    variable = contextvars.ContextVar("variable", default="loop")
    seen: list[str] = []

    def send() -> None:
        variable.set("thread")
        loop.call_soon_threadsafe(lambda: seen.append(variable.get()))

    async def main() -> None:
        await asyncio.to_thread(contextvars.Context().run, send)
        await support.wait_until(lambda: seen)

    run(main())
    run(loop.shutdown_default_executor())
    assert seen == ["thread"]


def test_close_and_send_race_ends_in_delivery_or_error(loop_factory: LoopFactory) -> None:
    for _ in range(20):
        loop = loop_factory()
        started, refused = threading.Event(), threading.Event()

        def send(
            loop: Loop = loop,
            started: threading.Event = started,
            refused: threading.Event = refused,
        ) -> None:
            try:
                for _ in range(10_000_000):
                    loop.call_soon_threadsafe(int)
                    started.set()
            except RuntimeError as error:
                assert "closed" in str(error)
                refused.set()

        thread = threading.Thread(target=send)
        thread.start()
        started.wait(support.PATIENCE_SECONDS)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        thread.join(support.PATIENCE_SECONDS)
        assert refused.is_set()


def test_cancel_from_another_thread(loop: Loop, run: Callable[..., Any]) -> None:
    ran: list[int] = []

    def send() -> None:
        handle = loop.call_soon_threadsafe(ran.append, 1)
        handle.cancel()
        assert handle.cancelled()

    async def main() -> None:
        worker = threading.Thread(target=send)
        # The loop is busy until the worker is done, so the callback cannot have run.
        worker.start()
        worker.join()
        await asyncio.sleep(0.001)

    run(main())
    assert ran == []


def test_future_of_a_thread(loop: Loop, run: Callable[..., Any]) -> None:
    async def main() -> None:
        coroutine = asyncio.sleep(0.001, "result")
        worker = asyncio.to_thread(
            lambda: asyncio.run_coroutine_threadsafe(coroutine, loop).result(
                support.PATIENCE_SECONDS
            )
        )
        assert await worker == "result"

    run(main())
    run(loop.shutdown_default_executor())


def test_running_in_a_second_thread_is_refused(loop: Loop, run: Callable[..., Any]) -> None:
    def second() -> str:
        with pytest.raises(RuntimeError) as caught:
            loop.run_forever()
        return str(caught.value)

    async def main() -> None:
        assert "already running" in await asyncio.to_thread(second)

    run(main())
    run(loop.shutdown_default_executor())


def bounded_loop(loop_name: str, inbox_messages: int) -> Any:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio has no bound")
    factory: Any = support.loop_factory(loop_name)
    return factory(inbox_messages=inbox_messages)


def test_full_inbox_refuses_and_loses_nothing_accepted(loop_name: str) -> None:
    loop = bounded_loop(loop_name, 100)
    ran: list[int] = []
    accepted: list[int] = []
    errors: list[str] = []

    def send() -> None:
        for number in range(150):
            try:
                loop.call_soon_threadsafe(ran.append, number)
            except RuntimeError as error:
                errors.append(str(error))
            else:
                accepted.append(number)

    def block() -> None:
        # The loop takes nothing from the inbox while this callback runs.
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()

    loop.call_soon(block)
    loop.run_until_complete(asyncio.sleep(0.001))
    assert accepted == ran == list(range(100))
    assert len(errors) == 50
    for error in errors:
        assert "inbox is full (100 messages wait)" in error
        assert "wait for an acknowledgement" in error
    # There is room again.
    loop.run_until_complete(asyncio.to_thread(loop.call_soon_threadsafe, ran.append, 100))
    loop.run_until_complete(support.wait_until(lambda: ran[-1] == 100))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_senders_on_a_small_inbox_keep_their_order(loop_name: str) -> None:
    loop = bounded_loop(loop_name, 8)
    senders, messages = 4, 5000
    got: list[list[int]] = [[] for _ in range(senders)]
    accepted: list[list[int]] = [[] for _ in range(senders)]
    refused = 0

    def send(sender: int) -> None:
        nonlocal refused
        for number in range(messages):
            try:
                loop.call_soon_threadsafe(got[sender].append, number)
            except RuntimeError as error:
                assert "inbox is full" in str(error)
                refused += 1
            else:
                accepted[sender].append(number)

    def be_busy() -> None:
        time.sleep(0.001)  # so that the inbox fills up

    async def main() -> None:
        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            be_busy()
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert refused > 0
    assert got == accepted
    loop.close()


def test_the_loops_own_thread_is_not_bounded(loop_name: str) -> None:
    loop = bounded_loop(loop_name, 1)
    ran: list[int] = []

    async def main() -> None:
        for number in range(1000):
            loop.call_soon_threadsafe(ran.append, number)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    loop.close()
    assert ran == list(range(1000))


def test_full_inbox_accepts_results_for_the_loop_itself(loop_name: str) -> None:
    loop = bounded_loop(loop_name, 1)
    filled, looked_up = threading.Event(), threading.Event()

    def look_up(host: Any, *arguments: Any) -> Any:
        assert filled.wait(support.PATIENCE_SECONDS)
        looked_up.set()
        return [host]

    def fill() -> None:
        loop.call_soon_threadsafe(int)
        with pytest.raises(RuntimeError, match="inbox is full"):
            loop.call_soon_threadsafe(int)
        filled.set()

    def hold() -> None:
        thread = threading.Thread(target=fill)
        thread.start()
        thread.join()
        assert looked_up.wait(support.PATIENCE_SECONDS)
        # The loop takes nothing until the lookup has finished, so the inbox stays full.
        support.wait_until_blocking(lambda: loop._resolver._idle == 1, "the lookup's end")

    async def main() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", look_up)
            lookup = asyncio.ensure_future(loop.getaddrinfo("name.invalid", 80))
            await asyncio.sleep(0)
            loop.call_soon(hold)
            assert await support.within(lookup) == ["name.invalid"]

    loop.run_until_complete(main())
    loop.close()


def test_inbox_limit_follows_the_loop_to_another_thread(loop_name: str) -> None:
    loop = bounded_loop(loop_name, 2)
    loop.run_until_complete(asyncio.sleep(0.001))
    errors: list[str] = []

    def send() -> None:
        for _ in range(3):
            try:
                loop.call_soon_threadsafe(int)
            except RuntimeError as error:
                errors.append(str(error))

    async def main() -> None:
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()  # nothing is taken meanwhile

    runner = threading.Thread(target=loop.run_until_complete, args=(main(),))
    runner.start()
    runner.join()
    assert len(errors) == 1
    assert "2 messages wait" in errors[0]
    loop.close()


@pytest.mark.parametrize("bad", [0, -1, "many", 1.5])
def test_inbox_limit_is_a_count(loop_name: str, bad: Any) -> None:
    with pytest.raises(ValueError if isinstance(bad, int) else TypeError):
        bounded_loop(loop_name, bad)
