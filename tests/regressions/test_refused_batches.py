"""A seccomp filter that refuses the system calls for several datagrams.

Some profiles allow recvmsg(2) and sendmsg(2), but neither recvmmsg(2) nor sendmmsg(2). An endpoint
reported 200,000 errors per second there and never delivered the datagram. If they are refused, even
after the loop has started, each datagram is sent or received by itself.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests import support
from tests.support import refuse, wait_until
from tests.support.datagrams import Recorder, endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support import LoopFactory
    from tests.support.tls import Certificates

pytestmark = [
    pytest.mark.skipif(not refuse.NUMBERS, reason="no numbers of system calls for this machine"),
]
CALLS = ("recvmmsg", "sendmmsg")


def refuse_batches(error: int) -> None:
    refuse.deny([refuse.NUMBERS[name] for name in CALLS], error)


def in_thread(factory: LoopFactory, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `main` in a thread of its own: a filter ends with its thread."""
    failures: list[BaseException] = []

    def target() -> None:
        loop = factory()
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failures.append(error)
        finally:
            support.close_loop(loop)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_datagrams_go_one_by_one_if_batches_are_refused(
    loop_factory: LoopFactory, error: int
) -> None:
    async def main() -> None:
        async with endpoint() as one, endpoint() as two:
            address = two.transport.get_extra_info("sockname")
            burst = [bytes([number]) * number for number in range(1, 60)]

            async def exchange() -> None:
                del two.received[:]
                for data in burst:
                    one.transport.sendto(data, address)
                await wait_until(lambda: len(two.received) == len(burst))
                assert two.data == burst
                assert {source for _, source in two.received} == {
                    one.transport.get_extra_info("sockname")
                }

            await exchange()
            refuse_batches(error)
            await exchange()
            await exchange()
            assert not one.errors
            assert not two.errors
            # Nothing is left that wakes the loop.
            used = time.thread_time()
            await asyncio.sleep(0.2)
            assert time.thread_time() - used < 0.1

    in_thread(loop_factory, main)


def test_datagram_received_before_the_call_is_refused(
    loop_factory: LoopFactory,
) -> None:
    async def main() -> None:
        refuse_batches(errno.ENOSYS)
        async with endpoint() as one, endpoint() as two:
            one.transport.sendto(b"first", two.transport.get_extra_info("sockname"))
            await wait_until(lambda: two.received)
            assert two.data == [b"first"]
            assert not two.errors

    in_thread(loop_factory, main)


def test_network_error_is_reported_once_if_batches_are_refused(
    loop_factory: LoopFactory,
) -> None:
    async def main() -> None:
        refuse_batches(errno.EPERM)
        loop = asyncio.get_running_loop()
        async with endpoint() as gone:
            nobody = gone.transport.get_extra_info("sockname")
        transport, protocol = await loop.create_datagram_endpoint(Recorder, remote_addr=nobody)
        transport.sendto(b"to nobody")
        await wait_until(lambda: protocol.errors)
        assert [type(told) for told in protocol.errors] == [ConnectionRefusedError]
        transport.close()
        await protocol.lost

    in_thread(loop_factory, main)


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_quic_works_if_batches_are_refused(
    certificates: Certificates, loop_factory: LoopFactory, error: int
) -> None:
    certificate, key = certificates.issue()

    async def echo(stream: quic.Stream) -> None:
        async for chunk in stream.chunks():
            await stream.send(chunk)
        stream.finish()

    async def main() -> None:
        server = await quic.serve(
            host="127.0.0.1",
            stream_handler=echo,
            certificate=str(certificate),
            private_key=str(key),
            alpn=["test"],
        )
        data = bytes(range(256)) * 1000
        async with (
            server,
            quic.connect(
                *server.address[:2],
                server_name="localhost",
                ca_file=str(certificates.authority),
                alpn=["test"],
            ) as connection,
        ):
            for refused in (False, True):
                if refused:
                    refuse_batches(error)
                stream = await connection.open_stream()
                stream.write(data)
                stream.finish()
                assert await stream.read_to_end() == data

    in_thread(loop_factory, main)
