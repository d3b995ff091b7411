"""Random scripts have the same results on a native writer and protocol as on asyncio's.

As `test_differential.py`, with a transport that records what it is told: writes, flow control, the
end of the connection, `drain()` and `wait_closed()`, in any order, also of a connection that is lost.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import streams
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import _native
from tests.streams.test_differential import (
    SCRIPTS,
    SEED,
    Shared,
    Step,
    described,
    difference,
    outcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests import support

DATA: list[Any] = [b"", b"bytes", bytearray(b"array"), memoryview(b"view"), "text", None, 5]
ERRORS: list[Any] = [None, ConnectionResetError("peer"), OSError(5, "disk"), ValueError("other")]


class FakeTransport:
    """Records what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.closing = False

    def write(self, data: Any) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"no bytes: {data!r}")
        self.told.append(bytes(data))

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def can_write_eof(self) -> bool:
        return not self.closing

    def write_eof(self) -> None:
        self.told.append("eof")

    def close(self) -> None:
        self.told.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return "here" if name == "sockname" else default


@dataclass
class Run:
    """The streams of one connection, and what has happened to them."""

    loop: asyncio.AbstractEventLoop
    classes: Any
    log: list[Any] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    seen: int = 0

    def __post_init__(self) -> None:
        self.transport = FakeTransport()
        self.reader = self.classes.StreamReader(limit=8, loop=self.loop)
        self.protocol = self.classes.StreamReaderProtocol(self.reader, loop=self.loop)
        self.protocol.connection_made(self.transport)
        self.writer = self.classes.StreamWriter(
            self.transport, self.protocol, self.reader, self.loop
        )

    def settle(self) -> None:
        """Run the loop until nothing more happens; note the results in their order."""

        async def idle() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.loop.run_until_complete(idle())
        while self.seen < len(self.tasks) and self.tasks[self.seen].done():
            self.log.append(outcome(self.tasks[self.seen]))
            self.seen += 1

    def play(self, step: Step) -> None:
        """Make one step."""
        name, argument = step
        if name == "drain and write":
            # What a write changes before the call is awaited, `drain()` sees.
            self.start(self.writer.drain())
            self.attempt("write", lambda: self.writer.write(argument))
        elif name in {"drain", "wait_closed"}:
            self.start(getattr(self.writer, name)())
        elif name == "read":
            self.start(self.reader.read(argument))
        elif name == "cancel":
            for task in self.tasks[-1:]:
                task.cancel()
        elif name in {"write", "writelines", "get_extra_info"}:
            self.attempt(name, lambda: getattr(self.writer, name)(argument))
        elif name in {"data_received", "connection_lost"}:
            self.attempt(name, lambda: getattr(self.protocol, name)(argument))
        elif name in {"pause_writing", "resume_writing", "eof_received"}:
            self.attempt(name, getattr(self.protocol, name))
        else:
            self.attempt(name, getattr(self.writer, name))
        self.settle()
        self.log.append((list(self.transport.told), self.protocol._paused))

    def start(self, call: Any) -> None:
        self.tasks.append(self.loop.create_task(call))

    def attempt(self, name: str, call: Any) -> None:
        try:
            self.log.append((name, call()))
        except Exception as error:
            self.log.append((name, described(error)))

    def finish(self) -> None:
        """End what still waits."""
        for task in self.tasks:
            task.cancel()
        self.settle()
        self.transport.close()


def script(chance: random.Random) -> list[Step]:
    """Return the steps of one script."""
    arguments = {
        "write": lambda: chance.choice(DATA),
        "drain and write": lambda: chance.choice(DATA),
        "writelines": lambda: chance.choices(DATA, k=chance.randrange(3)),
        "get_extra_info": lambda: chance.choice(["sockname", "nothing"]),
        "data_received": lambda: b"x" * chance.randrange(1, 20),
        "connection_lost": lambda: chance.choice(ERRORS),
        "read": lambda: chance.randrange(1, 20),
    }
    weights = {
        "write": 6,
        "drain": 8,
        "drain and write": 2,
        "writelines": 2,
        "pause_writing": 3,
        "resume_writing": 3,
        "data_received": 3,
        "read": 2,
        "cancel": 2,
        "eof_received": 0.5,
        "connection_lost": 0.6,
        "close": 0.6,
        "write_eof": 0.5,
        "can_write_eof": 0.5,
        "is_closing": 1,
        "get_extra_info": 0.5,
        "wait_closed": 1,
    }
    names = chance.choices(list(weights), list(weights.values()), k=chance.randrange(2, 20))
    return [(name, arguments.get(name, lambda: None)()) for name in names]


def play(loop: asyncio.AbstractEventLoop, classes: Any, steps: list[Step]) -> list[Any]:
    """Play a script; return what has happened."""
    run = Run(loop, classes)
    for step in steps:
        run.play(step)
    run.finish()
    return run.log


@pytest.mark.timeout(300)
def test_scripts_have_the_results_of_asyncios_writer(loop_factory: support.LoopFactory) -> None:
    oracle, tested = Shared(asyncio.SelectorEventLoop), Shared(loop_factory)
    try:
        for number in range(SCRIPTS):
            seed = f"{SEED} writer {number}"
            steps = script(random.Random(seed))
            wanted = play(oracle.loop, streams, steps)
            found = play(tested.loop, _native, steps)
            if found != wanted:
                pytest.fail(difference(seed, 8, steps, wanted, found))
    finally:
        for shared in (oracle, tested):
            shared.close()
