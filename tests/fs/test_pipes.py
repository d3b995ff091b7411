"""Files without positions: what a reader gets, and when."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

TEXT = "one\ntwo\r\nthree\rfour\n\nfünf\r\r\n"


@asynccontextmanager
async def pipe(**keywords: Any) -> AsyncIterator[tuple[Any, int]]:
    """Give a file that reads a pipe, and the end to write to, which is closed at the end."""
    reads, writes = os.pipe()
    try:
        async with fs.open(reads, **keywords) as file:
            yield file, writes
    finally:
        os.close(writes)


@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
def test_line_of_text_comes_with_its_end(newline: str | None, run: Run) -> None:
    """The next line's bytes, for which a reader would wait, are not asked for."""
    end = newline or "\n"

    async def main() -> None:
        async with pipe(newline=newline) as (file, writes):
            told = "\n" if newline is None else end
            os.write(writes, f"one{end}".encode())
            assert await within(file.readline()) == f"one{told}"
            os.write(writes, f"two{end}three{end}fo".encode())
            assert await within(anext(file)) == f"two{told}"
            assert await within(file.readline()) == f"three{told}"
            assert await within(file.read(2)) == "fo"
            os.write(writes, f"ur{end}five{end}".encode())
            assert await within(file.read(2)) == "ur"
            assert await within(file.readline()) == told
            assert await within(file.readline(3)) == "fiv"
            assert await within(file.readlines(1)) == [f"e{told}"]

    run(main())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-8-sig", "iso2022_jp"])
@pytest.mark.parametrize("newline", [None, "", "\r\n"])
def test_text_cut_anywhere_is_that_of_a_file(
    encoding: str, newline: str | None, run: Run, tmp_path: Any
) -> None:
    data = TEXT.replace("ü", "日").encode(encoding)
    path = tmp_path / "f"
    path.write_bytes(data)
    with path.open(encoding=encoding, newline=newline) as plain:
        expected = plain.readlines()

    async def main() -> None:
        for cut in range(len(data)):
            reads, writes = os.pipe()
            async with fs.open(reads, encoding=encoding, newline=newline) as file:
                os.write(writes, data[:cut])
                first = asyncio.ensure_future(file.readlines())
                await asyncio.sleep(0)
                os.write(writes, data[cut:])
                os.close(writes)
                assert await within(first) == expected
                assert await within(file.read()) == ""
                assert file.newlines == plain.newlines

    run(main())


def test_cancelled_read_of_text_loses_nothing_of_what_was_decoded(run: Run) -> None:
    async def main() -> None:
        async with pipe() as (file, writes):
            os.write(writes, b"beginning, ")
            reading = asyncio.ensure_future(file.readline())
            await asyncio.sleep(0.01)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            os.write(writes, b"end\n")
            assert await within(file.readline()) == "beginning, end\n"

    run(main())


def test_bytes_that_are_no_text_raise_and_the_rest_is_read(run: Run) -> None:
    async def main() -> None:
        async with pipe(encoding="utf-8") as (file, writes):
            os.write(writes, b"\xff\n")
            with pytest.raises(UnicodeDecodeError):
                await within(file.readline())
            os.write(writes, b"next\n")
            assert await within(file.readline()) == "next\n"

    run(main())


@pytest.mark.parametrize("how", ["read", "cancelled"])
def test_number_of_a_closed_pipe_is_watched_anew(how: str, run: Run) -> None:
    """The readiness driver took the first pipe's registration for that of the next of its number."""

    async def main() -> None:
        for _ in range(3):
            async with pipe(mode="rb", buffering=0) as (file, writes):
                reading = asyncio.ensure_future(file.read(5))
                await asyncio.sleep(0.01)
                if how == "cancelled":
                    reading.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await reading
                else:
                    os.write(writes, b"abc")
                    assert await within(reading) == b"abc"

    run(main())


def test_many_readers_that_wait_keep_no_writer_from_its_turn(run: Run) -> None:
    """A thread for each would be more than an executor has."""

    async def main() -> None:
        pairs = [os.pipe() for _ in range(50)]
        readers = [await fs.open(reads, "rb") for reads, _ in pairs]
        reading = [asyncio.ensure_future(reader.readline()) for reader in readers]
        await asyncio.sleep(0.01)
        for _, writes in pairs:
            async with fs.open(writes, "wb") as writer:
                await writer.write(b"line\n")
        assert await within(asyncio.gather(*reading)) == [b"line\n"] * 50
        for reader in readers:
            await reader.close()

    run(main())


@pytest.mark.parametrize("mode", ["rb", "r"])
def test_nonblocking_fifo_without_a_writer_is_at_its_end(
    mode: str, run: Run, tmp_path: Path
) -> None:
    """As for `open`; no poll reports that end, as no writer has gone."""
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, mode, opener=opener) as plain:
        expected = (plain.read(10), plain.readline(), plain.read())

    async def main() -> None:
        async with fs.open(path, mode, opener=opener) as file:
            found = (
                await within(file.read(10)),
                await within(file.readline()),
                await within(file.read()),
            )
            assert found == expected
            # With a writer it waits, as for every pipe.
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            reading = asyncio.ensure_future(file.readline())
            await asyncio.sleep(0)
            assert not reading.done()
            os.write(writer, b"a\n")
            line = await within(reading)
            assert line in {"a\n", b"a\n"}
            os.close(writer)
            assert not await within(file.read())

    run(main())
