"""Files: whole ones, by position, of text, names, temporary ones, and what a system lacks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import os
import shutil
import socket
import tempfile
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringloop import fs
from ringloop.fs.compat import aiofiles
from tests.windows.loops import IS_WINDOWS, on_every_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# What a translation of line ends, or of Control-Z as an end, would change.
PAYLOAD = bytes(range(256)) * 1000 + b"\r\n\x1a\n"


def in_folder(
    test: Callable[[Any, Path], Coroutine[Any, Any, None]],
) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Give a test a new folder."""

    @functools.wraps(test)
    async def with_folder(case: Any) -> None:
        folder = tempfile.mkdtemp()
        try:
            await test(case, Path(folder))
        finally:
            # Windows refuses where a file is open still.
            shutil.rmtree(folder)

    return with_folder


class Files(unittest.TestCase):
    """Open files."""

    @on_every_loop
    @in_folder
    async def test_bytes_come_back_as_they_were(self, folder: Path) -> None:
        path = folder / "bytes"
        assert await fs.write_bytes(path, PAYLOAD, durable=True) == len(PAYLOAD)
        assert path.read_bytes() == await fs.read_bytes(path) == PAYLOAD
        async with fs.open(path, "wb") as file:
            assert await file.write(PAYLOAD) == len(PAYLOAD)
            await file.fsync()
            await file.fsync(datasync=True)
        async with fs.open(path, "rb") as file:
            assert await file.read(300) + await file.read() == PAYLOAD
            assert await file.read() == b""

    @on_every_loop
    @in_folder
    async def test_reads_and_writes_by_position_leave_the_position(self, folder: Path) -> None:
        path = folder / "positions"
        path.write_bytes(PAYLOAD)
        async with fs.open(path, "r+b") as file:
            assert await file.read(10) == PAYLOAD[:10]
            places = range(0, len(PAYLOAD), 5000)
            pieces = await asyncio.gather(*(file.pread(100, place) for place in places))
            assert pieces == [PAYLOAD[place : place + 100] for place in places]
            assert await file.pwrite(b"written", 100_000) == 7
            assert await file.tell() == 10
            assert await file.read(10) == PAYLOAD[10:20]
            assert await file.seek(-4, os.SEEK_END) == len(PAYLOAD) - 4
            assert await file.read() == PAYLOAD[-4:]
            assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == len(PAYLOAD)
            await file.truncate(100_010)
        assert path.read_bytes()[100_000:] == b"written" + PAYLOAD[100_007:100_010]

    @on_every_loop
    @in_folder
    async def test_appended_bytes_come_last(self, folder: Path) -> None:
        path = folder / "appended"
        path.write_bytes(b"first\n")
        async with fs.open(path, "a+b") as file:
            await file.write(b"second\n")
            await file.flush()
            assert await file.tell() == 13
            await file.seek(0)
            assert await file.readline() == b"first\n"
            await file.write(b"third\n")
        assert path.read_bytes() == b"first\nsecond\nthird\n"

    @on_every_loop
    @in_folder
    async def test_text_has_the_line_ends_of_the_system(self, folder: Path) -> None:
        text = "eins\nzwei – drei\n\nvier"
        for name, write in (("whole", self._write_whole), ("opened", self._write_opened)):
            path = folder / name
            await write(path, text)
            assert path.read_bytes().decode() == text.replace("\n", os.linesep)
            assert await fs.read_text(path, encoding="utf-8") == text
            async with fs.open(path, encoding="utf-8") as file:
                assert [line async for line in file] == text.splitlines(keepends=True)
            async with fs.open(path, encoding="utf-8") as file:
                assert await file.readline() == text.splitlines(keepends=True)[0]
                place = await file.tell()
                rest = await file.read()
                assert await file.seek(place) == place
                assert await file.read() == rest == "".join(text.splitlines(keepends=True)[1:])

    async def _write_whole(self, path: Path, text: str) -> None:
        assert await fs.write_text(path, text, encoding="utf-8") == len(text)

    async def _write_opened(self, path: Path, text: str) -> None:
        async with fs.open(path, "w", encoding="utf-8") as file:
            for line in text.splitlines(keepends=True):
                await file.write(line)

    @on_every_loop
    @in_folder
    async def test_an_opener_and_a_descriptor_are_taken(self, folder: Path) -> None:
        path = folder / "opened"
        async with fs.open(path, "wb", opener=os.open) as file:
            await file.write(PAYLOAD)
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            async with fs.open(fd, "rb", closefd=False) as file:
                assert await file.read(500) == PAYLOAD[:500]
            assert os.lseek(fd, 0, os.SEEK_CUR) == 500
            plain = await fs.open(os.dup(fd), "rb")
            with plain.detach() as raw:
                assert isinstance(raw, io.FileIO)
                assert raw.read(10) == PAYLOAD[500:510]
        finally:
            os.close(fd)

    @on_every_loop
    async def test_pipes_are_read_as_bytes_come(self) -> None:
        reader, writer = os.pipe()
        async with fs.open(reader, "rb") as source, fs.open(writer, "wb", 0) as sink:
            reading = asyncio.ensure_future(source.read(5))
            await asyncio.sleep(0.01)
            await sink.write(b"12345")
            assert await reading == b"12345"
            assert not await source.seekable()
            await sink.close()
            assert await source.read() == b""

    @on_every_loop
    @in_folder
    async def test_errors_are_those_of_open(self, folder: Path) -> None:
        missing = folder / "missing"
        with self.assertRaises(FileNotFoundError) as raised:
            await fs.open(missing)
        assert raised.exception.filename == os.fspath(missing)
        with self.assertRaises(FileNotFoundError):
            await fs.read_bytes(missing)
        (folder / "there").touch()
        with self.assertRaises(FileExistsError):
            await fs.open(folder / "there", "xb")
        with self.assertRaises(PermissionError if IS_WINDOWS else IsADirectoryError):
            await fs.open(folder, "rb")

    @on_every_loop
    @in_folder
    async def test_file_is_sent_to_a_socket(self, folder: Path) -> None:
        path = folder / "sent"
        path.write_bytes(PAYLOAD)
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            sending = asyncio.ensure_future(fs.sendfile(one, path, 100))
            received = bytearray()
            while len(received) < len(PAYLOAD) - 100:
                received += await loop.sock_recv(other, 1 << 16)
            assert await sending == len(received)
            assert received == PAYLOAD[100:]


class Names(unittest.TestCase):
    """Functions of `os`, and paths."""

    @on_every_loop
    @in_folder
    async def test_names_are_made_renamed_and_removed(self, folder: Path) -> None:
        await fs.makedirs(folder / "a" / "b")
        await fs.mkdir(folder / "c")
        await fs.write_bytes(folder / "a" / "ü", b"12")
        await fs.rename(folder / "a" / "ü", folder / "c" / "one")
        status, theirs = await fs.stat(folder / "c" / "one"), os.stat(folder / "c" / "one")
        assert (status.st_size, status.st_mtime_ns, status.st_ino) == (
            2,
            theirs.st_mtime_ns,
            theirs.st_ino,
        )
        assert await fs.isdir(folder / "c")
        assert not await fs.exists(folder / "d")
        await fs.write_bytes(folder / "two", b"2")
        with contextlib.nullcontext() if not IS_WINDOWS else self.assertRaises(FileExistsError):
            await fs.rename(folder / "c" / "one", folder / "two")
            await fs.write_bytes(folder / "c" / "one", b"12")
        await fs.replace(folder / "c" / "one", folder / "two")
        assert await fs.read_bytes(folder / "two") == b"12"
        await fs.link(folder / "two", folder / "linked")
        assert await fs.getsize(folder / "linked") == 2
        async with fs.scandir(folder) as entries:
            assert {entry.name async for entry in entries} == {"a", "c", "linked", "two"}
        walked = {Path(top).name: set(files) async for top, _, files in fs.walk(folder)}
        assert walked == {folder.name: {"linked", "two"}, "a": set(), "b": set(), "c": set()}
        await fs.unlink(folder / "two")
        await fs.rmdir(folder / "c")
        await fs.rmtree(folder / "a")
        assert await fs.listdir(folder) == ["linked"]

    @on_every_loop
    @in_folder
    async def test_paths_are_those_of_pathlib(self, folder: Path) -> None:
        path = fs.Path(folder) / "sub" / "file.txt"
        await path.parent.mkdir(parents=True)
        await path.write_text("text\n", encoding="utf-8")
        assert Path(path).read_text(encoding="utf-8") == "text\n"
        assert [found async for found in fs.Path(folder).rglob("*.txt")] == [path]
        renamed = await path.rename(path.with_name("other"))
        assert await renamed.is_file()
        assert await renamed.read_bytes() == b"text" + os.linesep.encode()

    @on_every_loop
    async def test_temporary_files_go_when_they_are_closed(self) -> None:
        async with fs.TemporaryDirectory() as folder:
            async with fs.TemporaryFile(dir=folder) as file:
                await file.write(PAYLOAD)
                await file.seek(0)
                assert await file.read() == PAYLOAD
            async with fs.NamedTemporaryFile(dir=folder) as named:
                await named.write(PAYLOAD)
                await named.flush()
                assert await fs.getsize(named.name) == len(PAYLOAD)
            async with fs.SpooledTemporaryFile(10, dir=folder) as spooled:
                await spooled.write(PAYLOAD)
                await spooled.seek(0)
                assert await spooled.read() == PAYLOAD
            assert await fs.listdir(folder) == []
        assert not await fs.exists(folder)

    @on_every_loop
    @in_folder
    async def test_aiofiles_names_are_there(self, folder: Path) -> None:
        async with aiofiles.open(folder / "file", "w") as file:
            await file.write("text")
        assert await aiofiles.os.path.getsize(folder / "file") == 4
        assert hasattr(aiofiles.os, "statvfs") == hasattr(os, "statvfs")

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    @on_every_loop
    async def test_what_is_missing_raises_not_implemented_error(self) -> None:
        for call in (fs.chown("name", 1, 1), fs.mkfifo("name"), fs.statvfs("name")):
            with self.assertRaises(NotImplementedError):
                await call
