"""What only the loops of ours have: results at once from the cache, operations of the ring, orphans."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import Loop, fs
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["uring", "epoll"])
def ring(request: pytest.FixtureRequest) -> Iterator[Loop]:
    """A loop of ours."""
    try:
        loop = Loop(driver=request.param)
    except OSError as error:
        pytest.skip(str(error))
    yield loop
    loop.close()


def at_once(coroutine: Any) -> Any:
    """Return the result of a coroutine that must not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    coroutine.close()
    pytest.fail("it was suspended")


def test_cached_files_are_read_without_a_suspension(ring: Loop, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"line\n" * 1000)

    def read_all() -> None:
        assert at_once(fs.read_bytes(path)) == b"line\n" * 1000
        file = at_once(_open(path, "rb"))
        assert at_once(file.read(7)) == b"line\nli"
        assert at_once(file.read()) == (b"line\n" * 1000)[7:]
        at_once(file.close())

    async def main() -> None:
        # The first look may bring names and pages into the kernel's caches.
        await fs.read_bytes(path)
        for _ in range(100):
            await asyncio.sleep(0)
            start = time.monotonic()
            try:
                return read_all()
            except pytest.fail.Exception:
                # A turn's time for such operations has passed if the machine ran others meanwhile.
                assert time.monotonic() - start > 0.0005
        pytest.fail("it was suspended each time")

    ring.run_until_complete(main())


async def _open(path: Any, mode: str) -> Any:
    return await fs.open(path, mode)


def test_no_thread_of_the_executor_is_used(ring: Loop, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        async with fs.open(path, "wb+") as file:
            await file.write(os.urandom(300_000))
            await file.fsync()
            await file.truncate(10)
            await file.seek(0)
            assert len(await file.read()) == 10
        await fs.rename(path, tmp_path / "g")
        await fs.stat(tmp_path / "g")
        await fs.mkdir(tmp_path / "d")
        await fs.remove(tmp_path / "g")
        await fs.write_bytes(path, b"x", durable=True)
        names = {thread.name for thread in threading.enumerate()}
        assert not any(name.startswith("asyncio") for name in names)

    ring.run_until_complete(main())


def test_closed_loop_frees_what_was_in_flight(ring: Loop) -> None:
    reads, writes = os.pipe()

    async def main() -> None:
        for _ in range(10):
            ring.create_task(_read(reads))
        await asyncio.sleep(0)

    ring.run_until_complete(main())
    for task in asyncio.all_tasks(ring):
        task.cancel()
    ring.run_until_complete(asyncio.sleep(0))
    ring.close()
    os.close(reads)
    os.close(writes)


async def _read(fd: int) -> None:
    file = await fs.open(fd, "rb", buffering=0, closefd=False)
    try:
        await file.read(100_000)
    finally:
        await file.close()


def test_cancelled_reads_of_the_pool_free_their_memory(ring: Loop, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(os.urandom(3_000_000))

    async def main() -> None:
        async with fs.open(path, "rb") as file:
            for _ in range(30):
                # Out of the cache, so that the reads have to wait.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                reads = [asyncio.ensure_future(file.pread(900_000, at)) for at in (0, 900_000)]
                await asyncio.sleep(0)
                for read in reads:
                    read.cancel()
                await asyncio.gather(*reads, return_exceptions=True)
            assert len(await within(file.pread(3_000_000, 0))) == 3_000_000

    ring.run_until_complete(main())
