"""Callbacks, tasks, executors and exception handlers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import CALLBACKS_MAX, Group, logged

if TYPE_CHECKING:
    from tests.compatibility.registry import Probe

group = Group("Scheduling")

running = group.row("run_forever, run_until_complete, stop, is_running, is_closed, close")


@running
def runs_stops_and_closes(probe: Probe) -> None:
    loop = probe.factory()
    seen = []
    loop.call_soon(lambda: seen.append(loop.is_running()))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [True]
    assert not loop.is_running()

    async def answer() -> int:
        return 42

    assert loop.run_until_complete(answer()) == 42
    loop.close()
    assert loop.is_closed()


@running
def closed_loop_refuses(probe: Probe) -> None:
    loop = probe.factory()
    loop.close()
    try:
        loop.call_soon(print)
    except RuntimeError as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("call_soon() on a closed loop")


asyncgens = group.row("shutdown_asyncgens and its hooks")


@asyncgens
def generator_left_behind_is_closed(probe: Probe) -> None:
    closed = []

    async def generator() -> Any:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    kept = []

    async def main() -> None:
        kept.append(generator())
        await anext(kept[0])

    probe.run(main)
    assert closed == [True]


executor_end = group.row("shutdown_default_executor(timeout=)", since=(3, 12))


@executor_end
def takes_a_timeout(probe: Probe) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        await loop.run_in_executor(None, int)
        await loop.shutdown_default_executor(timeout=60)

    probe.run(main)


calls = group.row("call_soon, call_later, call_at, time")


@calls
def order_is_kept(probe: Probe) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        for number in range(5):
            loop.call_soon(seen.append, number)
        now = loop.time()
        for number in range(5, 8):
            loop.call_at(now + number / 1000, seen.append, number)
        loop.call_at(now + 0.004, seen.append, -1)
        done = loop.create_future()
        loop.call_at(now + 0.02, done.set_result, None)
        await done
        return seen

    assert probe.run(main) == [0, 1, 2, 3, 4, -1, 5, 6, 7]


@calls
def timers_are_never_early(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def note(fired: asyncio.Future[float]) -> None:
            fired.set_result(loop.time())

        for _ in range(20):
            when = loop.time() + 0.0013
            fired: asyncio.Future[float] = loop.create_future()
            loop.call_at(when, note, fired)
            assert await fired >= when

    probe.run(main)


@calls
def cancelled_handles_do_not_run(probe: Probe) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        loop.call_soon(seen.append, 1).cancel()
        loop.call_later(0, seen.append, 2).cancel()
        await asyncio.sleep(0.005)
        return seen

    assert probe.run(main) == []


@calls
def context_is_that_of_the_argument(probe: Probe) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    context = contextvars.Context()
    context.run(variable.set, 7)

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        loop.call_soon(lambda: seen.append(variable.get()), context=context)
        loop.call_later(0, lambda: seen.append(variable.get()), context=context)
        await asyncio.sleep(0.005)
        return seen

    assert probe.run(main) == [7, 7]


threadsafe = group.row("call_soon_threadsafe, in the caller's context")


@threadsafe
def wakes_a_waiting_loop(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(done.set_result, None))
        thread.start()
        await done
        thread.join()

    probe.run(main)


@threadsafe
def carries_the_context(probe: Probe) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def main() -> int:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def call() -> None:
            variable.set(5)
            loop.call_soon_threadsafe(lambda: done.set_result(variable.get()))

        await asyncio.to_thread(call)
        return int(await done)

    assert probe.run(main) == 5


tasks = group.row("create_future, create_task(name, context)")


@tasks
def name_and_context_reach_the_task(probe: Probe) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    context = contextvars.Context()
    context.run(variable.set, 9)

    async def read() -> int:
        return variable.get()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(read(), name="reader", context=context)
        assert task.get_name() == "reader"
        assert await task == 9
        assert isinstance(loop.create_future(), asyncio.Future)
        assert isinstance(task, asyncio.Task)

    probe.run(main)


eager = group.row("create_task(eager_start=)", since=(3, 14))


@eager
def starts_at_once(probe: Probe) -> None:
    seen = []

    async def note() -> None:
        seen.append(1)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        task = loop.create_task(note(), eager_start=True)
        assert seen == [1]
        await task

    probe.run(main)


factories = group.row("task factories, eager_task_factory", since=(3, 12))


@factories
def eager_factory(probe: Probe) -> None:
    seen = []

    async def note() -> None:
        seen.append(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        task = loop.create_task(note())
        assert seen == [1]
        assert task.done()
        assert loop.get_task_factory() is asyncio.eager_task_factory

    probe.run(main)


@factories
def factory_of_the_user(probe: Probe) -> None:
    async def nothing() -> None:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        made = []

        def factory(loop: Any, coro: Any, **keywords: Any) -> Any:
            made.append(asyncio.Task(coro, loop=loop, **keywords))
            return made[-1]

        loop.set_task_factory(factory)
        task = loop.create_task(nothing(), name="named")
        assert made == [task]
        assert task.get_name() == "named"
        await task

    probe.run(main)


executors = group.row("run_in_executor, set_default_executor")


@executors
def default_and_own(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, abs, -3) == 3
        with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="own") as pool:
            loop.set_default_executor(pool)
            name = await loop.run_in_executor(None, lambda: threading.current_thread().name)
            assert name.startswith("own")

    probe.run(main)


names = group.row("getaddrinfo, getnameinfo")


@names
def numeric_and_named(probe: Probe) -> None:
    import socket

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for host in ("127.0.0.1", "::1", "localhost"):
            expected = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
            found = await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
            assert sorted(found) == sorted(expected), host
        assert await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST)

    probe.run(main)


@names
def zone_of_an_address_is_kept(probe: Probe) -> None:
    import socket

    async def main() -> None:
        found = await asyncio.get_running_loop().getaddrinfo(
            "fe80::1%lo", 80, type=socket.SOCK_STREAM
        )
        assert found == socket.getaddrinfo("fe80::1%lo", 80, type=socket.SOCK_STREAM)

    probe.run(main)


exceptions = group.row("exception handlers: set, get, default, call")


@exceptions
def handler_gets_loop_and_context(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[Any] = []
        loop.set_exception_handler(lambda *arguments: seen.append(arguments))
        assert loop.get_exception_handler() is not None
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.005)
        assert seen[0][0] is loop
        assert isinstance(seen[0][1]["exception"], ZeroDivisionError)
        loop.call_exception_handler({"message": "by hand"})
        assert seen[1][1]["message"] == "by hand"
        loop.set_exception_handler(None)
        loop.default_exception_handler({"message": "by default"})

    with logged() as messages:
        probe.run(main)
    assert messages == ["by default"]


fairness = group.row("I/O and timers are served while callbacks schedule callbacks")


@fairness
def timer_fires_in_time(probe: Probe) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        due = loop.time() + 0.02
        late = 0
        loop.call_at(due, fired.set_result, None)

        def again() -> None:
            nonlocal late
            late += loop.time() > due
            if not fired.done() and late < CALLBACKS_MAX:
                loop.call_soon(again)

        again()
        await fired
        return late

    assert probe.run(main) < CALLBACKS_MAX


@fairness
def socket_is_read(probe: Probe) -> None:
    import socket

    async def main() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            came = loop.create_future()
            since = 0

            def readable() -> None:
                loop.remove_reader(left)
                came.set_result(None)

            def again() -> None:
                nonlocal since
                since += 1
                if not came.done() and since < CALLBACKS_MAX:
                    loop.call_soon(again)

            loop.add_reader(left, readable)
            again()
            right.send(b"x")
            await came
            assert since < CALLBACKS_MAX

    probe.run(main)
