"""Count the words of all text files below a directory, many files at a time, and write a report.

python examples/files.py [DIRECTORY] [REPORT]
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING

import ringloop
from ringloop import fs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FILES_AT_ONCE = 16


async def text_files(folder: fs.Path) -> AsyncIterator[fs.Path]:
    """Find the files to be counted."""
    async for path in folder.rglob("*.md"):
        if await path.is_file():
            yield path


async def count(path: fs.Path, room: asyncio.Semaphore) -> Counter[str]:
    """Count one file's words, line by line."""
    words: Counter[str] = Counter()
    async with room, path.open(encoding="utf-8", errors="replace") as file:
        async for line in file:
            words.update(line.split())
    return words


async def main(folder: str, report: str) -> None:
    """Count, and write the report durably."""
    room = asyncio.Semaphore(FILES_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(count(path, room)) async for path in text_files(fs.Path(folder))]
    total: Counter[str] = Counter()
    for task in tasks:
        total.update(task.result())
    lines = [f"{number:8} {word}\n" for word, number in total.most_common(20)]
    await fs.write_text(report, "".join(lines), encoding="utf-8", durable=True)
    print(f"{len(tasks)} files, {total.total()} words: see {report}")


if __name__ == "__main__":
    ringloop.run(main(*[*sys.argv[1:], ".", "words.txt"][:2]))
