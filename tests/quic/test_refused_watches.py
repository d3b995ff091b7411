"""A loop that cannot watch an endpoint's socket, for lack of memory: an error, or tried again."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic import _driver
from tests.quic.support import dialled, echo, served
from tests.support import open_descriptors, wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop import quic
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

NO_MEMORY = os.strerror(errno.ENOMEM)


class Refusing:
    """A loop that does not watch, so many times."""

    def __init__(self, loop: Any, count: int) -> None:
        self._loop = loop
        self.left = count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def add_reader(self, *args: Any) -> None:
        self._refuse()
        self._loop.add_reader(*args)

    def add_writer(self, *args: Any) -> None:
        self._refuse()
        self._loop.add_writer(*args)

    def _refuse(self) -> None:
        if self.left:
            self.left -= 1
            raise OSError(errno.ENOMEM, NO_MEMORY)


async def answered(connection: quic.Connection, word: bytes) -> None:
    stream = await connection.open_stream()
    stream.write(word)
    assert await within(stream.readexactly(len(word))) == word


def test_full_socket_is_tried_again(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with (
            served(certificates, stream_handler=echo) as server,
            dialled(certificates, server.address) as connection,
        ):
            driver: Any = connection.endpoint._driver
            driver.loop = loop = Refusing(driver.loop, 2)
            driver._full()
            assert loop.left == 1
            # It is written to meanwhile, and once more refused.
            driver._full()
            assert loop.left == 1
            await answered(connection, b"between")
            await wait_until(lambda: not driver._writing, "another try")
            driver._full()
            assert loop.left == 0
            # What waits for room goes on where the endpoint moves or ends.
            driver._stop_writing()
            await answered(connection, b"after")
            driver._full()
            await wait_until(lambda: not driver._writing, "room")
            loop.left = 1
            driver._full()

    run(main())


def test_refused_socket_of_a_move_leaves_the_old_one(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with (
            served(certificates, stream_handler=echo) as server,
            dialled(certificates, server.address) as connection,
        ):
            await answered(connection, b"before")
            await within(connection._confirmed())
            driver: Any = connection.endpoint._driver
            driver.loop = Refusing(driver.loop, 1)
            before = connection.endpoint.address
            sock = _driver.bind("127.0.0.1")
            with pytest.raises(OSError, match=NO_MEMORY):
                driver.rebind(sock)
            assert sock.fileno() == -1
            assert connection.endpoint.address == before
            await answered(connection, b"still")
            await within(connection.rebind("127.0.0.1"))
            assert connection.endpoint.address != before
            await answered(connection, b"after")

    run(main())


def test_refused_socket_of_a_new_endpoint_is_closed(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        before = open_descriptors()
        attach = _driver.Driver.__init__

        def refused(self: Any, loop: Any, *args: Any) -> None:
            refusing: Any = Refusing(loop, 1)
            attach(self, refusing, *args)

        with monkeypatch.context() as patched:
            patched.setattr(_driver.Driver, "__init__", refused)
            with pytest.raises(OSError, match=NO_MEMORY):
                async with served(certificates):
                    pass
            with pytest.raises(OSError, match=NO_MEMORY):
                async with dialled(certificates, ("127.0.0.1", 9)):
                    pass
        assert open_descriptors() == before
        async with (
            served(certificates, stream_handler=echo) as server,
            dialled(certificates, server.address) as connection,
        ):
            await answered(connection, b"at last")

    run(main())
