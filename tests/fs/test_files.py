"""What files promise beyond the built-in's: cancelling, sharing, closing, names in errors."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs
from ringloop.fs import _buffer
from tests.support import open_descriptors, wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_file_opens_by_await_and_by_async_with(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        file = await fs.open(path, "w")
        assert await file.write("one\ntwo\n") == 8
        await file.close()
        assert file.closed
        async with fs.open(path) as file:
            assert [line async for line in file] == ["one\n", "two\n"]
        assert file.closed
        with pytest.raises(ValueError, match="closed"):
            await file.read()

    run(main())


@pytest.mark.parametrize("mode", ["r", "rb", "r+"])
def test_missing_file_is_named_as_by_open(mode: str, run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError) as expected:
        open(path, mode)  # noqa: SIM115
    with pytest.raises(FileNotFoundError) as found:
        run(_open(path, mode))
    assert str(found.value) == str(expected.value)
    assert found.value.args == expected.value.args
    assert found.value.filename == path


async def _open(path: Any, *args: Any, **kwargs: Any) -> Any:
    return await fs.open(path, *args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("rw",), {}), (("",), {}), (("z",), {}), (("rbt",), {}), (("rb",), {"encoding": "utf-8"}),
        (("rb",), {"newline": "\n"}), (("r", 0), {}), (("r",), {"newline": "x"}),
        (("r",), {"closefd": False}), (("r",), {"encoding": "no such"}),
    ],
)  # fmt: skip
def test_arguments_are_refused_as_by_open(
    args: tuple[Any, ...], kwargs: dict[str, Any], run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    with pytest.raises((ValueError, LookupError, TypeError)) as expected:
        open(path, *args, **kwargs)  # noqa: SIM115
    with pytest.raises(expected.type):
        run(_open(path, *args, **kwargs))


def test_directory_is_refused_and_not_left_open(run: Run, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as found:
        run(_open(tmp_path))
    assert found.value.filename == str(tmp_path)


def test_unclosed_file_warns_and_writes_what_it_has(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        file = await fs.open(path, "w")
        await file.write("kept")

    with pytest.warns(ResourceWarning, match="unclosed file"):
        run(main())
        gc.collect()
    assert path.read_text() == "kept"


def test_opener_is_called_outside_of_the_loop_thread(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    threads = []

    def opener(name: str, flags: int) -> int:
        threads.append(threading.get_ident())
        return os.open(name, flags)

    async def main() -> str:
        async with fs.open(path, opener=opener) as file:
            assert not os.get_inheritable(file.fileno())
            return str(await file.read())

    assert run(main()) == "x"
    assert threads
    assert threads[0] != threading.get_ident()


def test_descriptor_stays_open_and_at_the_position(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDWR)
    os.lseek(fd, 2, os.SEEK_SET)

    async def main() -> None:
        async with fs.open(fd, "rb", closefd=False) as file:
            assert await file.read(3) == b"234"

    run(main())
    assert os.read(fd, 2) == b"56"
    os.close(fd)


def test_cancelled_read_of_a_pipe_ends_and_leaves_it_usable(run: Run) -> None:
    reads, writes = os.pipe()

    async def main() -> None:
        async with fs.open(reads, "rb", buffering=0) as file:
            task = asyncio.ensure_future(file.read(10))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # On loops that are not ours a thread still reads: this is for it.
            os.write(writes, b"lost")
            await asyncio.sleep(0)
            os.close(writes)
            assert await within(file.read()) in {b"", b"lost"}

    run(main())


def test_cancelled_read_does_not_move_the_position(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 8192)

    async def main() -> None:
        async with fs.open(path, "rb") as file:
            await file.read(5)
            for size in (1, 1000, 1_500_000, -1):
                task = asyncio.ensure_future(file.read(size))
                await asyncio.sleep(0)
                moved = task.done()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if not moved:
                    assert await file.tell() == 5
                await file.seek(5)
            assert await file.read(3) == b"\x05\x06\x07"

    run(main())


def test_cancelled_flush_goes_on_to_its_end(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        async with fs.open(path, "ab") as file:
            await file.write(b"once")
            task = asyncio.ensure_future(file.flush())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await file.write(b" more")

    run(main())
    assert path.read_bytes() == b"once more"


def test_error_of_a_cancelled_flush_comes_with_the_next(run: Run) -> None:
    async def main() -> None:
        file = await fs.open("/dev/full", "wb")
        await file.write(b"x")
        task = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(OSError, match="No space") as found:
            await file.close()
        assert found.value.errno == errno.ENOSPC
        assert file.closed

    run(main())


def test_tasks_share_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        async with fs.open(path, "wb", buffering=16) as file:
            lines = [b"%03d\n" % number * 5 for number in range(100)]
            await asyncio.gather(*map(file.write, lines))
        async with fs.open(path, "rb", buffering=16) as file:
            parts = await asyncio.gather(*(file.read(20) for _ in range(100)))
            assert sorted(parts) == sorted(lines)

    run(main())
    assert len(path.read_bytes()) == 2000


def test_positioned_reads_and_writes_leave_the_position(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        async with fs.open(path, "wb+") as file:
            await file.write(b"0123456789")
            assert await file.pwrite(b"AB", 3) == 2
            assert await file.tell() == 10
            assert await asyncio.gather(*(file.pread(2, at) for at in (2, 4, 9, 99))) == [
                b"2A", b"B5", b"9", b"",
            ]  # fmt: skip
            with pytest.raises(OSError, match="Invalid argument"):
                await file.pread(1, -1)

    run(main())


def test_fsync_writes_and_returns(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        for mode in ("w", "a"):
            async with fs.open(path, mode) as file:
                await file.write("abc")
                await file.fsync(datasync=True)
                assert path.read_text().endswith("abc")
                await file.fsync()

    run(main())


def test_large_reads_leave_the_loop_running(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    content = os.urandom(1 << 20) * 40
    path.write_bytes(content)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def main() -> None:
        ticker = asyncio.ensure_future(tick())
        await asyncio.sleep(0)
        before = ticks
        async with fs.open(path, "rb") as file:
            data = await file.read()
        assert ticks > before
        ticker.cancel()
        assert data == content

    run(main())


def test_sendfile_to_a_socket_and_a_writer(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    content = os.urandom(300_000)
    path.write_bytes(content)

    async def main() -> None:
        left, right = socket.socketpair()
        left.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=right)
        async with fs.open(path, "rb") as file:
            await file.seek(100)
            sending = asyncio.ensure_future(file.sendfile(left, count=200_000))
            assert await reader.readexactly(200_000) == content[100:200_100]
            assert await sending == 200_000
            assert await file.tell() == 200_100
        sending = asyncio.ensure_future(fs.sendfile(writer, path, 5))
        got = b""
        while len(got) < len(content) - 5:
            got += await asyncio.get_running_loop().sock_recv(left, 1 << 20)
        assert got == content[5:]
        assert await sending == len(content) - 5
        left.close()
        writer.close()
        await writer.wait_closed()

    run(main())


def test_whole_files(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        assert await fs.write_bytes(path, bytearray(b"abc")) == 3
        assert await fs.read_bytes(path) == b"abc"
        assert await fs.write_bytes(path, b"durable", durable=True) == 7
        assert await fs.read_bytes(path) == b"durable"
        assert await fs.write_text(path, "é\n", encoding="latin-1", newline="\r\n") == 2
        assert await fs.read_bytes(path) == b"\xe9\r\n"
        assert await fs.read_text(path, encoding="latin-1") == "é\n"
        assert await fs.read_bytes("/proc/self/cmdline")
        assert await fs.read_bytes("/dev/null") == b""
        with pytest.raises(FileNotFoundError, match="missing"):
            await fs.read_bytes(tmp_path / "missing")
        with pytest.raises(OSError, match="No space"):
            await fs.write_bytes("/dev/full", b"x")

    run(main())


def test_whole_file_grows_while_it_is_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    content = os.urandom(5_000_000)

    async def main() -> None:
        for size in (0, 1, 4096, 65_536, 5_000_000):
            path.write_bytes(content[:size])
            assert await fs.read_bytes(path) == content[:size]

    run(main())


def test_fifo_is_opened_without_stopping_the_loop(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    async def main() -> None:
        opening = asyncio.ensure_future(_open(path, "rb"))
        await asyncio.sleep(0)
        async with fs.open(path, "wb") as writer:
            await writer.write(b"through")
        async with await within(opening) as reader:
            assert await within(reader.read()) == b"through"

    run(main())


@pytest.mark.parametrize("first", ["rb", "ab", "wb"])
def test_open_of_a_fifo_waits_for_the_other_end(run: Run, tmp_path: Path, first: str) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    second = "wb" if first == "rb" else "rb"

    async def main() -> None:
        opening = asyncio.ensure_future(_open(path, first))
        await asyncio.sleep(0.05)
        assert not opening.done()
        ends = {second: await within(_open(path, second)), first: await within(opening)}
        reader = ends.pop("rb")
        (writer,) = ends.values()
        await writer.write(b"through")
        await writer.close()
        assert await within(reader.read()) == b"through"
        await reader.close()

    run(main())


def test_many_files_at_once(run: Run, tmp_path: Path) -> None:
    async def one(number: int) -> None:
        path = tmp_path / str(number)
        async with fs.open(path, "w") as file:
            await file.write(str(number))
        assert await fs.read_text(path) == str(number)

    async def main() -> None:
        await asyncio.gather(*map(one, range(200)))

    run(main())


def test_cancelled_open_leaves_no_descriptor(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")

    async def main() -> None:
        for turns in range(6):
            for mode in ("rb", "wb"):
                task = asyncio.ensure_future(_open(path, mode))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                for result in await asyncio.gather(task, return_exceptions=True):
                    if not isinstance(result, BaseException):
                        await result.close()
        await wait_until(lambda: str(path) not in open_descriptors().values())

    run(main())


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_cancelled_writes_have_taken_their_bytes_in_order(
    mode: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f"

    async def main() -> None:
        expected = ""
        async with fs.open(path, mode, buffering=16) as file:
            for number in range(100):
                text = f"{number} " * (1 + number % 30)
                expected += text
                writing = asyncio.ensure_future(file.write(text if mode == "w" else text.encode()))
                # It has begun, and most often waits for the write before it.
                for _ in range(1 + number % 3):
                    await asyncio.sleep(0)
                writing.cancel()
                await asyncio.wait([writing])
        assert path.read_text() == expected

    run(main())


@pytest.mark.parametrize("mode", ["rb", "r"])
def test_reads_and_seeks_of_tasks_take_turns_in_order(mode: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(65 + number % 26 for number in range(300_000)))

    async def main() -> None:
        async with fs.open(path, mode, buffering=1000) as file:
            calls = [(file.read, 100_000), (file.seek, 0), (file.read, 200_000), (file.seek, 7)]
            found = await asyncio.gather(*[call(count) for call, count in [*calls, *calls]])
        whole = path.read_bytes() if mode == "rb" else path.read_text()
        assert found[:4] == [whole[:100_000], 0, whole[:200_000], 7]
        assert found[4:] == [whole[7:100_007], 0, whole[:200_000], 7]

    run(main())


def test_buffer_that_cannot_be_written_takes_no_bytes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")

    async def main() -> None:
        async with fs.open(path, "rb") as file:
            for read in (file.readinto, file.readinto1):
                with pytest.raises(TypeError, match="read-write"):
                    await read(b"xx")
            assert await file.read() == b"abc"

    run(main())


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_arguments_of_methods_are_refused_as_by_io(mode: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")

    async def main() -> None:
        file = await fs.open(path, mode)
        for read in (file.read, file.readline, file.readlines):
            with pytest.raises(TypeError):
                await read("x")
        with pytest.raises(TypeError):
            await file.readlines(1.5)
        await file.close()
        with pytest.raises(ValueError, match="closed"):
            await file.writelines([])
        with pytest.raises(TypeError, match="newline"):
            await fs.open(path, newline=5)  # type: ignore[call-overload]

    run(main())


@pytest.mark.parametrize("mode", ["ab", "wb", "rb+"])
@pytest.mark.parametrize("operation", ["flush", "fsync", "close"])
def test_part_that_was_written_before_an_error_is_not_written_again(
    mode: str, operation: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    data = bytes(range(256)) * 100
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def main() -> None:
        file = await fs.open(path, mode)
        await file.write(data)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            with pytest.raises(OSError, match="large") as full:
                await getattr(file, operation)()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert full.value.errno == errno.EFBIG
        await file.close()

    run(main())
    whole = (b"before" if mode == "ab" else b"") + data
    assert path.read_bytes() == (whole[:10_000] if operation == "close" else whole)


def test_bytes_that_could_not_be_synchronised_are_not_appended_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"

    class Failing:
        """Writes, and fails to synchronise."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        async def write_sync(self, fd: int, data: bytes, position: int, _: bool) -> int:
            await self.real.write(fd, data, position)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def main() -> None:
        real = _buffer.backend
        file = await fs.open(path, "ab")
        await file.write(b"once")
        monkeypatch.setattr(_buffer, "backend", lambda: Failing(real()))
        with pytest.raises(OSError, match="error"):
            await file.fsync()
        monkeypatch.undo()
        await file.write(b" more")
        await file.close()
        assert path.read_bytes() == b"once more"

    run(main())


class Index:
    """An integer of another type, as NumPy has them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("read", (), ()), ("read1", (), ()), ("readline", (), ()), ("readlines", (), ()),
        ("seek", (), ()), ("truncate", (), ()), ("pread", (), (0,)), ("pread", (4,), ()),
        ("pwrite", (b"xy",), ()),
    ],
)  # fmt: skip
def test_sizes_are_integers_of_any_type(
    name: str, before: Any, after: Any, buffering: int, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f"

    async def result(number: Any) -> Any:
        path.write_bytes(b"first\nsecond\n")
        async with fs.open(path, "rb+", buffering) as file:
            given = await getattr(file, name)(*before, number, *after)
            return given, await file.tell(), path.read_bytes()

    async def main() -> None:
        assert await result(Index(3)) == await result(3)
        with pytest.raises(TypeError):
            await result(3.0)
        with pytest.raises(TypeError):
            await result("3")

    run(main())
