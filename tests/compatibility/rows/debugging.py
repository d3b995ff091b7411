"""Debug mode."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import Group, logged

if TYPE_CHECKING:
    from tests.compatibility.registry import Probe

group = Group("Debug mode")


flag = group.row("get_debug, set_debug")


@flag
def is_kept(probe: Probe) -> None:
    loop = probe.factory()
    loop.set_debug(True)
    assert loop.get_debug() is True
    loop.set_debug(False)
    assert loop.get_debug() is False
    loop.close()


slow = group.row('"Executing <…> took … seconds"')


@slow
def is_logged(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        loop.slow_callback_duration = 0.01
        loop.call_soon(time.sleep, 0.02)
        await asyncio.sleep(0.001)

    with logged() as messages:
        probe.run(main)
    assert any("Executing" in text and "took" in text for text in messages), messages


checks = group.row("calls from the wrong thread and with coroutines are refused")


@checks
def wrong_thread(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        errors: list[str] = []

        def call() -> None:
            try:
                loop.call_soon(print)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert "Non-thread-safe operation" in errors[0]

    probe.run(main)


@checks
def coroutine(probe: Probe) -> None:
    async def nothing() -> None:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        refused: Any = nothing
        try:
            loop.call_soon(refused)
        except TypeError as error:
            assert "coroutines cannot be used" in str(error)
        else:
            raise AssertionError("call_soon() of a coroutine function")

    probe.run(main)


trace = group.row("handles know where they were created")


@trace
def source_traceback(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        contexts: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda loop, context: contexts.append(context))
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.005)
        frames = contexts[0]["source_traceback"]
        assert any("debugging.py" in frame.filename for frame in frames)

    probe.run(main)


origin = group.row("coroutines know where they were created")


@origin
def cr_origin(probe: Probe) -> None:
    async def nothing() -> None:
        pass

    loop = probe.factory()
    loop.set_debug(True)

    async def main() -> Any:
        made = nothing()
        origin = made.cr_origin
        await made
        return origin

    assert loop.run_until_complete(main())
    loop.close()


unclosed = group.row("unclosed loops and transports warn")


@unclosed
def loop_warns(probe: Probe) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loop = probe.factory()
        loop.run_until_complete(asyncio.sleep(0))
        del loop
        import gc

        gc.collect()
    assert any("unclosed event loop" in str(warning.message) for warning in seen)


@unclosed
def transport_warns(probe: Probe) -> None:
    import gc
    import socket

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            transport.pause_reading()
            await asyncio.sleep(0.01)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        probe.run(main)
        gc.collect()
    assert any("unclosed transport" in str(warning.message) for warning in seen)
