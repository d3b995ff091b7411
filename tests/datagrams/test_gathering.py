"""Datagrams that an endpoint sends in one iteration: what arrives is the same as with asyncio.

Our endpoints may send all but the first at the end of the iteration, in one system call and, if they
go to one peer and are equally long, as one message. The receivers here are plain sockets.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ORACLE, PATIENCE_SECONDS, wait_until, wait_until_blocking
from tests.support.datagrams import LARGEST, SENDS_EMPTY, Recorder, endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.datagrams import Run

SO_NO_CHECK = 11  # asm-generic/socket.h
IP_RECVTTL = 12  # linux/in.h


@pytest.fixture
def peers() -> Iterator[list[socket.socket]]:
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for peer in made:
        peer.bind(("127.0.0.1", 0))
        peer.setblocking(False)
    yield made
    for peer in made:
        peer.close()


def waiting_on(peer: socket.socket, count: int = 0) -> list[bytes]:
    """Everything that has arrived, once it is `count` datagrams; the loop is blocked meanwhile.

    A busy kernel delivers a little late even over loopback, in a thread of its own.
    """
    found: list[bytes] = []
    while True:
        try:
            found.append(peer.recv(LARGEST))
        except BlockingIOError:
            if len(found) >= count or not select.select([peer], [], [], PATIENCE_SECONDS)[0]:
                return found


async def turn() -> None:
    """Let the current iteration end."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.call_later(0, ended.set_result, None)
    await ended


def test_first_datagram_of_an_iteration_is_sent_by_sendto(run: Run, peers: Any) -> None:
    async def main() -> None:
        async with endpoint() as sender:
            for number in range(20):
                sender.transport.sendto(b"%d" % number, peers[0].getsockname())
                assert waiting_on(peers[0], 1) == [b"%d" % number]
                await turn()

    run(main())


def test_only_further_datagrams_of_an_iteration_are_gathered(
    run: Run, loop_name: str, peers: Any
) -> None:
    async def main() -> None:
        async with endpoint() as sender:
            for word in (b"one", b"two"):
                sender.transport.sendto(word, peers[0].getsockname())
            assert waiting_on(peers[0], 1)[0] == b"one"
            if loop_name != ORACLE:
                assert not select.select([peers[0]], [], [], 0)[0]
                await turn()
                assert waiting_on(peers[0], 1) == [b"two"]

    run(main())


def test_datagrams_are_sent_with_the_options_set_at_the_time(run: Run, peers: Any) -> None:
    peers[0].setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)

    async def main() -> None:
        async with endpoint() as sender:
            shown = sender.transport.get_extra_info("socket")
            for ttl in (11, 22, 33):
                shown.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
                for _ in range(2):
                    sender.transport.sendto(b"%d" % ttl, peers[0].getsockname())
            await turn()
            for ttl in (11, 11, 22, 22, 33, 33):
                assert select.select([peers[0]], [], [], PATIENCE_SECONDS)[0]
                data, ancillary, *_ = peers[0].recvmsg(9, 99)
                assert (data, struct.unpack("i", ancillary[0][2])) == (b"%d" % ttl, (ttl,))

    run(main())


def step(name: str, sender: Any) -> None:
    shown = sender.transport.get_extra_info("socket")
    if name == "descriptor":
        shown.fileno()
    elif name == "question":
        shown.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    elif name == "signal":
        os.kill(os.getpid(), 0)
    elif not (pid := os.fork()):
        try:
            sender.transport.close()
        finally:
            os._exit(0)
    else:
        os.waitpid(pid, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", ["descriptor", "question", "signal", "fork"])
def test_sent_datagrams_have_left_before(run: Run, peers: Any, name: str) -> None:
    async def main() -> None:
        async with endpoint() as sender:
            for _ in range(2):
                for word in (b"one", b"two", b"three"):
                    sender.transport.sendto(word, peers[0].getsockname())
                step(name, sender)
                assert waiting_on(peers[0], 3) == [b"one", b"two", b"three"]

    run(main())


def test_order_with_direct_sends_on_the_socket(run: Run, peers: Any) -> None:
    async def main() -> None:
        ours = socket.socket(type=socket.SOCK_DGRAM)
        ours.bind(("127.0.0.1", 0))
        ours.setblocking(False)
        async with endpoint(sock=ours) as sender:
            expected = []
            for number in range(10):
                for send in (sender.transport.sendto, ours.sendto):
                    send(b"%d" % number, peers[0].getsockname())
                    expected.append(b"%d" % number)
            assert waiting_on(peers[0], 20) == expected

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_each_peer_gets_its_datagrams_in_order(run: Run, peers: Any, seed: int) -> None:
    random_ = random.Random(seed)

    async def main() -> None:
        async with endpoint() as sender:
            for _ in range(20):
                expected: list[list[bytes]] = [[] for _ in peers]
                for _ in range(random_.randrange(1, 100)):
                    at = random_.choice([0, 0, 0, 1, 2])
                    # Runs, their shorter ends, empty ones, and long ones that are not gathered.
                    size = random_.choice([100] * 10 + [99, 101, 1, 0, 1400, 20_000])
                    data: Any = random_.randbytes(size)
                    if size or SENDS_EMPTY:
                        expected[at].append(data)
                    if random_.random() < 0.2:
                        data = bytearray(data)
                    sender.transport.sendto(data, peers[at].getsockname())
                    if isinstance(data, bytearray):
                        data[:] = b"changed after the call"
                await turn()
                arrived = [
                    waiting_on(peer, len(wanted))
                    for peer, wanted in zip(peers, expected, strict=True)
                ]
                # A full receive buffer drops; here it never is full.
                assert arrived == expected, f"seed {seed}"
                assert sender.transport.get_write_buffer_size() == 0
            assert (sender.errors, sender.calls) == ([], ["made"])

    run(main())


def test_a_connected_endpoint_sends_runs_in_order(run: Run, peers: Any) -> None:
    async def main() -> None:
        async with endpoint(remote_addr=peers[0].getsockname()) as sender:
            for _ in range(50):
                sent = [b"%4d" % number for number in range(150)]
                for data in sent:
                    sender.transport.sendto(data)
                await turn()
                assert waiting_on(peers[0], len(sent)) == sent

    run(main())


def test_socket_without_segmentation_loses_nothing(run: Run, peers: Any) -> None:
    async def main() -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        # Without checksums the kernel does not segment: EINVAL.
        sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        async with endpoint(sock=sock) as sender:
            for _ in range(3):
                sent = [b"%4d" % number for number in range(100)]
                for data in sent:
                    sender.transport.sendto(data, peers[0].getsockname())
                await turn()
                assert waiting_on(peers[0], len(sent)) == sent
            assert sender.errors == []

    run(main())


def test_failed_datagram_does_not_affect_others(run: Run, peers: Any) -> None:
    async def main() -> None:
        async with endpoint() as sender:
            to = peers[0].getsockname()
            for number in range(6):
                sender.transport.sendto(b"%d" % number, to)
                # Broadcasting requires SO_BROADCAST.
                sender.transport.sendto(b"refused", ("255.255.255.255", 9))
            sender.transport.sendto(bytes(LARGEST + 1), to)
            await turn()
            assert waiting_on(peers[0], 6) == [b"%d" % number for number in range(6)]
            kinds = [type(error) for error in sender.errors]
            assert kinds == [PermissionError] * 6 + [OSError]
            assert not sender.transport.is_closing()

    run(main())


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_datagrams_sent_before_the_end_have_left(run: Run, peers: Any, ending: str) -> None:
    async def main() -> None:
        async with endpoint() as sender:
            sent = [b"%d" % number for number in range(30)]
            for data in sent:
                sender.transport.sendto(data, peers[0].getsockname())
            getattr(sender.transport, ending)()
            assert waiting_on(peers[0], len(sent)) == sent
            # Until its socket is closed an endpoint without a peer still sends.
            sender.transport.sendto(b"one", peers[0].getsockname())
            sender.transport.sendto(b"two", peers[0].getsockname())
            assert waiting_on(peers[0], 2) == [b"one", b"two"]

    run(main())


def test_datagrams_leave_at_once_while_the_loop_does_not_run(
    loop: asyncio.AbstractEventLoop, peers: Any
) -> None:
    made: list[Recorder] = []

    async def begin() -> None:
        _, protocol = await loop.create_datagram_endpoint(Recorder, local_addr=("127.0.0.1", 0))
        made.append(protocol)
        for data in (b"0", b"1", b"2"):
            protocol.transport.sendto(data, peers[0].getsockname())

    async def end() -> None:
        made[0].transport.close()
        await made[0].lost

    loop.run_until_complete(begin())
    assert waiting_on(peers[0], 3) == [b"0", b"1", b"2"]
    for data in (b"3", b"4", b"5"):
        made[0].transport.sendto(data, peers[0].getsockname())
    assert waiting_on(peers[0], 3) == [b"3", b"4", b"5"]
    loop.run_until_complete(end())


def test_another_thread_may_send_to_an_idle_loop(run: Run, peers: Any) -> None:
    arrived: list[bytes] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with endpoint() as sender:
            over = loop.create_future()

            def work() -> None:
                for data in (b"a", bytearray(b"b"), b"c"):
                    sender.transport.sendto(data, peers[0].getsockname())

                def come() -> bool:
                    arrived.extend(waiting_on(peers[0]))
                    return len(arrived) == 3

                # Nothing else wakes the loop.
                wait_until_blocking(come)
                loop.call_soon_threadsafe(over.set_result, None)

            thread = threading.Thread(target=work)
            thread.start()
            await over
            thread.join()

    run(main())
    assert arrived == [b"a", b"b", b"c"]


def test_sends_from_error_received_do_not_block_the_loop(run: Run, peers: Any) -> None:
    class Insists(Recorder):
        def error_received(self, exc: Exception) -> None:
            super().error_received(exc)
            if len(self.errors) < 100:
                self.transport.sendto(b"again", ("255.255.255.255", 9))

    async def main() -> None:
        async with endpoint(Insists) as sender:
            sender.transport.sendto(b"first", peers[0].getsockname())
            sender.transport.sendto(b"refused", ("255.255.255.255", 9))
            await wait_until(lambda: len(sender.errors) == 100)
            assert waiting_on(peers[0], 1) == [b"first"]

    run(main())


def test_interrupt_in_error_received_leaves_no_datagram_behind(
    loop: asyncio.AbstractEventLoop, loop_name: str, peers: Any
) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio raises it out of sendto")

    class Interrupts(Recorder):
        def error_received(self, exc: Exception) -> None:
            raise KeyboardInterrupt

    made: list[Recorder] = []

    async def begin() -> None:
        _, protocol = await loop.create_datagram_endpoint(Interrupts, local_addr=("127.0.0.1", 0))
        made.append(protocol)
        to = peers[0].getsockname()
        for data in (b"0", b"1"):
            protocol.transport.sendto(data, to)
        protocol.transport.sendto(b"refused", ("255.255.255.255", 9))
        protocol.transport.sendto(b"2", to)
        await loop.create_future()

    async def end() -> None:
        made[0].transport.close()
        await made[0].lost

    beginning = loop.create_task(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert waiting_on(peers[0], 3) == [b"0", b"1", b"2"]
    beginning.cancel()
    loop.run_until_complete(end())
    assert beginning.cancelled()


@pytest.mark.loop_errors
def test_non_contiguous_data_ends_the_endpoint(
    run: Run, loop: asyncio.AbstractEventLoop, peers: Any
) -> None:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    async def main() -> None:
        async with endpoint() as sender:
            sender.transport.sendto(b"first", peers[0].getsockname())
            sender.transport.sendto(memoryview(b"abcdef")[::2], peers[0].getsockname())
            await turn()
            assert sender.transport.is_closing()
            assert [type(context["exception"]) for context in told] == [BufferError]
            assert waiting_on(peers[0], 1) == [b"first"]

    run(main())


def test_descriptor_closed_by_the_user_is_not_written_to(run: Run, peers: Any) -> None:
    async def main() -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        async with endpoint(sock=sock) as sender:
            sender.transport.pause_reading()
            await turn()
            number = sock.fileno()
            sock.close()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                if other.fileno() != number:
                    os.dup2(other.fileno(), number)
                for _ in range(5):
                    sender.transport.sendto(b"to nobody", peers[0].getsockname())
                await turn()
                assert waiting_on(peers[0]) == []
                assert [error.errno for error in sender.errors] == [9] * 5  # EBADF
                if other.fileno() != number:
                    os.close(number)

    run(main())


def test_write_from_error_received_leaves_at_once(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        control, _ = await loop.create_connection(asyncio.Protocol, sock=ours)

        class Reports(Recorder):
            def error_received(self, exc: Exception) -> None:
                super().error_received(exc)
                control.write(b"peer is down")

        # Keeps the port, and receives only from its connected peer: ours are refused.
        deaf = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        deaf.bind(("127.0.0.1", 0))
        deaf.connect(("127.0.0.1", 9))
        udp, _ = await loop.create_datagram_endpoint(Reports, remote_addr=deaf.getsockname())
        theirs.settimeout(PATIENCE_SECONDS / 2)
        # Nothing else wakes the loop before the thread has received it.
        heard = loop.run_in_executor(None, theirs.recv, 64)
        udp.sendto(b"1")
        udp.sendto(b"2")
        assert (await heard).startswith(b"peer is down")
        udp.close()
        control.close()
        theirs.close()
        deaf.close()

    run(main())
