"""aiofiles: every operation is a call in the loop's default executor."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import aiofiles
import aiofiles.os

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_files_are_written_and_read_at_once(run: Run, tmp_path: Path) -> None:
    async def work(number: int) -> None:
        path, moved = tmp_path / f"{number}.part", tmp_path / f"{number}"
        content = os.urandom(100_000)
        async with aiofiles.open(path, "wb") as opened:
            for start in range(0, len(content), 10_000):
                await opened.write(content[start : start + 10_000])
        await aiofiles.os.rename(path, moved)
        async with aiofiles.open(moved, "rb") as opened:
            assert await opened.read() == content

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(40)))
        assert len(await aiofiles.os.listdir(tmp_path)) == 40
        async with aiofiles.open(tmp_path / "lines", "w") as opened:
            await opened.writelines(f"{number}\n" for number in range(300))
        async with aiofiles.open(tmp_path / "lines") as opened:
            assert [int(line) async for line in opened] == list(range(300))

    run(main())
