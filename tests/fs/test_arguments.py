"""Odd arguments give what they give `io`'s files: results or kinds of errors, and positions."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

CONTENT = b"".join(b"line %d\n" % number for number in range(30))


class Index:
    """An integer by `__index__` only."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


class Integer:
    """An integer by `__int__` only: no file takes it."""

    def __int__(self) -> int:
        return 3


# A label and a value that is made anew for each call.
ODD: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "minus 1": lambda: -1,
    "minus 5": lambda: -5,
    "zero": lambda: 0,
    "large": lambda: 1 << 40,
    "64 bits": lambda: 1 << 63,
    "huge": lambda: 1 << 70,
    "minus huge": lambda: -(1 << 70),
    "float": lambda: 2.0,
    "str": lambda: "a",
    "bytes": lambda: b"ab",
    "bytearray": lambda: bytearray(b"abc"),
    "read-only view": lambda: memoryview(b"ab"),
    "view with steps": lambda: memoryview(bytearray(b"abcdef"))[::2],
    "view of other items": lambda: memoryview(bytearray(8)).cast("I"),
    "list": lambda: [b"x"],
    "list of text": lambda: ["x"],
    "list of numbers": lambda: [1],
    "index 4": lambda: Index(4),
    "index minus 2": lambda: Index(-2),
    "integer": Integer,
    "object": object,
}
BINARY = ("read", "read1", "readline", "readlines", "readinto", "readinto1", "peek")
CASES = [
    *(("rb", name) for name in (*BINARY, "seek")),
    *(("rb+", name) for name in (*BINARY, "seek", "truncate", "write", "writelines")),
    *(("wb", name) for name in ("seek", "truncate", "write", "writelines")),
    *(("r", name) for name in ("read", "readline", "readlines", "seek")),
    *(("r+", name) for name in ("read", "readline", "readlines", "seek", "truncate")),
    *(("w", name) for name in ("seek", "truncate", "write", "writelines")),
]

# `io` would allocate as much, or make a file of it; returns the very object; seeks text to a float.
SKIPPED = {
    *((name, "large") for name in ("read", "read1", "truncate")),
    ("truncate", "index 4"),
    ("seek", "float"),
}


async def _call(file: Any, name: str, *args: Any) -> Any:
    try:
        result = getattr(file, name)(*args)
        return await result if inspect.isawaitable(result) else result
    except Exception as error:
        return type(error).__name__


async def _outcome(file: Any, name: str, arg: Any) -> list[Any]:
    outcome = []
    if file.mode not in {"wb", "w"}:
        outcome.append(await _call(file, "readline"))
    outcome.append(await _call(file, name, arg))
    if isinstance(arg, bytearray | memoryview):
        outcome.append(bytes(arg))
    if name != "readlines":
        # It disables `tell` of a text file of `io`.
        outcome.append(await _call(file, "tell"))
    outcome.append(await _call(file, "close"))
    return outcome


async def _difference(path: Path, mode: str, name: str, value: Callable[[], Any]) -> str | None:
    path.write_bytes(CONTENT)
    with open(path, mode) as file:  # noqa: ASYNC230 - it is what is compared with
        expected = await _outcome(file, name, value())
    expected.append(path.read_bytes())
    path.write_bytes(CONTENT)
    async with fs.open(path, mode) as ours:
        found = await _outcome(ours, name, value())
    found.append(path.read_bytes())
    return None if found == expected else f"ours {found}, io {expected}"


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_odd_argument_gives_what_io_gives(mode: str, name: str, run: Run, tmp_path: Path) -> None:
    async def main() -> dict[str, str]:
        differences = {}
        for label, value in ODD.items():
            if (name, label) in SKIPPED:
                continue
            if found := await _difference(tmp_path / "f", mode, name, value):
                differences[label] = found
        return differences

    assert run(main()) == {}
