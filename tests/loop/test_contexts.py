"""Contexts of callbacks: each has its own, whatever ran before it, and none is left entered."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.loop.test_scheduling import run_pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests import support

Loop = asyncio.AbstractEventLoop

VARIABLE = contextvars.ContextVar[str]("VARIABLE", default="unset")


def isolated(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a context of its own."""

    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        contextvars.copy_context().run(test, *args, **kwargs)

    return wrapper


@pytest.mark.parametrize("keep", [False, True])
def test_variable_of_a_callback_is_not_the_next_ones(loop: Loop, keep: bool) -> None:
    seen: list[str] = []
    handles: list[asyncio.Handle | None] = []

    def callback(number: int) -> None:
        seen.append(VARIABLE.get())
        if number % 3 == 0:
            VARIABLE.set(f"of {number}")

    for number in range(50):
        handle = loop.call_soon(callback, number)
        handles.append(handle if keep else None)
    run_pending(loop)
    assert seen == ["unset"] * 50
    assert VARIABLE.get() == "unset"


@isolated
def test_variable_set_by_a_destructor_is_not_seen(loop: Loop) -> None:
    seen: list[str] = []

    class Setting:
        def __del__(self) -> None:
            VARIABLE.set("of a destructor")

        def callback(self) -> None:
            seen.append(VARIABLE.get())

    async def main() -> None:
        for _ in range(20):
            loop.call_soon(Setting().callback)
        await asyncio.sleep(0)
        seen.append(VARIABLE.get())

    loop.run_until_complete(main())
    assert seen == ["unset"] * 21


def test_token_of_a_callback_is_not_the_next_ones(loop: Loop) -> None:
    tokens: list[contextvars.Token[str]] = []
    refused: list[str] = []

    def leave_nothing_but_a_token() -> None:
        first = VARIABLE.set("first")
        tokens.append(VARIABLE.set("second"))
        VARIABLE.reset(first)

    def use_it() -> None:
        try:
            VARIABLE.reset(tokens.pop())
        except ValueError as error:
            refused.append(str(error))

    for _ in range(10):
        loop.call_soon(leave_nothing_but_a_token)
        loop.call_soon(use_it)
    run_pending(loop)
    assert len(refused) == 10
    assert all("different Context" in error for error in refused)


def test_destructor_may_enter_the_context_of_its_callback(loop: Loop) -> None:
    context = contextvars.copy_context()
    ran: list[str] = []

    class Entering:
        def __del__(self) -> None:
            context.run(ran.append, "entered")

        def callback(self) -> None:
            ran.append("called")

    for _ in range(10):
        loop.call_soon(Entering().callback, context=context)
    run_pending(loop)
    assert ran == ["called", "entered"] * 10


def test_callbacks_with_and_without_variables_alternate(loop: Loop) -> None:
    seen: list[str] = []
    own = contextvars.copy_context()
    own.run(VARIABLE.set, "own")
    for number in range(40):
        context = (None, own, contextvars.copy_context())[number % 3]
        loop.call_soon(lambda: seen.append(VARIABLE.get()), context=context)
    run_pending(loop)
    assert seen == [["unset", "own", "unset"][number % 3] for number in range(40)]


def test_context_of_a_callback_is_free_for_the_next(loop: Loop) -> None:
    context = contextvars.copy_context()
    ran: list[str] = []

    def enter() -> None:
        context.run(ran.append, "entered")

    for _ in range(20):
        loop.call_soon(ran.append, "inside", context=context)
        loop.call_soon(enter)
    run_pending(loop)
    assert ran == ["inside", "entered"] * 20
    context.run(ran.append, "after")


def test_context_of_a_task_is_free_between_its_steps(loop: Loop, run: Callable[..., Any]) -> None:
    ran: list[str] = []

    async def stepping() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
            ran.append(VARIABLE.get())

    async def main() -> None:
        context = contextvars.copy_context()
        context.run(VARIABLE.set, "task")
        task = loop.create_task(stepping(), context=context)
        for _ in range(5):
            context.run(ran.append, "entered")
            await asyncio.sleep(0)
        await task
        context.run(ran.append, "entered")

    run(main())
    assert ran.count("task") == 10
    assert ran.count("entered") == 6


def test_handle_of_asyncios_own_enters_the_context_of_the_one_before(loop: Loop) -> None:
    context = contextvars.copy_context()
    context.run(VARIABLE.set, "own")
    seen: list[str] = []
    loop.call_soon(lambda: seen.append(VARIABLE.get()), context=context)
    own_class = asyncio.Handle(lambda: seen.append(VARIABLE.get()), (), loop, context)
    loop._add_callback(own_class)
    run_pending(loop)
    assert seen == ["own", "own"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Handle.get_context came with 3.12")
def test_error_is_handled_outside_of_what_the_next_runs_in(
    loop: Loop, loop_log: support.LoopLog
) -> None:
    contexts: list[contextvars.Context] = []
    ran: list[str] = []

    def handler(_: Loop, told: dict[str, Any]) -> None:
        context = told["handle"].get_context()
        contexts.append(context)
        ran.append(str(told["exception"]))

    def failing(number: int) -> None:
        VARIABLE.set(f"of {number}")
        raise ValueError(number)

    loop.set_exception_handler(handler)
    for number in range(10):
        loop.call_soon(failing, number)
        loop.call_soon(lambda: ran.append(VARIABLE.get()))
    run_pending(loop)
    assert ran == [text for number in range(10) for text in (str(number), "unset")]
    assert [context[VARIABLE] for context in contexts] == [f"of {n}" for n in range(10)]
    # None of them is entered any more.
    assert [context.run(VARIABLE.get) for context in contexts] == [f"of {n}" for n in range(10)]


def test_handle_in_use_gives_its_context(loop: Loop) -> None:
    contexts: list[contextvars.Context] = []

    def callback() -> None:
        VARIABLE.set("of the callback")
        contexts.append(handle.get_context())

    if not hasattr(asyncio.Handle, "get_context"):
        pytest.skip("handles have no get_context() before 3.12")
    handle = loop.call_soon(callback)
    run_pending(loop)
    assert handle.get_context() is contexts[0]
    assert contexts[0][VARIABLE] == "of the callback"


def test_handle_can_be_run_again(loop: Loop) -> None:
    ran: list[int] = []
    handle = loop.call_soon(ran.append, 1)
    run_pending(loop)
    handle._run()
    handle._run()
    assert ran == [1, 1, 1]
    assert handle._args == (1,)


def test_new_handles_remember_nothing_of_freed_ones(loop: Loop) -> None:
    ran: list[int] = []
    for number in range(300):
        cancelled = loop.call_soon(ran.append, -1)
        cancelled.cancel()
        del cancelled
        handle = loop.call_soon(ran.append, number)
        assert not handle.cancelled()
        assert "cancelled" not in repr(handle)
        timer = loop.call_later(3600.0, ran.append, -1)
        assert timer.when() > loop.time()
        timer.cancel()
        del handle, timer
        run_pending(loop)
    assert ran == list(range(300))


def test_calls_of_a_thread_before_an_error_left_the_loop_run_in_the_next_run(loop: Loop) -> None:
    ran: list[str] = []

    def from_another_thread() -> None:
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(ran.append, "sent"))
        thread.start()
        thread.join()
        raise KeyboardInterrupt

    loop.call_soon(from_another_thread)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert ran == ["sent"]


class Traced:
    """An object in place of a context: asyncio calls its `run`, whatever it is."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        self.ran.append(getattr(callback, "__name__", "step"))
        return callback(*args)


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_at", "call_soon_threadsafe"])
def test_other_context_runs_the_callback(loop: Loop, schedule: str) -> None:
    traced: Any = Traced()
    seen: list[int] = []

    def callback(*args: int) -> None:
        seen.extend(args)

    leading = (0,) if schedule in {"call_later", "call_at"} else ()
    for args in ((), (1,), (1, 2, 3, 4, 5)):
        getattr(loop, schedule)(*leading, callback, *args, context=traced)
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    assert traced.ran == ["callback"] * 3
    # Equal times have no order on asyncio.
    assert sorted(seen) == [1, 1, 2, 3, 4, 5]


def test_other_context_runs_the_steps_of_a_task(loop: Loop, run: Callable[..., Any]) -> None:
    traced: Any = Traced()

    async def inner() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return "done"

    async def main() -> None:
        task = loop.create_task(inner(), context=traced)
        assert await asyncio.wait_for(task, 10) == "done"
        future = loop.create_future()
        future.add_done_callback(done, context=traced)
        future.set_result(None)
        await asyncio.sleep(0)

    def done(_: object) -> None:
        """Called by `traced`."""

    run(main())
    assert len(traced.ran) == 4
    assert traced.ran[-1] == "done"


@pytest.mark.loop_errors
def test_what_is_no_context_is_the_callbacks_error(loop: Loop) -> None:
    errors: list[str] = []
    loop.set_exception_handler(
        lambda _loop, context: errors.append(type(context["exception"]).__name__)
    )
    wrong: Any = 5
    loop.call_soon(int, context=wrong)
    run_pending(loop)
    assert errors[0] in {"AttributeError", "TypeError"}
