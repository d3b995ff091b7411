"""Every check of the matrix holds on asyncio and on both drivers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

import tests.compatibility.rows  # noqa: F401  (declares them)
from tests import support
from tests.compatibility.registry import ROWS, Check, NotMeasuredError, Probe, Row

if TYPE_CHECKING:
    from pathlib import Path

# Rows that asyncio itself does not have.
OURS_ONLY = {
    "sock_recvmsg, sock_sendmsg (an extension: asyncio has neither)",
    "UDP in batches: fewer system calls than datagrams",
    "TCP over io_uring by default: an echo makes no recv or send call",
}
# Checks that asyncio fails before this version: its datagram transports were no
# `DatagramTransport`.
FAILED_BY_ASYNCIO_BEFORE = {
    ("transports are asyncio.Transport, DatagramTransport …", "datagram"): (3, 12),
}
CHECKS = [(row, check) for row in ROWS.values() for check in row.checks]


def probe_of(loop_name: str, folder: Path) -> Probe:
    ours = loop_name != support.ORACLE
    driver = loop_name.removeprefix("ringloop-")
    return Probe(
        factory=support.loop_factory(loop_name),
        module="ringloop" if ours else "asyncio",
        expression=f"ringloop.Loop(driver={driver!r})" if ours else "asyncio.SelectorEventLoop()",
        folder=folder,
        environment=dict(os.environ),
    )


@pytest.mark.parametrize(
    ("row", "check"), CHECKS, ids=[f"{row.title}: {check.name}" for row, check in CHECKS]
)
def test_holds(loop_name: str, row: Row, check: Check, tmp_path: Path) -> None:
    if not row.is_for_this_version:
        pytest.skip("asyncio has it in a later CPython")
    if row.title in OURS_ONLY and loop_name == support.ORACLE:
        pytest.skip("asyncio does not have it")
    if loop_name == support.ORACLE and sys.version_info < FAILED_BY_ASYNCIO_BEFORE.get(
        (row.title, check.name), (3, 11)
    ):
        pytest.skip("asyncio has it in a later CPython")
    if "over io_uring" in row.title and loop_name.endswith("epoll"):
        pytest.skip("the other driver was asked for")
    try:
        check.function(probe_of(loop_name, tmp_path))
    except NotMeasuredError as reason:
        pytest.skip(str(reason))
