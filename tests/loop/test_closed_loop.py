"""A loop after `close()`: asyncio's errors, and no crash."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import ssl
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

CLOSED = "Event loop is closed"


@pytest.fixture
def shut(loop_factory: LoopFactory) -> Any:
    """A loop that has run and is closed."""
    loop = loop_factory()
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    return loop


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    yield left, right
    left.close()
    right.close()


Pair = tuple[socket.socket, socket.socket]


@contextlib.contextmanager
def half_made() -> Iterator[None]:
    """Ignore what asyncio itself leaves unclosed when a loop is closed during an operation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; fail if it waits for something."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()
    pytest.fail("it waits for a loop that is closed")


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda loop: loop.call_soon(print), id="call_soon"),
        pytest.param(lambda loop: loop.call_later(1, print), id="call_later"),
        pytest.param(lambda loop: loop.call_later(0, print), id="call_later at once"),
        pytest.param(lambda loop: loop.call_at(1, print), id="call_at"),
        pytest.param(lambda loop: loop.call_soon_threadsafe(print), id="call_soon_threadsafe"),
        pytest.param(lambda loop: loop.run_forever(), id="run_forever"),
        pytest.param(lambda loop: loop.run_in_executor(None, print), id="run_in_executor"),
        pytest.param(
            lambda loop: loop.add_signal_handler(signal.SIGUSR1, print), id="add_signal_handler"
        ),
    ],
)
def test_closed_loop_refuses(shut: Any, use: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match=CLOSED):
        use(shut)


def test_closed_loop_refuses_coroutines(shut: Any) -> None:
    for use in (shut.create_task, shut.run_until_complete):
        coroutine = asyncio.sleep(0)
        with pytest.raises(RuntimeError, match=CLOSED):
            use(coroutine)
        coroutine.close()


def test_closed_loop_does_not_watch(shut: Any, pair: Pair) -> None:
    for watch in (shut.add_reader, shut.add_writer):
        with pytest.raises(RuntimeError, match=CLOSED):
            watch(pair[0], print)
    assert shut.remove_reader(pair[0]) is False
    assert shut.remove_writer(pair[0]) is False


def test_closed_loop_refuses_socket_operations(shut: Any, pair: Pair) -> None:
    left, right = pair
    address = ("127.0.0.1", 9)
    for begin in (
        lambda: shut.sock_recv(left, 10),
        lambda: shut.sock_recv_into(left, bytearray(10)),
        lambda: shut.sock_recvfrom(left, 10),
        lambda: shut.sock_recvfrom_into(left, bytearray(10)),
    ):
        with pytest.raises(RuntimeError, match=CLOSED):
            step(begin())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with pytest.raises(RuntimeError, match=CLOSED):
            step(shut.sock_accept(listener))
    with socket.socket() as client:
        client.setblocking(False)
        with pytest.raises((RuntimeError, OSError)):
            step(shut.sock_connect(client, address))
    # More than the kernel accepts.
    with pytest.raises(RuntimeError, match=CLOSED):
        step(shut.sock_sendall(left, bytes(8 << 20)))
    del right


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda loop: loop.getaddrinfo("localhost", 1), id="getaddrinfo"),
        pytest.param(lambda loop: loop.getnameinfo(("127.0.0.1", 1)), id="getnameinfo"),
        pytest.param(
            lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 1),
            id="create_connection",
        ),
        pytest.param(
            lambda loop: loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
            ),
            id="create_datagram_endpoint",
        ),
    ],
)
def test_closed_loop_opens_nothing(
    shut: Any, begin: Callable[[Any], Coroutine[Any, Any, Any]]
) -> None:
    with half_made(), pytest.raises(RuntimeError, match=CLOSED):
        step(begin(shut))


def test_closed_loop_makes_no_transport(shut: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    begins: list[Callable[[socket.socket], Coroutine[Any, Any, Any]]] = [
        lambda sock: shut.create_connection(asyncio.Protocol, sock=sock),
        lambda sock: shut.create_connection(
            asyncio.Protocol, sock=sock, ssl=context, server_hostname="localhost"
        ),
        lambda sock: shut.connect_accepted_socket(asyncio.Protocol, sock),
    ]
    for begin in begins:
        left, right = socket_pair()
        with half_made():
            with pytest.raises(RuntimeError, match=CLOSED):
                step(begin(left))
            del begin
            left.close()
            right.close()


def test_closed_loop_still_answers_queries(shut: Any) -> None:
    assert shut.is_closed()
    assert not shut.is_running()
    assert shut.time() > 0
    shut.close()
    shut.stop()
    assert shut.create_future().get_loop() is shut
    assert shut.remove_signal_handler(signal.SIGUSR1) is False
    shut.set_debug(True)
    assert shut.get_debug()
    shut.set_debug(False)
    shut.set_task_factory(None)
    assert shut.get_task_factory() is None
    shut.set_exception_handler(print)
    assert shut.get_exception_handler() is print
    executor = ThreadPoolExecutor()
    shut.set_default_executor(executor)
    executor.shutdown()
    assert step(shut.shutdown_asyncgens()) is None
    assert "closed=True" in repr(shut)


@pytest.mark.loop_errors
def test_closed_loop_reports_exceptions(shut: Any, loop_log: support.LoopLog) -> None:
    shut.call_exception_handler({"message": "told after the end"})
    assert loop_log.take() == ["told after the end"]


def test_future_of_a_closed_loop(shut: Any) -> None:
    future = shut.create_future()
    future.set_result(1)
    assert future.result() == 1
    with pytest.raises(RuntimeError, match=CLOSED):
        future.add_done_callback(print)
    waiting = shut.create_future()
    waiting.add_done_callback(print)
    with pytest.raises(RuntimeError, match=CLOSED):
        waiting.set_result(2)


def test_handles_outlive_their_loop(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    handle, timer = loop.call_soon(print), loop.call_later(5, print)
    loop.close()
    handle.cancel()
    timer.cancel()
    assert handle.cancelled()
    assert timer.cancelled()
    assert "cancelled" in repr(timer)


def test_transport_of_a_closed_loop(loop_name: str, loop_factory: LoopFactory) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's transport stays half open, and warns when it is collected")
    loop = loop_factory()
    left, right = socket_pair()
    protocol = Recorder()
    transport: Any
    transport, _ = loop.run_until_complete(loop.create_connection(lambda: protocol, sock=left))
    with half_made():
        loop.close()
        for use in (
            lambda: transport.write(b"late"),
            lambda: transport.writelines([b"late"]),
            transport.pause_reading,
            transport.resume_reading,
            transport.get_write_buffer_size,
            transport.is_closing,
            lambda: repr(transport),
            transport.close,
            transport.abort,
        ):
            try:
                use()
            except RuntimeError as error:
                assert CLOSED in str(error)
        assert loop.is_closed()
        left.close()
        right.close()
        # A late write does not keep it alive, and it warns as asyncio's does.
        kept = weakref.ref(transport)
        transport = protocol.transport = None
        del use
        gc.collect()
        assert kept() is None
