"""The forms for other systems, against Linux's own."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from ringloop import _system


def test_names_are_those_of_the_standard_library_on_linux() -> None:
    assert sys.platform == "linux"
    assert _system.new_socket is socket.socket
    assert _system.SOCK_NONBLOCK == socket.SOCK_NONBLOCK
    assert _system.usable_processors() == len(os.sched_getaffinity(0))


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
