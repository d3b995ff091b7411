"""Iteration over lines: what was read ahead needs no operation, and the rules of files hold."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs
from ringloop.fs import _buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

MODES = ("r", "rb")


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the reads of files, by the method that reads."""
    reads = {"_fill": 0, "_fill_blocking": 0}

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(_buffer.BufferedFile, name)

        def call(*args: Any) -> Any:
            reads[name] += 1
            return method(*args)

        return call

    for name in reads:
        monkeypatch.setattr(_buffer.BufferedFile, name, counted(name))
    return reads


@pytest.mark.parametrize("line_count", [100, 20_000])
@pytest.mark.parametrize(
    ("mode", "encoding", "newline"),
    [
        ("rb", None, None),
        ("r", "utf-8", None),
        ("r", "utf-8", ""),
        ("r", "utf-8", "\n"),
        ("r", "latin-1", "\r\n"),
        ("r", "ascii", "\r"),
        ("r", "utf-16-le", None),
        ("r", "utf-32", None),
    ],
)
def test_line_that_was_read_ahead_needs_no_read(
    mode: str,
    encoding: str | None,
    newline: str | None,
    line_count: int,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "f"
    lines = [f"line {number} of a text{newline or chr(10)}" for number in range(line_count)]
    data = "".join(lines).encode(encoding or "ascii")
    path.write_bytes(data)
    reads = _count_reads(monkeypatch)

    async def main() -> list[Any]:
        async with fs.open(path, mode, encoding=encoding, newline=newline) as file:
            return [line async for line in file]

    found = run(main())
    assert found == (lines if encoding else [line.encode() for line in lines])
    # Each fills the buffer; two are left for the end, which is looked for twice at most.
    assert reads["_fill"] <= len(data) // _buffer.BUFFER_BYTES + 3
    assert reads["_fill_blocking"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_tasks_that_iterate_share_the_lines(mode: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    expected = [b"line %d\n" % number for number in range(30_000)]
    path.write_bytes(b"".join(expected))

    async def main() -> None:
        found: list[Any] = []
        async with fs.open(path, mode) as file:

            async def one() -> None:
                async for line in file:
                    found.append(line)
                    if len(found) % 100 == 0:
                        await asyncio.sleep(0)

            await asyncio.gather(*(one() for _ in range(5)))
        assert [line if mode == "rb" else line.encode() for line in found] == expected

    run(main())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ["close", "detach", "buffer.close", "buffer.detach"])
def test_iteration_ends_with_its_file(mode: str, end: str, run: Run, tmp_path: Path) -> None:
    """As by `io`: a file that is closed or detached is not read, whatever it had read ahead."""
    path = tmp_path / "f"
    path.write_text("one\ntwo\nthree\n")

    async def main() -> None:
        file: Any = await fs.open(path, mode)
        assert await anext(file) in {"one\n", b"one\n"}
        of_buffer, _, name = end.rpartition(".")
        ended = getattr(file.buffer if of_buffer and mode == "r" else file, name)()
        if name == "close":
            await ended
        for read in (file.__anext__, file.readline):
            with pytest.raises(ValueError, match="closed" if name == "close" else "detached"):
                await read()
        if name == "detach":
            ended.close()

    run(main())


def test_line_after_a_write_is_read_from_the_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one\ntwo\nthree\n")

    async def main() -> None:
        async with fs.open(path, "r+") as file:
            assert await anext(file) == "one\n"
            # `io` writes at the end of what it has read ahead: 14 bytes.
            await file.write("four\n")
            with pytest.raises(StopAsyncIteration):
                await anext(file)
        assert path.read_text() == "one\ntwo\nthree\nfour\n"

    run(main())


def test_spooled_file_iterates_in_memory_and_on_disk(run: Run) -> None:
    async def main() -> None:
        async with fs.SpooledTemporaryFile(100, "w+") as file:
            await file.write("one\ntwo\n")
            await file.seek(0)
            assert [line async for line in file] == ["one\n", "two\n"]
            await file.rollover()
            await file.seek(0)
            assert [line async for line in file] == ["one\n", "two\n"]

    run(main())
