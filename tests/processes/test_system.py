"""The forms for other systems, against Linux's own."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ringloop import _system

if TYPE_CHECKING:
    from pathlib import Path


def test_names_are_those_of_the_standard_library_on_linux() -> None:
    assert sys.platform == "linux"
    assert _system.new_socket is socket.socket
    assert _system.SOCK_NONBLOCK == socket.SOCK_NONBLOCK
    assert _system.usable_processors() == len(os.sched_getaffinity(0))
    assert _system.OPEN_FLAGS == os.O_CLOEXEC
    names = ("pread", "pwrite", "fdatasync")
    assert [getattr(_system, name) for name in names] == [getattr(os, name) for name in names]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("flag", [0, _system.SOCK_NONBLOCK])
def test_socket_by_two_calls_is_like_one_with_flags(kind: int, flag: int) -> None:
    with (
        _system.socket_with_flags(socket.AF_INET, kind | flag) as one,
        socket.socket(socket.AF_INET, kind | flag) as other,
    ):
        assert (one.family, one.type, one.getblocking()) == (
            other.family,
            other.type,
            other.getblocking(),
        )


def test_peer_is_this_user() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert _system.peer_uid(one) == os.geteuid()


def test_system_without_pidfds_and_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(os, "sched_getaffinity")
    with pytest.raises(OSError, match="not implemented"):
        _system.pidfd_open(os.getpid())
    assert _system.usable_processors() == os.cpu_count()


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_RDWR | os.O_APPEND])
def test_reads_and_writes_at_an_offset_leave_the_position(tmp_path: Path, flags: int) -> None:
    contents = []
    for pread, pwrite in (
        (_system.pread_by_seek, _system.pwrite_by_seek),
        (os.pread, os.pwrite),
    ):
        path = tmp_path / pread.__name__
        path.write_bytes(b"0123456789")
        fd = os.open(path, flags)
        try:
            os.lseek(fd, 3, os.SEEK_SET)
            assert pread(fd, 4, 5) == b"5678"
            assert pread(fd, 4, 8) == b"89"
            assert pread(fd, 4, 20) == b""
            assert pwrite(fd, b"ab", 1) == 2
            assert os.lseek(fd, 0, os.SEEK_CUR) == 3
            with pytest.raises(OSError, match="Invalid argument"):
                pread(fd, 1, -1)
            with pytest.raises(OSError, match="Invalid argument"):
                pwrite(fd, b"", -1)
        finally:
            os.close(fd)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_threads_that_read_at_offsets_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    pieces = [bytes([number]) * 100 for number in range(200)]
    path.write_bytes(b"".join(pieces))
    fd = os.open(path, os.O_RDONLY)
    try:
        with ThreadPoolExecutor(8) as pool:
            offsets = range(0, 20_000, 100)
            found = pool.map(lambda offset: _system.pread_by_seek(fd, 100, offset), offsets)
            assert list(found) == pieces
    finally:
        os.close(fd)


def test_socket_is_readable_once_something_came() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not _system.is_readable(one)
        other.send(b"x")
        assert _system.is_readable(one)
