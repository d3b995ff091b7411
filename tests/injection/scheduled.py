"""Work without kernel objects: callbacks, timers, messages of threads, futures, tasks."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.run import Run


class Timers:
    """Each timer fires once, not early, and in order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.waiting: set[int] = set()
        self.handles: dict[int, asyncio.TimerHandle] = {}
        self.latest = 0.0
        now = run.loop.time()
        run.begin(self, "timers")
        for number in range(run.rng.choice((1, 20, 100))):
            when = now + run.rng.random() * 0.006
            self.waiting.add(number)
            self.handles[number] = run.loop.call_at(when, self.fire, number, when)

    def __repr__(self) -> str:
        return f"<timers {self.waiting}>"

    def fire(self, number: int, when: float) -> None:
        self.run.check(number in self.waiting, f"timer {number} again, or cancelled: {self}")
        resolution = self.run.loop._clock_resolution  # type: ignore[attr-defined]
        self.run.check(self.run.loop.time() + resolution >= when, f"timer {number} is early")
        # Deadlines have nanosecond resolution; equal ones fire in scheduling order.
        self.run.check(when >= self.latest - 2e-9, f"timer {number} is late: {self}")
        self.latest = max(when, self.latest)
        self.waiting.discard(number)
        if self.waiting and self.run.rng.random() < 0.1:
            cancelled = self.waiting.pop()
            self.handles[cancelled].cancel()
        if not self.waiting:
            self.run.finish(self)
        self.run.point()


class Callbacks:
    """Chains of `call_soon`, which must run in scheduling order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((10, 200, 1000))
        self.scheduled = self.called = 0
        run.begin(self, "callbacks")
        for _ in range(5):
            self.schedule()

    def __repr__(self) -> str:
        return f"<callbacks scheduled {self.scheduled} called {self.called} of {self.total}>"

    def schedule(self) -> None:
        if self.scheduled < self.total:
            self.scheduled += 1
            self.run.loop.call_soon(self.call, self.scheduled)

    def call(self, number: int) -> None:
        self.called += 1
        self.run.check(number == self.called, f"callback {number}: {self}")
        self.schedule()
        if self.called == self.total:
            self.run.finish(self)
        self.run.point()


class Messages:
    """`call_soon_threadsafe` of two threads, each in its order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((1, 50, 300))
        self.called = [0, 0]
        self.threads = [threading.Thread(target=self.send, args=(which,)) for which in (0, 1)]
        run.begin(self, "messages")
        for thread in self.threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<messages {self.called} of {self.total}>"

    def send(self, which: int) -> None:
        for number in range(self.total):
            self.run.loop.call_soon_threadsafe(self.call, which, number)

    def call(self, which: int, number: int) -> None:
        self.run.check(number == self.called[which], f"message {number} of {which}: {self}")
        self.called[which] += 1
        if self.called == [self.total, self.total]:
            for thread in self.threads:
                thread.join()
            self.run.finish(self)
        self.run.point()


class Futures:
    """Every callback of a future runs once; tasks pass a number along."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((1, 20, 60))
        self.futures = [run.loop.create_future() for _ in range(self.total)]
        self.called: dict[tuple[int, int], int] = {}
        self.handed = 0
        self.queue: asyncio.Queue[int] = asyncio.Queue(3)
        self.put, self.got = 0, 0
        self.left = 3
        run.begin(self, "futures")
        for number, future in enumerate(self.futures):
            for which in range(3):
                future.add_done_callback(partial(self.done, number, which))
        run.work(self.hand_on, self.ended)
        run.work(self.produce, self.ended)
        run.work(self.consume, self.ended)
        run.soon(self.resolve, 0)

    def __repr__(self) -> str:
        return f"<futures {self.handed} of {self.total} called {len(self.called)} {self.put} {self.got}>"

    def resolve(self, number: int) -> None:
        if number + 1 < self.total:
            self.run.soon(self.resolve, number + 1)
        self.futures[number].set_result(number)

    def done(self, number: int, which: int, future: asyncio.Future[int]) -> None:
        self.run.check((number, which) not in self.called, f"callback {which} of {number} again")
        self.called[number, which] = future.result()
        self.run.point()

    async def hand_on(self) -> None:
        while self.handed < self.total:
            # The waiter may be cancelled, the future must not.
            number = await asyncio.shield(self.futures[self.handed])
            self.run.check(number == self.handed, f"{number}: {self}")
            self.handed += 1
            self.run.point()
        while len(self.called) < 3 * self.total:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def produce(self) -> None:
        while self.put < self.total:
            await self.queue.put(self.put)
            self.put += 1
            self.run.point()

    async def consume(self) -> None:
        while self.got < self.total:
            number = await self.queue.get()
            self.run.check(number == self.got, f"{number} out of the queue: {self}")
            self.got += 1
            self.run.point()

    def ended(self) -> None:
        self.left -= 1
        if not self.left:
            self.run.finish(self)


PARTS: tuple[Callable[[Run], object], ...] = (Timers, Callbacks, Messages, Futures)
