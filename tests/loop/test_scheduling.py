"""call_soon and the iteration: order, contexts, errors, stopping, tasks, debug mode."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import logging
import os
import re
import sys
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.support import LoopFactory

Loop = asyncio.AbstractEventLoop


def run_pending(loop: Loop) -> None:
    """Run exactly one iteration."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_callbacks_run_in_order_and_once(loop: Loop) -> None:
    ran: list[int] = []
    for number in range(10_000):
        loop.call_soon(ran.append, number)
    run_pending(loop)
    run_pending(loop)
    assert ran == list(range(10_000))


def test_callbacks_of_callbacks_run_in_the_next_iteration(loop: Loop) -> None:
    ran: list[str] = []

    def outer() -> None:
        ran.append("outer")
        loop.call_soon(ran.append, "inner")

    loop.call_soon(outer)
    loop.call_soon(ran.append, "second")
    run_pending(loop)
    assert ran == ["outer", "second"]
    run_pending(loop)
    assert ran == ["outer", "second", "inner"]


def test_stop_lets_the_iteration_finish(loop: Loop) -> None:
    ran: list[str] = []
    loop.call_soon(loop.stop)
    loop.call_soon(ran.append, "after stop")
    loop.call_soon(lambda: loop.call_soon(ran.append, "next pass"))
    loop.run_forever()
    assert ran == ["after stop"]
    run_pending(loop)
    assert ran == ["after stop", "next pass"]


def test_stop_before_run_runs_one_iteration_with_io(loop: Loop) -> None:
    reader, writer = os.pipe()
    ran: list[str] = []
    try:
        loop.add_reader(reader, ran.append, "readable")
        os.write(writer, b"x")
        loop.call_soon(ran.append, "ready")
        loop.stop()
        loop.run_forever()
        assert sorted(ran) == ["readable", "ready"]
        loop.remove_reader(reader)
    finally:
        os.close(reader)
        os.close(writer)


def test_io_is_polled_between_the_links_of_a_chain(loop: Loop) -> None:
    reader, writer = os.pipe()
    links = 0
    stop = False

    def link() -> None:
        nonlocal links
        links += 1
        if not stop and links < 1_000_000:
            loop.call_soon(link)

    try:
        loop.add_reader(reader, loop.stop)
        loop.call_soon(link)
        os.write(writer, b"x")
        loop.run_forever()
        assert links < 1_000_000, "a ready chain starved I/O"
        loop.remove_reader(reader)
        stop = True
        run_pending(loop)
    finally:
        os.close(reader)
        os.close(writer)


def test_due_timer_interrupts_a_chain(loop: Loop) -> None:
    stop = False
    links_late = 0
    due = loop.time() + 0.02

    def link() -> None:
        nonlocal links_late
        links_late += loop.time() > due
        if not stop and links_late < 1_000_000:
            loop.call_soon(link)

    loop.call_soon(link)
    loop.call_at(due, loop.stop)
    loop.run_forever()
    assert loop.time() >= due
    # Counted and not timed: the machine may suspend the thread at any moment.
    assert links_late < 1000, "a ready chain starved a timer"
    stop = True
    run_pending(loop)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exception_that_leaves_the_loop_keeps_the_rest_of_the_batch(
    loop: Loop, error: type[BaseException]
) -> None:
    ran: list[int] = []

    def leave() -> None:
        raise error

    loop.call_soon(ran.append, 1)
    loop.call_soon(leave)
    loop.call_soon(ran.append, 2)
    with pytest.raises(error):
        loop.run_forever()
    assert ran == [1]
    assert not loop.is_running()
    run_pending(loop)
    assert ran == [1, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exception_of_a_task_that_leaves_the_loop(loop: Loop, error: type[BaseException]) -> None:
    async def leave() -> None:
        raise error

    with pytest.raises(error):
        loop.run_until_complete(leave())
    assert loop.run_until_complete(asyncio.sleep(0, 5)) == 5


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_error_of_a_callback_goes_to_the_handler(loop: Loop, schedule: str) -> None:
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: contexts.append(context))
    args = (0,) if schedule == "call_later" else ()

    def broken() -> None:
        raise ValueError("boom")

    handle = getattr(loop, schedule)(*args, broken)
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    (context,) = contexts
    assert set(context) == {"message", "exception", "handle"}
    assert context["handle"] is handle
    assert repr(context["exception"]) == "ValueError('boom')"
    assert context["exception"].__traceback__.tb_frame is not None
    assert context["message"].startswith("Exception in callback test_error_of_a_callback")
    assert f"{__file__}:" in context["message"]


@pytest.mark.loop_errors
def test_error_is_logged_as_by_asyncio(loop: Loop, loop_log: support.LoopLog) -> None:
    loop.call_soon(functools.partial(int, "no number"))
    run_pending(loop)
    (line,) = loop_log.take()
    assert line.startswith("Exception in callback int(")
    assert "\nhandle: <Handle int(" in line


def test_error_in_debug_mode_has_the_source_traceback(loop: Loop) -> None:
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: contexts.append(context))
    loop.set_debug(True)
    loop.call_soon(lambda: 1 / 0)
    run_pending(loop)
    loop.set_debug(False)
    name = contexts[0]["source_traceback"][-1].name
    assert name == "test_error_in_debug_mode_has_the_source_traceback"


def test_uncallable_callback_is_the_callbacks_error(loop: Loop) -> None:
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: contexts.append(context))
    loop.call_soon(None)  # type: ignore[arg-type]
    run_pending(loop)
    assert isinstance(contexts[0]["exception"], TypeError)


def test_signatures_are_asyncios(loop: Loop) -> None:
    ran: list[int] = []
    loop.call_soon(callback=functools.partial(ran.append, 1))  # type: ignore[call-arg]
    loop.call_later(delay=0, callback=functools.partial(ran.append, 2))  # type: ignore[call-arg]
    loop.call_at(0, callback=functools.partial(ran.append, 3))  # type: ignore[call-arg]
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert sorted(ran) == [1, 2, 3]
    for bad in (
        lambda: loop.call_soon(),  # type: ignore[call-arg]
        lambda: loop.call_later(1),  # type: ignore[call-arg]
        lambda: loop.call_at(when=1),  # type: ignore[call-arg]
        lambda: loop.call_soon(print, wrong=1),  # type: ignore[call-arg]
        lambda: loop.call_later(None, print),  # type: ignore[arg-type]
        lambda: loop.call_at(None, print),  # type: ignore[arg-type]
        lambda: loop.call_later("soon", print),  # type: ignore[arg-type]
        lambda: loop.time(1),  # type: ignore[call-arg]
        lambda: loop.create_future(1),  # type: ignore[call-arg]
        lambda: loop.create_task(),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            bad()


def test_closed_loop_refuses(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.call_soon(print)
    loop.call_later(1, print)
    loop.close()
    loop.close()
    assert loop.is_closed()
    assert not loop.is_running()
    coroutine = asyncio.sleep(0)
    for use in (
        lambda: loop.call_soon(print),
        lambda: loop.call_later(1, print),
        lambda: loop.call_at(1, print),
        lambda: loop.call_soon_threadsafe(print),
        lambda: loop.create_task(coroutine),
        lambda: loop.add_reader(0, print),
        lambda: loop.run_in_executor(None, print),
        loop.run_forever,
        lambda: loop.run_until_complete(coroutine),
    ):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            use()
    coroutine.close()
    assert "closed=True" in repr(loop)


def skip_where_313_forgets(loop_name: str) -> None:
    if loop_name == "asyncio" and sys.version_info[:2] == (3, 13):
        pytest.skip(
            "the first releases of 3.13 forget the running loop when a second run is refused"
        )


def test_running_loop_cannot_be_run_or_closed(
    loop_name: str, loop: Loop, run: Callable[..., Any]
) -> None:
    skip_where_313_forgets(loop_name)

    async def main() -> None:
        assert loop.is_running()
        assert asyncio.get_running_loop() is loop
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            loop.close()

    run(main())
    assert not loop.is_running()


def test_second_loop_cannot_run_inside_of_the_first(
    loop_name: str, loop: Loop, loop_factory: LoopFactory, run: Callable[..., Any]
) -> None:
    skip_where_313_forgets(loop_name)

    async def main() -> None:
        other = loop_factory()
        with pytest.raises(RuntimeError, match="while another loop is running"):
            other.run_forever()
        other.close()
        assert asyncio.get_running_loop() is loop

    run(main())


def test_unclosed_loop_warns(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.call_later(60, print, loop)
    loop.call_soon(print, loop)
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop
        gc.collect()


def test_closed_loop_in_a_cycle_is_collected(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.set_task_factory(
        lambda *args, **kwargs: asyncio.Task(args[1], loop=loop, **kwargs)  # noqa: F821 - until `del`
    )
    loop.call_later(60, loop.stop)
    loop.myself = loop  # type: ignore[attr-defined]
    gone = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None


def test_run_in_one_thread_after_another(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    results: list[str] = []

    async def main() -> str:
        reader, writer = os.pipe()
        future = loop.create_future()
        loop.add_reader(reader, lambda: future.done() or future.set_result("ran"))
        os.write(writer, b"x")
        try:
            return await support.within(future)
        finally:
            loop.remove_reader(reader)
            os.close(reader)
            os.close(writer)

    def run() -> None:
        results.append(loop.run_until_complete(main()))

    run()
    for _ in range(3):
        loop.call_soon_threadsafe(results.append, "message")
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    loop.close()
    assert results == ["ran", *["message", "ran"] * 3]


def test_tasks_and_futures_are_asyncios_own(run: Callable[..., Any], loop: Loop) -> None:
    async def nothing() -> None:
        pass

    async def main() -> None:
        future = loop.create_future()
        assert type(future) is asyncio.Future
        assert future.get_loop() is loop
        task = loop.create_task(nothing(), name="named")
        assert type(task) is asyncio.Task
        assert task.get_name() == "named"
        assert task.get_loop() is loop
        await task
        await loop.create_task(nothing())
        await loop.create_task(nothing(), context=contextvars.copy_context())

    run(main())
    future = loop.create_future()
    assert future.get_loop() is loop
    task = loop.create_task(nothing())
    assert task.get_loop() is loop
    run(task)


def test_task_factory_is_used(loop: Loop, run: Callable[..., Any]) -> None:
    made: list[Any] = []

    def factory(
        loop: Loop, coroutine: Generator[Any, None, int], **kwargs: Any
    ) -> asyncio.Task[int]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **kwargs)

    assert loop.get_task_factory() is None
    loop.set_task_factory(factory)  # type: ignore[arg-type]
    assert loop.get_task_factory() is factory
    assert run(asyncio.sleep(0, 1)) == 1
    assert len(made) == 1
    loop.set_task_factory(None)
    assert run(asyncio.sleep(0, 1)) == 1
    assert len(made) == 1
    with pytest.raises(TypeError):
        loop.set_task_factory(1)  # type: ignore[arg-type]


def test_task_steps_run_in_their_context(run: Callable[..., Any]) -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def child(number: int) -> int:
        variable.set(number)
        for _ in range(3):
            await asyncio.sleep(0)
            assert variable.get() == number
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future
        return variable.get()

    async def main() -> None:
        assert await asyncio.gather(*map(child, range(50))) == list(range(50))
        assert variable.get() == 0

    run(main())


def test_subclass_that_overrides_call_soon_sees_task_steps() -> None:
    ringloop = pytest.importorskip("ringloop")

    class Watching(ringloop.Loop):  # type: ignore[misc]
        calls = 0

        def call_soon(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
            self.calls += 1
            handle = super().call_soon(*args, **kwargs)
            assert isinstance(handle, asyncio.Handle)
            return handle

    loop = Watching()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert loop.calls >= 2


def test_asyncgens_are_closed(loop: Loop, run: Callable[..., Any]) -> None:
    closed: list[str] = []

    async def generator() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def main() -> Any:
        iterator = generator()
        await anext(iterator)
        return iterator

    iterator = run(main())
    run(loop.shutdown_asyncgens())
    assert closed == ["closed"]
    del iterator
    assert sys.get_asyncgen_hooks() == (None, None)


def test_executor_returns_and_shuts_down(loop: Loop, run: Callable[..., Any]) -> None:
    async def main() -> int:
        return sum(await asyncio.gather(*[loop.run_in_executor(None, pow, 2, n) for n in range(8)]))

    assert run(main()) == 255
    run(loop.shutdown_default_executor())


def test_debug_mode_checks_thread_and_callback(loop: Loop, run: Callable[..., Any]) -> None:
    loop.set_debug(True)

    async def coroutine() -> None:
        pass

    def from_another_thread() -> list[BaseException]:
        errors: list[BaseException] = []
        for use in (
            lambda: loop.call_soon(print),
            lambda: loop.call_later(1, print),
            lambda: loop.call_at(1, print),
        ):
            try:
                use()
            except RuntimeError as error:
                errors.append(error)
        return errors

    callbacks: list[Any] = [coroutine, None]

    async def main() -> None:
        errors = await asyncio.to_thread(from_another_thread)
        assert [str(error)[:25] for error in errors] == ["Non-thread-safe operation"] * 3
        for callback in callbacks:
            for use in (
                loop.call_soon,
                lambda cb: loop.call_later(1, cb),
                loop.call_soon_threadsafe,
            ):
                with pytest.raises(TypeError):
                    use(callback)

    run(main())
    run(loop.shutdown_default_executor())
    loop.set_debug(False)


@pytest.mark.parametrize("kind", ["callback", "timer", "task"])
def test_slow_callback_is_logged(
    loop: Loop, run: Callable[..., Any], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 0.005

    def slow() -> None:
        time.sleep(0.01)

    async def slow_task() -> None:
        slow()

    with caplog.at_level(logging.WARNING, "asyncio"):
        if kind == "task":
            run(slow_task())
        else:
            (loop.call_soon if kind == "callback" else functools.partial(loop.call_later, 0))(slow)
            loop.call_later(0.001, loop.stop)
            loop.run_forever()
    loop.set_debug(False)
    # On a busy machine others may be slow too.
    name = "slow_task()" if kind == "task" else "slow()"
    (message,) = [said for record in caplog.records if name in (said := record.getMessage())]
    assert re.fullmatch(r"Executing <.*> took \d+\.\d{3} seconds", message), message


def test_attributes_that_libraries_read(loop: Loop, run: Callable[..., Any]) -> None:
    base: Any = loop
    assert base._closed is False
    assert base._debug is loop.get_debug()
    assert base._thread_id is None
    assert base._exception_handler is None
    assert base._task_factory is None
    assert base._default_executor is None
    assert len(base._asyncgens) == 0

    async def main() -> None:
        assert base._thread_id == threading.get_ident()
        assert not base._stopping

    run(main())


def test_handle_of_asyncios_own_class_can_be_queued(loop: Loop) -> None:
    base: Any = loop
    ran: list[int] = []
    base._add_callback(asyncio.Handle(ran.append, (1,), loop, None))
    cancelled = asyncio.Handle(ran.append, (2,), loop, None)
    base._add_callback(cancelled)
    cancelled.cancel()
    run_pending(loop)
    assert ran == [1]


def test_child_of_a_fork_leaves_the_parents_loop_alone(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.run_until_complete(asyncio.sleep(0.001))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            loop.close()
            del loop
            gc.collect()
            own = loop_factory()
            status = own.run_until_complete(asyncio.sleep(0.001, 42))
            own.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    assert loop.run_until_complete(asyncio.sleep(0.001, 5)) == 5
    loop.close()


def test_unknown_driver_is_refused_without_a_warning() -> None:
    ringloop = pytest.importorskip("ringloop")
    with pytest.raises(ValueError, match="uring"):
        ringloop.Loop(driver="kqueue")
    gc.collect()


def test_run_and_policy() -> None:
    ringloop = pytest.importorskip("ringloop")

    async def main() -> type:
        return type(asyncio.get_running_loop())

    assert ringloop.run(main()) is ringloop.Loop
    assert ringloop.run(main(), driver="epoll") is ringloop.Loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        ringloop.install()
        try:
            assert asyncio.run(main()) is ringloop.Loop
        finally:
            asyncio.set_event_loop_policy(None)
