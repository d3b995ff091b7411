"""Awaitables of a connection: futures that wake their task directly."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.quic.support import both, dialled, served
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_a_waiter_is_a_future_to_asyncio(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            waiter: Any = stream._read_waiter()
            assert asyncio.isfuture(waiter)
            assert asyncio.ensure_future(waiter) is waiter
            assert waiter.get_loop() is asyncio.get_running_loop()
            with pytest.raises(asyncio.InvalidStateError):
                waiter.result()
            called: list[Any] = []
            context = contextvars.copy_context()
            context.run(_VALUE.set, "its own")
            waiter.add_done_callback(called.append)
            waiter.add_done_callback(lambda _: called.append(_VALUE.get()), context=context)
            waiter.add_done_callback(print)
            assert waiter.remove_done_callback(print) == 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiter), 0.001)
            await stream.send(b"x")
            await within((await within(server.accept_stream())).send(b"y"))
            assert await within(waiter) is None
            assert (waiter.done(), waiter.cancelled(), waiter.result()) == (True, False, None)
            assert not waiter.cancel()
            await asyncio.sleep(0)
            assert called == [waiter, "its own"]
            assert await stream.read(1) == b"y"

    run(main())


def test_longest_waiter_is_served_first(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            served: list[int] = []

            async def accept(number: int) -> None:
                await server.accept_stream()
                served.append(number)

            accepting = [asyncio.create_task(accept(number)) for number in range(6)]
            await asyncio.sleep(0)
            accepting[1].cancel()

            def has_served(count: int) -> Callable[[], bool]:
                return lambda: len(served) >= count

            for count in range(1, 6):
                await (await client.open_stream()).send(b"x")
                await wait_until(has_served(count))
            assert served == [0, 2, 3, 4, 5]
            await asyncio.wait(accepting)

    run(main())


def test_completed_awaitable_is_a_coroutine(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            readies: tuple[Any, ...] = (stream.drain(), stream.send(b"a"))
            for ready in readies:
                assert asyncio.iscoroutine(ready)
                assert type(ready).__name__ == "Ready"
                steps: Any = ready
                assert list(steps) == []
            assert await asyncio.create_task(stream.send(b"b")) is None
            assert await asyncio.wait_for(stream.send(b"c"), 1) is None
            both_drained: Any = await asyncio.gather(stream.drain(), stream.drain())
            assert list(both_drained) == [None, None]
            never = asyncio.create_task(stream.drain())
            never.cancel()
            with pytest.raises(asyncio.CancelledError):
                await never
            with pytest.raises(StopIteration):
                stream.drain().send(None)
            with pytest.raises(KeyError, match="thrown"):
                stream.drain().throw(KeyError("thrown"))
            with pytest.raises(KeyError, match="of its class"):
                stream.drain().throw(KeyError, "of its class")
            stream.drain().close()
            accepted = await within(server.accept_stream())
            assert await within(accepted.readexactly(3)) == b"abc"

    run(main())


def test_send_errors_are_raised_when_awaited(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            wrong: Any = "text"
            failed = await asyncio.gather(stream.send(wrong), return_exceptions=True)
            assert isinstance(failed[0], TypeError)
            await stream.send(b"x")
            client.close()
            await within(server.wait_closed())
            calls = (stream.send(b"y"), stream.drain())
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, quic.ConnectionClosed)

    run(main())


def test_callbacks_run_if_a_waiter_ends_during_removal(
    run: Run, certificates: Certificates
) -> None:
    class Ends:
        """A callback that ends the waiter when it is compared."""

        def __init__(self, waiter: Any) -> None:
            self.waiter = waiter

        def __eq__(self, other: object) -> bool:
            self.waiter.cancel()
            return False

        __hash__ = None  # type: ignore[assignment]

    async def main() -> None:
        async with both(certificates) as (client, _server):
            waiter: Any = (await client.open_stream())._read_waiter()
            called: list[Any] = []
            waiter.add_done_callback(called.append)
            assert waiter.remove_done_callback(Ends(waiter)) == 0
            await asyncio.sleep(0)
            assert called == [waiter]

    run(main())


def test_callbacks_keep_their_order_through_a_removal(run: Run, certificates: Certificates) -> None:
    """A callback that is added during the removal comes last."""

    class Adds:
        def __init__(self, waiter: Any, callback: Callable[..., Any]) -> None:
            self.waiter, self.callback = waiter, callback

        def __eq__(self, other: object) -> bool:
            if self.callback is not None:
                self.waiter.add_done_callback(self.callback)
                self.callback = None  # type: ignore[assignment]
            return other is print

        __hash__ = None  # type: ignore[assignment]

    async def main() -> None:
        async with both(certificates) as (client, _server):
            waiter: Any = (await client.open_stream())._read_waiter()
            called: list[int] = []
            for number in range(3):
                waiter.add_done_callback(lambda _, number=number: called.append(number))
                waiter.add_done_callback(print)
            assert waiter.remove_done_callback(Adds(waiter, lambda _: called.append(3))) == 3
            assert waiter.cancel()
            await asyncio.sleep(0)
            assert called == [0, 1, 2, 3]

    run(main())


def test_one_call_reads_or_gives_what_to_await(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            await stream.send(b"x")
            answering = await within(server.accept_stream())
            waiter: Any = stream._read(10)
            assert asyncio.isfuture(waiter)
            with pytest.raises(RuntimeError, match="another coroutine"):
                stream._read(10)
            await answering.send(b"yz")
            await within(waiter)
            assert stream._read(1) == b"y"
            answering.finish()
            data = b""
            while stream.is_readable:
                more = stream._read(10)
                if isinstance(more, bytes):
                    data += more
                else:
                    await within(more)
            assert (data, stream._read(10)) == (b"z", b"")

    run(main())


_VALUE = contextvars.ContextVar("_VALUE", default="nobody's")


def test_cancelled_waiter_keeps_its_message(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _server):
            stream = await client.open_stream()
            waiter = stream._read_waiter()
            assert waiter.cancel("enough")
            assert waiter.cancelled()
            with pytest.raises(asyncio.CancelledError, match="enough"):
                waiter.result()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            task = asyncio.ensure_future(stream.read(1))
            await asyncio.sleep(0)
            task.cancel("that too")
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_all_callbacks_of_a_cancelled_waiter_are_called(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the ones after a callback that the loop refuses."""

    async def main() -> None:
        async with both(certificates) as (client, _server):
            waiter: Any = (await client.open_stream())._read_waiter()
            called: list[Any] = []
            waiter.add_done_callback(print)
            waiter.add_done_callback(called.append)
            loop = asyncio.get_running_loop()
            call_soon = loop.call_soon

            def choosy(callback: Any, *args: Any, **keywords: Any) -> Any:
                if callback is print:
                    raise RuntimeError("not this one")
                return call_soon(callback, *args, **keywords)

            with monkeypatch.context() as patched:
                patched.setattr(loop, "call_soon", choosy)
                with pytest.raises(RuntimeError, match="not this one"):
                    waiter.cancel()
            await asyncio.sleep(0)
            assert (called, waiter.cancelled()) == ([waiter], True)

    run(main())


def test_a_task_keeps_its_context_and_name_when_it_is_woken(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            streams = [await client.open_stream() for _ in range(3)]

            async def read(number: int, stream: quic.Stream) -> tuple[str, str, bytes]:
                _VALUE.set(f"value {number}")
                data = await stream.read_to_end()
                task = asyncio.current_task()
                assert task is not None
                return _VALUE.get(), task.get_name(), data

            tasks = [
                asyncio.create_task(read(number, stream), name=f"task {number}")
                for number, stream in enumerate(streams)
            ]
            for stream in streams:
                await stream.send(b"x")
            for _ in streams:
                answering = await within(server.accept_stream())
                answering.write(b"answer %d" % (answering.id // 4))
                answering.finish()
            for number, task in enumerate(tasks):
                expected = f"value {number}", f"task {number}", b"answer %d" % number
                assert await within(task) == expected
            assert asyncio.current_task() is not None
            assert _VALUE.get() == "nobody's"

    run(main())


def test_task_that_polls_the_endpoint_is_not_interrupted(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            await stream.send(b"x")
            answering = await within(server.accept_stream())
            steps: list[str] = []

            async def read() -> None:
                steps.append((await answering.readexactly(6)).decode())

            task = asyncio.create_task(read())
            await asyncio.sleep(0)
            stream.write(b"later")
            client.endpoint._native.flush()
            server.endpoint._native.turn()
            steps.append("first")
            await within(task)
            assert steps == ["first", "xlater"]

    run(main())


def test_handler_starts_with_received_data(run: Run, certificates: Certificates) -> None:
    """A short request is answered in the iteration that received it."""

    async def main() -> None:
        async def answer(stream: quic.Stream) -> None:
            tasks.append(asyncio.current_task())
            stream.write(await stream.read_to_end())

        tasks: list[asyncio.Task[Any] | None] = []
        async with (
            served(certificates, stream_handler=answer) as server,
            dialled(certificates, server.address) as connection,
        ):
            for number in range(10):
                stream = await connection.open_stream()
                stream.write(b"%d" % number)
                stream.finish()
                assert await within(stream.read_to_end()) == b"%d" % number
            assert len(set(map(id, tasks))) == len(tasks) == 10
            assert None not in tasks
            if sys.version_info >= (3, 12):
                assert not server._tasks

    run(main())


def test_handlers_run_as_tasks_of_the_loops_factory(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        def make(
            loop: asyncio.AbstractEventLoop, coroutine: Any, **keywords: Any
        ) -> asyncio.Task[Any]:
            made.append(coroutine.__name__)
            return asyncio.Task(coroutine, loop=loop, **keywords)

        async def answer(stream: quic.Stream) -> None:
            stream.write(await stream.read_to_end())

        made: list[str] = []
        async with (
            served(certificates, stream_handler=answer) as server,
            dialled(certificates, server.address) as connection,
        ):
            asyncio.get_running_loop().set_task_factory(make)
            stream = await connection.open_stream()
            stream.write(b"x")
            stream.finish()
            assert await within(stream.read_to_end()) == b"x"
            asyncio.get_running_loop().set_task_factory(None)
            assert "_handle_stream" in made

    run(main())
