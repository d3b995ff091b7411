"""Handles: true subclasses of asyncio's, with the same attributes, reprs and lifetime."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests.loop.test_scheduling import run_pending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests import support

Loop = asyncio.AbstractEventLoop


@pytest.fixture
def debug_loop(loop: Loop) -> Iterator[Loop]:
    loop.set_debug(True)
    yield loop
    loop.set_debug(False)


def test_handle_is_an_asyncio_handle(loop: Loop) -> None:
    handle = loop.call_soon(print)
    assert isinstance(handle, asyncio.Handle)
    assert not isinstance(handle, asyncio.TimerHandle)
    assert isinstance(loop.call_later(1, print), asyncio.TimerHandle)
    assert isinstance(loop.call_soon_threadsafe(print), asyncio.Handle)
    handle.cancel()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_arguments_come_back_as_given(loop: Loop, count: int) -> None:
    args = tuple(object() for _ in range(count))
    got: list[tuple[Any, ...]] = []

    def callback(*given: Any) -> None:
        got.append(given)

    handle = loop.call_soon(callback, *args)
    timer = loop.call_later(0, callback, *args)
    loop.call_later(0, loop.stop)
    assert handle._callback is timer._callback is callback  # type: ignore[attr-defined]
    assert handle._args == timer._args == args  # type: ignore[attr-defined]
    loop.run_forever()
    assert got == [args, args]
    assert handle._args == args  # type: ignore[attr-defined]


def test_cancelled_handle_releases_callback_and_arguments(loop: Loop) -> None:
    class Thing:
        def method(self, other: object) -> None:
            raise AssertionError

    for schedule in (loop.call_soon, lambda *args: loop.call_later(60, *args)):
        thing, argument = Thing(), Thing()
        gone = [weakref.ref(thing), weakref.ref(argument)]
        handle = schedule(thing.method, argument)
        assert not handle.cancelled()
        handle.cancel()
        handle.cancel()
        assert handle.cancelled()
        assert handle._callback is None
        assert handle._args is None
        del thing, argument
        gc.collect()
        assert [ref() for ref in gone] == [None, None]


def test_cancelled_handle_does_not_run(loop: Loop) -> None:
    ran: list[int] = []
    second = loop.call_later(0, ran.append, 2)
    loop.call_soon(second.cancel)
    first = loop.call_soon(ran.append, 1)
    first.cancel()
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert ran == []


def test_callback_may_cancel_its_own_handle(loop: Loop) -> None:
    seen: list[object] = []

    def callback(a: object, b: object) -> None:
        handle.cancel()
        gc.collect()
        seen.extend([a, b])

    marks = [object(), object()]
    handle = loop.call_soon(callback, marks[0], marks[1])
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == marks


def test_context_is_a_copy_or_the_one_given(loop: Loop) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    def callback() -> None:
        seen.append(variable.get())
        variable.set(variable.get() + 100)

    given = contextvars.Context()
    given.run(variable.set, 7)
    variable.set(1)
    copied = loop.call_soon(callback)
    variable.set(2)
    handle = loop.call_soon(callback, context=given)
    loop.call_soon(callback, context=given)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [1, 7, 107]
    assert variable.get() == 2
    assert given[variable] == 207
    assert handle._context is given  # type: ignore[attr-defined]
    if hasattr(handle, "get_context"):
        assert handle.get_context() is given
    assert copied._context[variable] == 101  # type: ignore[attr-defined]


@pytest.mark.loop_errors
def test_entered_context_is_an_error_of_the_callback(loop: Loop, loop_log: support.LoopLog) -> None:
    context = contextvars.copy_context()

    def inside() -> None:
        loop.call_soon(print, context=context)
        loop.call_soon(loop.stop)
        loop.run_forever()

    context.run(inside)
    (record,) = loop_log.records
    assert record.getMessage().startswith("Exception in callback print()")
    assert record.exc_info is not None
    assert "already entered" in str(record.exc_info[1])


def function(*args: object) -> None:
    """A function with a name and a line."""


def test_repr_is_asyncios(loop: Loop) -> None:
    other = asyncio.SelectorEventLoop()
    try:
        for mine, stock in (
            (loop.call_soon(function, 1), other.call_soon(function, 1)),
            (loop.call_at(5.5, function), other.call_at(5.5, function)),
        ):
            assert repr(mine) == repr(stock)
            mine.cancel()
            stock.cancel()
            assert repr(mine) == repr(stock)
    finally:
        other.close()


def test_debug_mode_keeps_the_source_traceback(debug_loop: Loop) -> None:
    for handle in (
        debug_loop.call_soon(function),
        debug_loop.call_later(1, function),
        debug_loop.call_at(1, function),
        debug_loop.call_soon_threadsafe(function),
    ):
        last = handle._source_traceback[-1]  # type: ignore[attr-defined]
        assert last.name == "test_debug_mode_keeps_the_source_traceback"
        assert "created at" in repr(handle)
        handle.cancel()
        assert "cancelled" in repr(handle)
        assert "function" in repr(handle)


def test_no_traceback_outside_of_debug_mode(loop: Loop) -> None:
    loop.set_debug(False)
    assert loop.call_soon(function)._source_traceback is None  # type: ignore[attr-defined]


def test_timers_order_hash_and_compare_by_time(loop: Loop) -> None:
    early, late = loop.call_at(1.5, function), loop.call_at(2.5, function)
    same = loop.call_at(1.5, function)
    assert early < late
    assert early <= same
    assert late > early
    assert late >= same
    assert early == same
    assert early != late
    assert hash(early) == hash(same) == hash(1.5)
    assert early.when() == 1.5
    assert math.isclose(loop.call_later(10, function).when(), loop.time() + 10, abs_tol=1)


def test_handle_can_be_referenced_weakly_and_is_collected_in_a_cycle(loop: Loop) -> None:
    class Owner:
        handle: asyncio.Handle

        def method(self) -> None:
            pass

    for delay in (None, 0, 30):
        owner = Owner()
        owner.handle = (
            loop.call_soon(owner.method) if delay is None else loop.call_later(delay, owner.method)
        )
        gone = weakref.ref(owner), weakref.ref(owner.handle)
        if delay == 30:
            owner.handle.cancel()
            loop.call_later(0.001, loop.stop)
        else:
            loop.call_later(0, loop.stop)
        del owner
        loop.run_forever()
        gc.collect()
        assert gone[0]() is None
        if delay != 30:
            assert gone[1]() is None


def test_failing_handle_is_reported_whole_after_a_weak_reference_has_led_to_it(
    loop: Loop,
) -> None:
    told: list[tuple[object, object]] = []
    weakly: list[weakref.ref[asyncio.Handle]] = []

    def failing(argument: object) -> None:
        handle = weakly.pop()()
        assert handle is not None
        assert handle.cancelled() is False
        raise ValueError(argument)

    def handler(_: Loop, context: dict[str, Any]) -> None:
        told.append((context["handle"]._callback, context["handle"]._args))

    loop.set_exception_handler(handler)
    for debug in (False, True):
        loop.set_debug(debug)
        weakly.append(weakref.ref(loop.call_soon(failing, "argument")))
        run_pending(loop)
    assert told == [(failing, ("argument",))] * 2


def test_handles_cannot_be_made_by_hand() -> None:
    ringloop = pytest.importorskip("ringloop")
    with pytest.raises(TypeError):
        ringloop._native.Handle(print, (), None)
    with pytest.raises(TypeError):
        object.__new__(ringloop._native.TimerHandle)


def test_long_chain_of_handles_is_freed_without_recursion(loop: Loop) -> None:
    handle: asyncio.Handle | None = None
    for _ in range(100_000):
        handle = loop.call_soon(function, handle)
    del handle
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_run_method_calls_the_callback(loop: Loop) -> None:
    ran: list[int] = []
    handle = loop.call_later(60, ran.append, 1)
    handle._run()
    assert ran == [1]
    handle.cancel()


@pytest.mark.parametrize("count", range(6))
def test_handle_cancelled_in_debug_mode_keeps_its_repr(
    loop: asyncio.AbstractEventLoop, count: int
) -> None:
    """The field that keeps the repr used to hold an argument; `remove_writer` failed in debug mode."""
    loop.set_debug(True)
    handle = loop.call_soon(print, *range(count))
    shown = ", ".join(map(str, range(count)))
    assert f"print({shown})" in repr(handle)
    handle.cancel()
    assert repr(handle).startswith("<Handle cancelled")
    assert f"print({shown})" in repr(handle)
