"""Random scripts of feeds and calls have the same results on a native reader as on asyncio's.

Every script runs on the standard library's `StreamReader` on its loop, and on ours on the loop under
test; after each step the loop runs until nothing more happens. What both have done is compared: results,
exceptions with their texts and attributes, what the transport was told. A failure prints the seed, which
`RINGLOOP_TEST_SEED` sets.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from asyncio import events, streams
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests import support

SEED = int(os.environ.get("RINGLOOP_TEST_SEED", str(random.SystemRandom().randrange(1 << 32))))
SCRIPTS = int(os.environ.get("RINGLOOP_TEST_SCRIPTS", "1500"))
Step = tuple[str, Any]

ALPHABET = b"ab\n;"
SEPARATORS: list[Any] = [b"\n", b";", b"ab", b"\n;", b"abab", b"a\n;b", b""]
if sys.version_info >= (3, 13):
    SEPARATORS += [(b"\n", b";"), (b"aba", b"b\n", b";"), (), (b"a", b"")]
# Arguments that are not plain: asyncio's own coroutine takes over.
ODD_SEPARATORS: list[Any] = [bytearray(b"\n"), memoryview(b";"), "text", 5, None]
if sys.version_info >= (3, 13):
    ODD_SEPARATORS.append((b"\n", bytearray(b";")))


class FakeTransport:
    """Records what it is told."""

    def __init__(self, can_pause: bool) -> None:
        self.told: list[str] = []
        self.can_pause = can_pause

    def pause_reading(self) -> None:
        if not self.can_pause:
            raise NotImplementedError
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")


@dataclass
class Run:
    """One reader, and what has happened to it."""

    reader: Any
    loop: asyncio.AbstractEventLoop
    transport: FakeTransport
    log: list[Any] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    seen: int = 0
    reads_all: bool = False

    def settle(self) -> None:
        """Run the loop until nothing more happens; note the results of the calls in their order."""

        async def idle() -> None:
            for _ in range(4):
                await asyncio.sleep(0)

        self.loop.run_until_complete(idle())
        while self.seen < len(self.tasks) and self.tasks[self.seen].done():
            self.log.append(outcome(self.tasks[self.seen]))
            self.seen += 1

    def play(self, step: Step, *, tells: bool) -> None:
        """Make one step."""
        name, argument = step
        if not self.may(name):
            return
        if name == "call":
            method, arguments = argument
            call = getattr(self.reader, method)(*arguments)
            self.tasks.append(self.loop.create_task(consumed(call)))
        elif name == "task":
            # Without a coroutine around it.
            method, arguments = argument
            self.tasks.append(self.loop.create_task(getattr(self.reader, method)(*arguments)))
        elif name == "cancel":
            if self.tasks:
                self.tasks[-1].cancel(*argument)
        else:
            try:
                self.log.append((name, getattr(self, "do_" + name)(argument)))
            except Exception as error:
                self.log.append((name, described(error)))
        self.settle()
        self.log.append(("at_eof", self.reader.at_eof()))
        if tells:
            self.log.append(("transport", tuple(self.transport.told), self.reader._paused))

    def may(self, name: str) -> bool:
        """Say whether a step is made.

        What a `read()` to the end has collected when it fails, asyncio loses and ours gives back
        (test_streams.py). So in a script with one, calls follow each other and all of them succeed.
        """
        if not self.reads_all or name not in {"call", "task", "cancel", "exception"}:
            return True
        return name in {"call", "task"} and all(task.done() for task in self.tasks)

    def do_feed(self, data: Any) -> None:
        self.reader.feed_data(data)

    def do_eof(self, _argument: Any) -> None:
        self.reader.feed_eof()

    def do_exception(self, error: Exception) -> Any:
        self.reader.set_exception(error)
        return self.reader.exception() is error

    def do_buffer(self, _argument: Any) -> bytes:
        return bytes(self.reader._buffer)

    def do_edit(self, data: bytes) -> bytes:
        buffer = self.reader._buffer
        del buffer[:2]
        buffer.extend(data)
        return bytes(buffer)

    def do_repr(self, _argument: Any) -> str:
        return repr(self.reader).partition(" transport=")[0].partition(" waiter=")[0]

    def finish(self) -> None:
        """End what still waits."""
        for task in self.tasks:
            task.cancel()
        self.settle()
        self.log.append(("left", self.reader._eof))

    def left(self) -> bytes:
        return bytes(self.reader._buffer)


async def consumed(call: Any) -> Any:
    return await call


def described(error: BaseException) -> tuple[Any, ...]:
    more = tuple(getattr(error, name, None) for name in ("partial", "expected", "consumed"))
    return (type(error), error.args, *more, type(error.__context__))


def outcome(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return "cancelled"
    if error := task.exception():
        return described(error)
    return (type(task.result()), task.result())


def some_bytes(chance: random.Random, length_max: int) -> bytes:
    return bytes(chance.choices(ALPHABET, k=chance.randrange(length_max)))


def call(chance: random.Random, size_max: int) -> tuple[str, tuple[Any, ...]]:
    """Return one method and its arguments."""
    size = chance.randrange(size_max)
    return chance.choices(
        [
            ("read", (size,)),
            ("read", ()),
            ("read", (-1,)),
            ("readexactly", (size,)),
            ("readexactly", (-size,)),
            ("readline", ()),
            ("readuntil", ()),
            ("readuntil", (chance.choice(SEPARATORS),)),
            ("readuntil", (chance.choice(ODD_SEPARATORS),)),
            ("read", (True,)),
            ("read", (None,)),
            ("__anext__", ()),
        ],
        weights=[6, 1, 1, 6, 1, 6, 2, 6, 1, 1, 1, 2],
    )[0]


def reads_all(steps: list[Step]) -> bool:
    """Say whether a script has a `read()` to the end."""
    calls = [argument for name, argument in steps if name in {"call", "task"}]
    return any(method == "read" and arguments in {(), (-1,)} for method, arguments in calls)


def script(chance: random.Random, size_max: int, *, exposes: bool) -> list[Step]:
    """Return the steps of one script."""
    steps: list[Step] = []
    for _ in range(chance.randrange(2, 20)):
        name = chance.choices(
            ["feed", "call", "task", "cancel", "eof", "exception", "buffer", "edit", "odd", "repr"],
            weights=[10, 10, 3, 3, 1, 0.4, 1.5 * exposes, 0.7 * exposes, 0.4, 0.5 * exposes],
        )[0]
        argument: Any = None
        if name in {"feed", "edit"}:
            argument = some_bytes(chance, size_max)
        elif name in {"call", "task"}:
            argument = call(chance, size_max)
        elif name == "cancel":
            argument = chance.choice([(), ("with a message",)])
        elif name == "exception":
            argument = chance.choice(
                [
                    ConnectionResetError("peer"),
                    asyncio.IncompleteReadError(b"partial", 7),
                    asyncio.LimitOverrunError("too long", 1),
                ]
            )
        elif name == "odd":
            name = "feed"
            argument = chance.choice(
                [bytearray(b"a\n"), memoryview(b"b;"), [97, 10], "text", 3, b""]
            )
        steps.append((name, argument))
    return steps


def play(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    reader_class: Any,
    steps: list[Step],
    limit: int,
    *,
    can_pause: bool,
    tells: bool,
) -> list[Any]:
    """Play a script on a reader; return what has happened."""
    loop = make_loop()
    try:
        reader = reader_class(limit=limit, loop=loop)
        transport = FakeTransport(can_pause)
        reader.set_transport(transport)
        run = Run(reader, loop, transport, reads_all=reads_all(steps))
        for step in steps:
            run.play(step, tells=tells)
        run.finish()
        if not reads_all(steps):
            run.log.append(run.left())
        return run.log
    finally:
        loop.close()


def difference(
    seed: str, limit: int, steps: list[Step], wanted: list[Any], found: list[Any]
) -> str:
    """Return what is to be seen of a failure."""
    pairs = itertools.zip_longest(wanted, found)
    at = next(number for number, (one, other) in enumerate(pairs) if one != other)
    lines = [f"RINGLOOP_TEST_SEED={SEED}: script {seed!r}, limit {limit}", *map(repr, steps)]
    lines += [f"at {at}, wanted: {wanted[at : at + 1]}", f"at {at}, found:  {found[at : at + 1]}"]
    return "\n".join(line[:300] for line in lines)


class Shared:
    """A loop for many scripts: closing it does nothing until the end."""

    def __init__(self, factory: support.LoopFactory) -> None:
        self.loop = factory()
        self.close, self.loop.close = self.loop.close, lambda: None  # type: ignore[method-assign]

    def __call__(self) -> asyncio.AbstractEventLoop:
        return self.loop


@pytest.fixture(params=["small", "exposed", "large"])
def sizes(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.timeout(300)
def test_scripts_have_the_results_of_asyncios_reader(
    loop_factory: support.LoopFactory, sizes: str
) -> None:
    oracle, tested = Shared(asyncio.SelectorEventLoop), Shared(loop_factory)
    count = SCRIPTS // 10 if sizes == "large" else SCRIPTS
    try:
        for number in range(count):
            seed = f"{SEED} {sizes} {number}"
            chance = random.Random(seed)
            size_max = 120_000 if sizes == "large" else 14
            limit = chance.choice([1, 2, 5, 20, 65_536] + [20_000] * (sizes == "large"))
            steps = script(chance, size_max, exposes=sizes == "exposed")
            # A result that is received straight into pauses nothing.
            options = {"can_pause": chance.random() < 0.95, "tells": sizes != "large"}
            wanted = play(oracle, streams.StreamReader, steps, limit, **options)
            found = play(tested, _native.StreamReader, steps, limit, **options)
            if found != wanted:
                pytest.fail(difference(seed, limit, steps, wanted, found))
    finally:
        for shared in (oracle, tested):
            shared.close()
    assert events._get_running_loop() is None
