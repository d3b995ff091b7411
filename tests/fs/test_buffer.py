"""What is buffered before it is written: more of a file with positions, or what was asked for."""

from __future__ import annotations

import errno
import os
import resource
import signal
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs
from ringloop.fs import _buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

PIECE_BYTES = 64 * 1024
PIECES = 40


@pytest.mark.parametrize("mode", ["wb", "w", "ab", "rb+"])
@pytest.mark.parametrize("buffering", [-1, PIECE_BYTES, 1000])
def test_pieces_are_written_together_up_to_the_buffer(
    mode: str, buffering: int, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.touch()
    most = (_buffer.COLLECTED_BYTES if buffering < 0 else buffering) - 1

    async def main() -> None:
        sizes = set()
        async with fs.open(path, mode, buffering) as file:
            for number in range(PIECES):
                piece: Any = chr(ord("a") + number % 26) * PIECE_BYTES
                assert await file.write(piece if mode == "w" else piece.encode()) == PIECE_BYTES
                sizes.add(path.stat().st_size)
                assert (number + 1) * PIECE_BYTES - max(sizes) <= most
            await file.flush()
            assert path.stat().st_size == PIECES * PIECE_BYTES
        # With 0, as nothing is written yet at first.
        assert len(sizes) == (PIECES // 8 + 1 if buffering < 0 else PIECES)

    run(main())
    expected = "".join(chr(ord("a") + number % 26) * PIECE_BYTES for number in range(PIECES))
    assert path.read_text() == expected


@pytest.mark.parametrize("mode", ["wb", "w", "ab", "rb+"])
@pytest.mark.parametrize("size", [1, 1000, PIECE_BYTES // 4])
def test_small_pieces_fill_the_buffer_only(mode: str, size: int, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()

    async def main() -> None:
        async with fs.open(path, mode) as file:
            piece: Any = "x" * size if mode == "w" else b"x" * size
            for _ in range(2 * PIECE_BYTES // size + 1):
                await file.write(piece)
            # A text keeps up to 8 KiB more.
            assert path.stat().st_size > PIECE_BYTES

    run(main())


def test_piece_for_a_pipe_is_not_kept_for_more(run: Run) -> None:
    reading, writing = os.pipe()

    async def main() -> None:
        async with fs.open(writing, "wb") as file, fs.open(reading, "rb") as other:
            await file.write(b"x" * _buffer.BUFFER_BYTES)
            assert await other.read(_buffer.BUFFER_BYTES) == b"x" * _buffer.BUFFER_BYTES

    run(main())


def test_error_of_pieces_comes_with_a_later_call_and_keeps_its_number(
    run: Run, tmp_path: Path
) -> None:
    """No byte is lost before the limit, and none is written twice."""
    path = tmp_path / "f"
    pieces = [bytes([number]) * PIECE_BYTES for number in range(PIECES)]
    limit = 20 * PIECE_BYTES + 100

    async def main() -> None:
        file = await fs.open(path, "wb")
        with pytest.raises(OSError, match="too large") as found:
            for piece in pieces:
                await file.write(piece)
        assert found.value.errno == errno.EFBIG
        with pytest.raises(OSError, match="too large") as found:
            await file.close()
        assert found.value.errno == errno.EFBIG

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"".join(pieces)[:limit]
