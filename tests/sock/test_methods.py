"""Operations on the user's own sockets: results, errors, and the state after a cancel."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


@pytest.fixture
def datagrams() -> Iterator[Pair]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as left,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as right,
    ):
        for sock in (left, right):
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
        yield left, right


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        yield sock


class Overriding(socket.socket):
    """A subclass whose methods must be called."""

    calls: list[str]

    def recv(self, *args: Any) -> bytes:
        self.calls.append("recv")
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        self.calls.append("recv_into")
        return super().recv_into(*args)

    def send(self, *args: Any) -> int:
        self.calls.append("send")
        return super().send(*args)


async def started(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run a coroutine as a task until it waits."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


def fill(sock: socket.socket) -> int:
    """Send until the socket is full."""
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += sock.send(b"\0" * 65536)
    return sent


async def drain(loop: Loop, sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += await support.within(loop.sock_recv(sock, 65536))
    return bytes(data)


# --- results -------------------------------------------------------------------------------------


def test_recv_returns_at_most_n_bytes(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        pair[1].send(b"abcdef")
        assert await loop.sock_recv(pair[0], 4) == b"abcd"
        assert await loop.sock_recv(pair[0], 100) == b"ef"
        assert await loop.sock_recv(pair[0], 0) == b""

    run(main())


def test_recv_waits_for_bytes_and_for_the_end(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        task = await started(loop.sock_recv(pair[0], 100))
        assert not task.done()
        pair[1].send(b"late")
        assert await support.within(task) == b"late"
        task = await started(loop.sock_recv(pair[0], 100))
        pair[1].shutdown(socket.SHUT_WR)
        assert await support.within(task) == b""

    run(main())


def test_recv_into_writes_the_users_memory(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        memory = bytearray(b"........")
        pair[1].send(b"now")
        assert await loop.sock_recv_into(pair[0], memory) == 3
        task = await started(loop.sock_recv_into(pair[0], memoryview(memory)[3:6]))
        pair[1].send(b"later")
        assert await support.within(task) == 3
        assert memory == b"nowlat.."
        assert await loop.sock_recv_into(pair[0], bytearray()) == 0

    run(main())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_sendall_sends_all_of_a_large_buffer(loop: Loop, run: Any, pair: Pair, kind: Any) -> None:
    data = random.Random(1).randbytes(3 << 20)

    async def main() -> None:
        sending = await started(loop.sock_sendall(pair[1], kind(data)))
        assert not sending.done()
        assert await drain(loop, pair[0], len(data)) == data
        await support.within(sending)
        await loop.sock_sendall(pair[1], b"")

    run(main())


def test_sendall_locks_the_buffer_while_it_waits(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        data = bytearray(4 << 20)
        sending = await started(loop.sock_sendall(pair[1], data))
        with pytest.raises(BufferError):
            data.clear()
        await drain(loop, pair[0], len(data))
        await support.within(sending)
        del sending
        data.clear()

    run(main())


def test_datagrams_carry_their_addresses(loop: Loop, run: Any, datagrams: Pair) -> None:
    left, right = datagrams

    async def main() -> None:
        task = await started(loop.sock_recvfrom(left, 100))
        assert await loop.sock_sendto(right, b"one", left.getsockname()) == 3
        assert await support.within(task) == (b"one", right.getsockname())
        memory = bytearray(10)
        task = await started(loop.sock_recvfrom_into(left, memory))
        assert await loop.sock_sendto(right, b"two", left.getsockname()) == 3
        assert await support.within(task) == (3, right.getsockname())
        assert await loop.sock_sendto(right, b"three", left.getsockname()) == 5
        assert await loop.sock_recvfrom_into(left, memory, 4) == (4, right.getsockname())
        assert memory[:5] == b"thre\0"

    run(main())


def test_sendto_waits_for_room(loop: Loop, run: Any) -> None:
    async def main(folder: str) -> None:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as right,
        ):
            path = f"{folder}/socket"
            left.bind(path)
            left.setblocking(False)
            right.setblocking(False)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    right.sendto(b"fill", path)
                    sent += 1
            sending = await started(loop.sock_sendto(right, b"last", path))
            assert not sending.done()
            for _ in range(sent):
                assert await loop.sock_recv(left, 10) == b"fill"
            assert await support.within(sending) == 4
            assert await loop.sock_recvfrom(left, 10) == (b"last", None)

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run(main(folder))


def test_accept_and_connect_meet(loop: Loop, run: Any, listener: socket.socket) -> None:
    async def main() -> None:
        accepting = await started(loop.sock_accept(listener))
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, listener.getsockname())
            accepted, address = await support.within(accepting)
            with accepted:
                assert address == client.getsockname()
                assert accepted.gettimeout() == 0
                await loop.sock_sendall(client, b"hello")
                assert await support.within(loop.sock_recv(accepted, 10)) == b"hello"

    run(main())


def test_connect_resolves_names(loop: Loop, run: Any, listener: socket.socket) -> None:
    async def main() -> None:
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("localhost", listener.getsockname()[1]))
            assert client.getpeername() == listener.getsockname()

    run(main())


def test_methods_of_a_socket_subclass_are_called(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        mine = Overriding(fileno=pair[0].detach())
        mine.calls = []
        with mine:
            receiving = await started(loop.sock_recv(mine, 10))
            pair[1].send(b"x")
            assert await support.within(receiving) == b"x"
            pair[1].send(b"y")
            assert await loop.sock_recv_into(mine, bytearray(4)) == 1
            assert mine.calls == ["recv", "recv", "recv_into"]
            mine.calls = []
            data = os.urandom(2 << 20)
            sending = await started(loop.sock_sendall(mine, data))
            assert await drain(loop, pair[1], len(data)) == data
            await support.within(sending)
            assert set(mine.calls) == {"send"}

    run(main())


# --- errors --------------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
    "sock_recv": lambda loop, sock: loop.sock_recv(sock, 1),
    "sock_recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(1)),
    "sock_recvfrom": lambda loop, sock: loop.sock_recvfrom(sock, 1),
    "sock_recvfrom_into": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(1)),
    "sock_sendall": lambda loop, sock: loop.sock_sendall(sock, b"x"),
    "sock_sendto": lambda loop, sock: loop.sock_sendto(sock, b"x", ("127.0.0.1", 1)),
    "sock_accept": lambda loop, sock: loop.sock_accept(sock),
    "sock_connect": lambda loop, sock: loop.sock_connect(sock, ("127.0.0.1", 1)),
}
each_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@each_operation
def test_tls_sockets_are_refused(loop: Loop, run: Any, pair: Pair, operation: Any) -> None:
    context = ssl.create_default_context()

    async def main() -> None:
        with context.wrap_socket(
            socket.socket(), server_hostname="x", do_handshake_on_connect=False
        ) as sock:
            sock.setblocking(False)
            with pytest.raises(TypeError, match="Socket cannot be of type SSLSocket"):
                await operation(loop, sock)

    run(main())


@each_operation
def test_debug_mode_refuses_blocking_sockets(loop: Loop, run: Any, operation: Any) -> None:
    async def main() -> None:
        loop.set_debug(True)
        with (
            socket.socket() as sock,
            pytest.raises(ValueError, match="the socket must be non-blocking"),
        ):
            await operation(loop, sock)

    run(main())


@each_operation
def test_a_closed_socket_is_an_os_error(loop: Loop, run: Any, operation: Any) -> None:
    async def main() -> None:
        sock = socket.socket()
        sock.close()
        with pytest.raises(OSError) as caught:
            await operation(loop, sock)
        assert caught.value.errno == errno.EBADF

    run(main())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda loop, sock: loop.sock_recv(sock, -1), ValueError),
        (lambda loop, sock: loop.sock_recv(sock, "1"), TypeError),
        (lambda loop, sock: loop.sock_recv_into(sock, b"read-only"), TypeError),
        (lambda loop, sock: loop.sock_recv_into(sock, "text"), TypeError),
        (lambda loop, sock: loop.sock_sendall(sock, "text"), TypeError),
    ],
)
def test_wrong_arguments_are_the_sockets_own_errors(
    loop: Loop, run: Any, pair: Pair, call: Any, error: type[Exception]
) -> None:
    async def main() -> None:
        with pytest.raises(error):
            await call(loop, pair[0])

    run(main())


def test_reset_reaches_a_waiting_receive(loop: Loop, run: Any, listener: socket.socket) -> None:
    async def main() -> None:
        with socket.create_connection(listener.getsockname()) as client:
            client.setblocking(False)
            accepted, _ = listener.accept()
            receiving = await started(loop.sock_recv(client, 10))
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            accepted.close()
            with pytest.raises(ConnectionResetError):
                await support.within(receiving)
            with pytest.raises(BrokenPipeError):
                await loop.sock_sendall(client, b"x")

    run(main())


def test_a_refused_connection_names_the_address(loop: Loop, run: Any) -> None:
    async def main() -> None:
        # Bound, so that the port stays reserved, and not listening.
        with socket.socket() as refusing, socket.socket() as client:
            refusing.bind(("127.0.0.1", 0))
            address = refusing.getsockname()
            client.setblocking(False)
            with pytest.raises(ConnectionRefusedError, match="Connect call failed") as caught:
                await support.within(loop.sock_connect(client, address))
            assert str(address) in str(caught.value)

    run(main())


def test_the_descriptor_of_a_transport_is_refused(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, pair[0])
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.sock_recv(pair[0], 1)
        transport.abort()
        await asyncio.sleep(0)

    run(main())


# --- cancellation --------------------------------------------------------------------------------


def test_a_cancelled_receive_leaves_the_bytes_to_the_next(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        for order in ("cancel first", "bytes first", "only cancel"):
            receiving = await started(loop.sock_recv(pair[0], 10))
            if order == "bytes first":
                pair[1].send(b"data")
            receiving.cancel()
            if order == "cancel first":
                pair[1].send(b"data")
            await cancelled(receiving)
            if order == "only cancel":
                pair[1].send(b"data")
            assert await support.within(loop.sock_recv(pair[0], 10)) == b"data"

    run(main())


def test_next_receive_may_start_before_a_cancelled_one_ends(
    loop: Loop, run: Any, pair: Pair
) -> None:
    async def main() -> None:
        first = await started(loop.sock_recv(pair[0], 10))
        first.cancel()
        second = asyncio.ensure_future(loop.sock_recv(pair[0], 10))
        await cancelled(first)
        assert not second.done()
        pair[1].send(b"data")
        assert await support.within(second) == b"data"

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_cancels_at_any_moment_lose_no_byte(
    loop_name: str, loop: Loop, run: Any, seed: int
) -> None:
    """A task cancelled between the readiness of its socket and its next step has received nothing.

    asyncio receives on readiness, and drops the bytes if the task is cancelled after that.
    """
    if loop_name == support.ORACLE:
        pytest.skip("asyncio loses bytes here")
    dice = random.Random(seed)
    data = dice.randbytes(2000)

    async def main(left: socket.socket, right: socket.socket) -> None:
        received = bytearray()
        sent = 0
        while len(received) < len(data):
            task = asyncio.ensure_future(loop.sock_recv(left, 7))
            for _ in range(dice.randrange(4)):
                if dice.random() < 0.5 and sent < len(data):
                    sent += right.send(data[sent : sent + dice.randrange(1, 10)])
                await asyncio.sleep(0)
            if sent > len(received) and dice.random() < 0.5:
                received += await support.within(task)
                continue
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                received += await task
            if sent == len(received) < len(data):
                sent += right.send(data[sent : sent + 1])
        assert received == data

    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        run(main(left, right))


def test_a_cancelled_accept_leaves_the_connection(
    loop: Loop, run: Any, listener: socket.socket
) -> None:
    async def main() -> None:
        accepting = await started(loop.sock_accept(listener))
        accepting.cancel()
        await cancelled(accepting)
        with socket.create_connection(listener.getsockname()) as client:
            accepted, address = await support.within(loop.sock_accept(listener))
            with accepted:
                assert address == client.getsockname()

    run(main())


def test_a_cancelled_send_frees_buffer_and_socket(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        before = fill(pair[1])
        data = bytearray(b"x" * 100)
        sending = await started(loop.sock_sendall(pair[1], data))
        sending.cancel()
        await cancelled(sending)
        del sending
        assert len(await drain(loop, pair[0], before)) == before
        await loop.sock_sendall(pair[1], b"y")
        assert await support.within(loop.sock_recv(pair[0], 10)) == b"y"

    run(main())


def test_a_failed_send_has_returned_its_buffer(loop: Loop, run: Any, pair: Pair) -> None:
    """While its exception is handled, which refers to the frames of the call."""

    async def main() -> None:
        fill(pair[1])
        data = bytearray(b"x" * 100)
        sending = await started(loop.sock_sendall(pair[1], data))
        with pytest.raises(BufferError):
            data.extend(b"more")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError) as failure:
            await sending
        data.extend(b"more")
        assert failure.value.__traceback__ is not None

    run(main())


@pytest.mark.one_thread("counts on the numbers of new descriptors")
def test_a_cancelled_operation_stops_watching(loop: Loop, run: Any, pair: Pair) -> None:
    """Another socket may reuse the descriptor's number immediately."""

    async def main() -> None:
        left, right = pair
        for _ in range(20):
            receiving = await started(loop.sock_recv(left, 10))
            receiving.cancel()
            await cancelled(receiving)
            number = left.fileno()
            left.close()
            right.close()
            left, right = socket.socketpair()
            left.setblocking(False)
            right.setblocking(False)
            assert number in {left.fileno(), right.fileno()}
            receiving = await started(loop.sock_recv(left, 10))
            right.send(b"new")
            assert await support.within(receiving) == b"new"
        left.close()
        right.close()

    run(main())


def test_wait_for_ends_a_receive(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.sock_recv(pair[0], 10), 0.01)
        pair[1].send(b"data")
        assert await loop.sock_recv(pair[0], 10) == b"data"

    run(main())


def test_closing_the_loop_during_an_operation(loop_factory: Any, pair: Pair) -> None:
    loop = loop_factory()
    coroutine = loop.sock_recv(pair[0], 10)
    loop.call_soon(loop.stop)
    task = loop.create_task(coroutine)
    loop.run_forever()
    loop.call_soon(loop.stop)
    loop.run_forever()
    task._log_destroy_pending = False
    loop.close()
    pair[1].send(b"data")
    assert pair[0].recv(10) == b"data"
    coroutine.close()


def test_both_directions_wait_concurrently(loop: Loop, run: Any, pair: Pair) -> None:
    async def main() -> None:
        before = fill(pair[0])
        receiving = await started(loop.sock_recv(pair[0], 10))
        sending = await started(loop.sock_sendall(pair[0], b"end"))
        assert not receiving.done()
        assert not sending.done()
        pair[1].send(b"in")
        assert await support.within(receiving) == b"in"
        assert (await drain(loop, pair[1], before + 3)).endswith(b"end")
        await support.within(sending)

    run(main())
