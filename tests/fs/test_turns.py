"""A task that awaits only what the page cache has lets the loop run its other callbacks."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

# Of this thread's CPU time: the machine may be busy.
SECONDS = 0.1
# Far fewer than there are, about a hundred.
TURNS_MIN = 20


async def whole(path: Path) -> None:
    assert await fs.read_bytes(path)


async def opened(path: Path) -> None:
    async with fs.open(path, "rb") as file:
        assert await file.read(100)


async def unbuffered(path: Path) -> None:
    async with fs.open(path, "rb", buffering=0) as file:
        while await file.read(1000):
            pass


async def at_offsets(path: Path) -> None:
    async with fs.open(path, "rb") as file:
        for offset in range(0, 100_000, 1000):
            assert await file.pread(1000, offset)


async def lines(path: Path) -> None:
    async with fs.open(path, "rb") as file:
        assert len([line async for line in file]) == 10_000


async def lines_of_text(path: Path) -> None:
    async with fs.open(path, newline="\n") as file:
        assert len([line async for line in file]) == 10_000


async def at_once_in_pieces(path: Path) -> None:
    async with fs.open(path, "rb") as file:
        assert len(await file.read()) == 500_000


@pytest.mark.parametrize(
    "work", [whole, opened, unbuffered, at_offsets, lines, lines_of_text, at_once_in_pieces]
)
def test_loop_runs_beside_cached_reads(
    run: Run, work: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes((b"x" * 49 + b"\n") * 10_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns, is_over = 0, False

        def turn() -> None:
            nonlocal turns
            turns += 1
            if not is_over:
                loop.call_soon(turn)

        loop.call_soon(turn)
        end = time.thread_time() + SECONDS
        while time.thread_time() < end:
            await work(path)
        is_over = True
        assert turns >= TURNS_MIN

    run(main())
