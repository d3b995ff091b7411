"""A seccomp filter that refuses accept4(2), as in old container profiles: accept(2) is used instead."""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.support import refuse
from tests.support.tcp import Factory, ask, serving

if TYPE_CHECKING:
    import asyncio

    from tests.support import LoopFactory

pytestmark = [
    pytest.mark.skipif(not refuse.NUMBERS, reason="no numbers of system calls for this machine"),
]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_servers_accept_if_accept4_is_refused(
    loop_name: str, loop_factory: LoopFactory, error: int
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip(
            "CPython's socket goes on without accept4(2) only where its first call is ENOSYS"
        )
    factory = Factory()

    async def main() -> None:
        async with serving(factory) as (_, address):
            assert await ask(address) == b"ping"
            refuse.deny([refuse.NUMBERS["accept4"]], error)
            for _ in range(3):
                assert await ask(address) == b"ping"
            with socket.create_connection(address):
                await factory.connections(5)
                connection = factory.made[-1].transport.get_extra_info("socket")
                assert not os.get_inheritable(connection.fileno())
                assert not os.get_blocking(connection.fileno())
            await factory.made[-1].until_lost()

    def in_thread() -> None:
        loop = loop_factory()
        try:
            loop.run_until_complete(main())
            served.append(loop)
        finally:
            support.close_loop(loop)

    served: list[asyncio.AbstractEventLoop] = []
    # A filter ends with its thread.
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert served
