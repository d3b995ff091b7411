"""Random scripts of file operations, run on the built-in `open` and on `ringloop.fs.open`.

Called by `test_differential`. A script is a list of method names with arguments; `tell` and `seek` of
text files pass on what the file itself has given.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringloop import fs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BINARY_MODES = ("rb", "rb+", "wb", "wb+", "ab", "ab+", "xb", "xb+")
TEXT_MODES = ("r", "r+", "w", "w+", "a", "a+", "x", "x+")
NEWLINES = (None, "", "\n", "\r", "\r\n")
ENCODINGS = (
    "utf-8",
    "latin-1",
    "utf-16",
    "utf-16-le",
    "utf-8-sig",
    "utf-32",
    "cp1252",
    "shift_jis",
)
TEXTS = (
    "",
    "a",
    "line\n",
    "\r",
    "\r\n",
    "x\ry",
    "é\n",
    "two\nlines\n",
    "b" * 5000,
    "wide é " * 700 + "\r\n",
)


@dataclass
class Script:
    """What is done to one file."""

    seed: int
    mode: str
    options: dict[str, Any]
    content: bytes | None
    steps: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)


def binary(seed: int) -> Script:
    """Make a script for a binary file."""
    chance = random.Random(seed)
    mode = chance.choice(BINARY_MODES)
    content = (
        None if mode.startswith("x") else _bytes(chance, chance.choice((0, 10, 3000, 200_000)))
    )
    buffering = chance.choice((-1, 0, 2, 64, 8192))
    script = Script(seed, mode, {"buffering": buffering}, content)
    for _ in range(chance.randrange(1, 25)):
        step = _binary_step(chance, raw=buffering == 0)
        if step[0] == "tell" and mode.startswith("a"):
            # Until then it is a guess where the kernel will append, and buffers differ in size.
            script.steps.append(("flush", ()))
        script.steps.append(step)
    return script


def _bytes(chance: random.Random, count: int) -> bytes:
    return bytes(chance.choice(b"abc\n\r") for _ in range(min(count, 4000))) * max(1, count // 4000)


def _binary_step(chance: random.Random, *, raw: bool) -> tuple[str, tuple[Any, ...]]:
    size = chance.choice((-1, 0, 1, 7, 100, 9000, 70_000))
    kinds: list[tuple[str, tuple[Any, ...]]] = [
        ("read", (size,)),
        ("readline", (chance.choice((-1, 1, 3, 1000)),)),
        ("next lines", (chance.choice((1, 2, 300)),)),
        ("readlines", (chance.choice((-1, 0, 50)),)),
        ("readinto", (bytearray(max(size, 0)),)),
        ("write", (_bytes(chance, chance.choice((0, 1, 20, 9000, 70_000, 600_000))),)),
        ("writelines", ([b"one\n", b"two"],)),
        ("seek", (chance.choice((0, 3, 5000, 250_000)), 0)),
        ("seek", (chance.choice((-3, 0, 2)), 1)),
        ("seek", (chance.choice((-3, 0, 2, -10_000_000)), 2)),
        ("seek", (-1, 0)),
        ("seek", (0, 99)),
        ("tell", ()),
        ("truncate", (chance.choice((None, 0, 5, 4096)),)),
        ("truncate", (-1,)),
        ("flush", ()),
        ("readable", ()),
        ("writable", ()),
        ("seekable", ()),
        ("isatty", ()),
    ]
    if raw:
        # Without a buffer the standard library has its own rules of what one call moves.
        kinds = [step for step in kinds if step[0] not in {"readinto", "seekable"}]
    return chance.choice(kinds)


def text(seed: int) -> Script:
    """Make a script for a text file; a position separates reading from writing."""
    chance = random.Random(seed)
    mode = chance.choice(TEXT_MODES)
    encoding = chance.choice(ENCODINGS)
    content = None
    if not mode.startswith("x"):
        pieces = (chance.choice(TEXTS) for _ in range(chance.choice((0, 3, 60))))
        content = "".join(pieces).encode(encoding, "ignore")
        if encoding == "utf-8" and chance.random() < 0.2:
            middle = chance.randrange(len(content) + 1)
            content = content[:middle] + b"\xff" + content[middle:]
    options = {
        "encoding": encoding,
        "errors": chance.choice((None, "strict", "replace")),
        "newline": chance.choice(NEWLINES),
        "buffering": chance.choice((-1, 1, 500)),
    }
    script = Script(seed, mode, options, content)
    writes = False
    for _ in range(chance.randrange(1, 20)):
        name, args = _text_step(chance)
        if name == "readlines" and mode in {"w", "a", "x"}:
            # Refused, it still disables `tell` there, as any iteration of `io.TextIOWrapper` does.
            name, args = "readline", ()
        is_write = name.startswith(("write", "truncate"))
        is_read = name.startswith(("read", "next")) and name != "readable"
        if (is_write or is_read) and is_write != writes:
            script.steps.append(("seek", chance.choice(((0, 0), (0, 2)))))
            writes = is_write
        script.steps.append((name, args))
    return script


def _text_step(chance: random.Random) -> tuple[str, tuple[Any, ...]]:
    return chance.choice(
        [
            ("read", (chance.choice((-1, 0, 1, 10, 3000, 40_000)),)),
            ("readline", (chance.choice((-1, 0, 3, 1000)),)),
            ("readline", ()),
            ("next lines", (chance.choice((1, 2, 300)),)),
            ("readlines", (chance.choice((-1, 0)),)),
            ("write", (chance.choice(TEXTS),)),
            ("writelines", (["one\n", "two"],)),
            ("tell", ()),
            ("seek", ("told",)),
            ("seek", (0, 0)),
            ("seek", (0, 2)),
            ("flush", ()),
            ("readable", ()),
            ("writable", ()),
            ("seekable", ()),
            ("newlines", ()),
            ("encoding", ()),
        ]
    )


Outcome = list[tuple[str, Any]]


async def run_ours(script: Script, path: Path) -> tuple[Outcome, bytes | None]:
    """Run a script on a file of `ringloop.fs`."""
    return await _run(script, path, fs.open)


def run_builtin(script: Script, path: Path) -> tuple[Outcome, bytes | None]:
    """Run a script on a file of the built-in `open`."""

    async def opened(*args: Any, **kwargs: Any) -> Any:
        return open(*args, **kwargs)  # noqa: ASYNC230 - it is what is compared with

    return asyncio.run(_run(script, path, opened))


async def _run(script: Script, path: Path, opener: Any) -> tuple[Outcome, bytes | None]:
    if script.content is not None:
        path.write_bytes(script.content)
    outcome: Outcome = []
    told = 0
    try:
        file = await opener(path, script.mode, **script.options)
    except Exception as error:
        return [("open", _shown(error))], _content(path)
    outcome.append(("mode", file.mode))
    for name, args in script.steps:
        given = tuple(told if arg == "told" else arg for arg in args)
        result = await _step(file, name, given)
        if name == "tell" and isinstance(result, int):
            told = result
        if name == "readinto":
            result = (result, bytes(args[0]))
        outcome.append((name, result))
    outcome.append(("close", await _step(file, "close", ())))
    outcome.append(("tell", await _step(file, "tell", ())))
    return outcome, _content(path)


async def _step(file: Any, name: str, args: tuple[Any, ...]) -> Any:
    try:
        if name == "next lines":
            return [line async for line in _next_lines(file, *args)]
        result = getattr(file, name)
        if callable(result):
            result = result(*args)
        return await result if inspect.isawaitable(result) else result
    except Exception as error:
        return _shown(error)


async def _next_lines(file: Any, count: int) -> AsyncIterator[Any]:
    """Iterate, and break off after some lines. `next` of `io` would disable `tell`."""
    if hasattr(file, "__anext__"):
        async for line in file:
            yield line
            count -= 1
            if not count:
                break
        return
    while count and (line := file.readline()):
        yield line
        count -= 1


def _shown(error: Exception) -> tuple[str, int | None]:
    # Methods that a one-way file of `io` lacks are refused by ours.
    name = "UnsupportedOperation" if isinstance(error, AttributeError) else type(error).__name__
    return name, getattr(error, "errno", None)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
