"""What is cancelled, or ends with its loop, loses no bytes, names or descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import tempfile
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs
from tests.support import open_descriptors, wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

# So much that the write of a file is still in flight when its task is cancelled.
DATA = bytes(range(256)) * (4 << 12)


async def _cancel_all() -> None:
    """Cancel every other task, and wait for them: the end of `asyncio.run`."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize("mode", ["wb", "ab", "w", "a"])
@pytest.mark.parametrize("what", ["write", "flush", "close", "fsync"])
def test_all_tasks_cancelled_while_a_file_is_written(
    what: str, mode: str, turns: int, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    data: Any = DATA if "b" in mode else DATA.decode("latin-1")
    encoding = None if "b" in mode else "latin-1"
    buffering = -1 if what == "write" else 2 * len(DATA)

    async def write(file: Any) -> None:
        async with file:
            await file.write(data)
            if what != "write":
                await getattr(file, what)()

    async def main() -> None:
        file = await fs.open(path, mode, buffering, encoding=encoding, newline=encoding and "\n")
        task = asyncio.ensure_future(write(file))
        binary: Any = file if "b" in mode else file.buffer
        await wait_until(lambda: binary._held or task.done())
        for _ in range(turns):
            await asyncio.sleep(0)
        await _cancel_all()

    run(main())
    gc.collect()
    assert path.read_bytes() == DATA


def test_pipe_gets_no_bytes_twice(run: Run) -> None:
    read, write = os.pipe()

    async def main() -> None:
        file = await fs.open(write, "wb")
        task = asyncio.ensure_future(file.write(DATA))
        await asyncio.sleep(0.05)
        await _cancel_all()
        assert task.cancelled()
        await within(file.close(), 5)

    run(main())
    with open(read, "rb") as file:
        received = file.read()
    # On asyncio a thread is in write(2), and writes the rest once the pipe is read.
    assert received
    assert DATA.startswith(received)


def test_close_after_a_late_error_still_writes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        file = await fs.open(path, "wb")
        task = asyncio.ensure_future(file.truncate(-1))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await wait_until(lambda: not file._held)
        await file.write(b"kept")
        with pytest.raises(OSError, match="Invalid argument") as found:
            await file.close()
        assert found.value.errno == errno.EINVAL

    run(main())
    assert path.read_bytes() == b"kept"


@pytest.mark.parametrize(
    "make",
    [
        fs.TemporaryFile,
        fs.NamedTemporaryFile,
        fs.mkstemp,
        fs.mkdtemp,
        lambda dir: fs.open(dir, opener=lambda *_: tempfile.mkstemp(dir=dir)[0]),  # noqa: A006
    ],
)
def test_cancelled_opening_leaves_nothing(
    make: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, may_go = threading.Event(), threading.Event()

    def slow(function: Any) -> Any:
        def run_slowly(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            made.set()
            assert may_go.wait(5)
            return result

        return run_slowly

    for name in ("TemporaryFile", "mkdtemp", "mkstemp"):
        monkeypatch.setattr(tempfile, name, slow(getattr(tempfile, name)))

    async def await_it() -> None:
        await make(dir=tmp_path)

    async def main() -> None:
        await asyncio.to_thread(lambda: None)
        before = open_descriptors()
        task = asyncio.ensure_future(await_it())
        await wait_until(made.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        may_go.set()
        await wait_until(lambda: open_descriptors() == before)
        if make in {fs.NamedTemporaryFile, fs.mkstemp, fs.mkdtemp}:
            await wait_until(lambda: not os.listdir(tmp_path))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        run(main())


def test_named_file_that_cannot_be_closed_loses_its_name(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="Bad file"):
            async with fs.NamedTemporaryFile("wb", dir=tmp_path) as file:
                await file.write(b"x")
                os.close(file.fileno())
        async with fs.NamedTemporaryFile("wb", dir=tmp_path) as file:
            closing = asyncio.ensure_future(file.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
        await wait_until(lambda: not os.listdir(tmp_path))
        # The close itself may still be under way in a thread.
        await wait_until(lambda: len(asyncio.all_tasks()) == 1)

    run(main())


def test_cancelled_scandir_goes_on_with_every_entry(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"f{number}" for number in range(700)}
    for name in names:
        (tmp_path / name).touch()
    entered, may_read = threading.Event(), threading.Event()
    some = fs._os._some  # type: ignore[attr-defined]

    def slow(entries: Any) -> Any:
        entered.set()
        assert may_read.wait(5)
        return some(entries)

    monkeypatch.setattr(fs._os, "_some", slow)  # type: ignore[attr-defined]

    async def main() -> None:
        found = []
        async with fs.scandir(tmp_path) as entries:
            task = asyncio.ensure_future(anext(entries))
            await wait_until(entered.is_set)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            may_read.set()
            found = [entry.name async for entry in entries]
        assert sorted(found) == sorted(names)

    run(main())


def test_directory_is_closed_after_the_thread_that_reads_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, may_read = threading.Event(), threading.Event()
    order = []

    class Entries:
        """Notes the order of its calls."""

        def close(self) -> None:
            order.append("closed")

    def slow(_entries: Any) -> Any:
        entered.set()
        assert may_read.wait(5)
        order.append("read")
        return []

    monkeypatch.setattr(fs._os.os, "scandir", lambda _path: Entries())  # type: ignore[attr-defined]
    monkeypatch.setattr(fs._os, "_some", slow)  # type: ignore[attr-defined]

    async def main() -> None:
        entries = fs.scandir(tmp_path)
        task = asyncio.ensure_future(anext(entries))
        await wait_until(entered.is_set)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        closing = asyncio.ensure_future(entries.aclose())
        await asyncio.sleep(0.01)
        may_read.set()
        await closing

    run(main())
    assert order == ["read", "closed"]
