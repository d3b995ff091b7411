"""getaddrinfo and getnameinfo: results of `socket`, no thread for addresses, no waiting at close."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Factory, ask, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

LOOPBACK_ZONE = f"%{socket.if_indextoname(1)}"

LOOKUPS: dict[str, tuple[Any, Any, dict[str, int]]] = {
    "IPv4": ("127.0.0.1", 80, {}),
    "IPv6": ("::1", 80, {}),
    "bytes": (b"127.0.0.1", 80, {}),
    "bytes of IPv6": (b"::1", 80, {}),
    "zone by name": (f"fe80::1{LOOPBACK_ZONE}", 80, {}),
    "zone by number": ("fe80::1%1", 80, {}),
    "unknown zone": ("fe80::1%nowhere9", 80, {}),
    "mapped": ("::ffff:127.0.0.1", 80, {}),
    "short form": ("127.1", 80, {}),
    "number": ("2130706433", 80, {}),
    "hexadecimal": ("0x7f000001", 80, {}),
    "leading zeros": ("127.0.0.01", 80, {}),
    "out of range": ("256.0.0.1", 80, {"flags": socket.AI_NUMERICHOST}),
    "None": (None, 80, {}),
    "None, passive": (None, 80, {"flags": socket.AI_PASSIVE}),
    "None, stream": (None, 80, {"type": socket.SOCK_STREAM}),
    "None and None": (None, None, {}),
    "empty": ("", 80, {"flags": socket.AI_NUMERICHOST}),
    "empty bytes": (b"", 80, {"flags": socket.AI_NUMERICHOST}),
    "localhost": ("localhost", 80, {"type": socket.SOCK_STREAM}),
    "service": ("127.0.0.1", "http", {"type": socket.SOCK_STREAM}),
    "service in bytes": ("127.0.0.1", b"http", {"type": socket.SOCK_STREAM}),
    "unknown service": ("127.0.0.1", "no-such-service", {}),
    "port in digits": ("127.0.0.1", "8080", {}),
    "port in bytes": ("127.0.0.1", b"8080", {}),
    "empty port": ("127.0.0.1", "", {}),
    "no port": ("127.0.0.1", None, {}),
    "port zero": ("127.0.0.1", 0, {}),
    "port too large": ("127.0.0.1", 65536 + 80, {}),
    "port out of range": ("127.0.0.1", 1 << 70, {}),
    "negative port": ("127.0.0.1", -1, {}),
    "stream": ("127.0.0.1", 80, {"type": socket.SOCK_STREAM}),
    "datagram": ("::1", 80, {"type": socket.SOCK_DGRAM}),
    "protocol": ("::1", 80, {"proto": socket.IPPROTO_TCP}),
    "raw": ("::1", 0, {"type": socket.SOCK_RAW}),
    "family": ("127.0.0.1", 80, {"family": socket.AF_INET}),
    "other family": ("127.0.0.1", 80, {"family": socket.AF_INET6}),
    "mapped by flag": (
        "127.0.0.1",
        80,
        {"family": socket.AF_INET6, "flags": socket.AI_V4MAPPED},
    ),
    "canonical name": ("127.0.0.1", 80, {"flags": socket.AI_CANONNAME}),
    "numeric service": ("127.0.0.1", "http", {"flags": socket.AI_NUMERICSERV}),
    "bad flags": ("127.0.0.1", 80, {"flags": 0x7FFFFFFF}),
    "bad type": ("127.0.0.1", 80, {"type": 99}),
    "bad family": ("127.0.0.1", 80, {"family": 99}),
    "name where an address is asked for": ("localhost", 80, {"flags": socket.AI_NUMERICHOST}),
    "zero byte": ("127.0.0.1\0", 80, {}),
    "host of a wrong type": (127, 80, {}),
    "port of a wrong type": ("127.0.0.1", 80.5, {}),
}


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return type(error), error.args


@pytest.mark.parametrize("name", LOOKUPS)
def test_answers_are_those_of_the_socket_module(loop: Any, name: str) -> None:
    host, port, hints = LOOKUPS[name]
    arguments = [hints.get(hint, 0) for hint in ("family", "type", "proto", "flags")]
    expected = outcome(lambda: socket.getaddrinfo(host, port, *arguments))
    assert (
        outcome(lambda: loop.run_until_complete(loop.getaddrinfo(host, port, **hints))) == expected
    )
    loop.run_until_complete(loop.shutdown_default_executor())


@pytest.mark.parametrize(
    ("address", "flags"),
    [
        (("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("127.0.0.1", 80), socket.NI_NUMERICHOST),
        (("127.0.0.1", 53), socket.NI_NUMERICHOST | socket.NI_DGRAM),
        (("::1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("::1", 80, 0, 1), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("fe80::1", 80, 0, 1), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("127.0.0.1", 80), 0),
        (("127.0.0.1", 80), socket.NI_NAMEREQD | socket.NI_NUMERICSERV),
        (("127.0.0.1",), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        ((), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        ("127.0.0.1", socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("127.0.0.1", "http"), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("127.0.0.1", 80, 1 << 30), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
    ],
)
def test_names_are_those_of_the_socket_module(loop: Any, address: Any, flags: int) -> None:
    expected = outcome(lambda: socket.getnameinfo(address, flags))
    assert outcome(lambda: loop.run_until_complete(loop.getnameinfo(address, flags))) == expected
    loop.run_until_complete(loop.shutdown_default_executor())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record which functions of `socket` are called, and in which thread."""
    noted: list[tuple[str, str]] = []

    def spy(name: str) -> None:
        real = getattr(socket, name)

        def call(*arguments: Any) -> Any:
            noted.append((name, threading.current_thread().name))
            return real(*arguments)

        monkeypatch.setattr(socket, name, call)

    spy("getaddrinfo")
    spy("getnameinfo")
    return noted


def test_an_address_needs_no_thread(
    loop_name: str, loop: Any, run: Run, calls: list[tuple[str, str]]
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio asks a thread")

    async def main() -> None:
        await loop.getaddrinfo("::1", 80)
        await loop.getaddrinfo(None, "80", type=socket.SOCK_STREAM)
        await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)

    threads = threading.active_count()
    run(main())
    assert calls == [("getaddrinfo", "MainThread")] * 2 + [("getnameinfo", "MainThread")]
    assert threading.active_count() <= threads
    assert loop._default_executor is None


def test_name_is_resolved_in_a_thread(loop: Any, run: Run, calls: list[tuple[str, str]]) -> None:
    run(loop.getaddrinfo("localhost", 80))
    run(loop.getaddrinfo("127.0.0.1", "http"))
    run(loop.getnameinfo(("127.0.0.1", 80), socket.NI_NAMEREQD))
    assert [name for name, _ in calls] == ["getaddrinfo", "getaddrinfo", "getnameinfo"]
    assert "MainThread" not in {thread for _, thread in calls}


def test_users_executor_resolves_names(loop: Any, run: Run, calls: list[tuple[str, str]]) -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:
        loop.set_default_executor(executor)
        run(loop.getaddrinfo("localhost", 80))
        run(loop.shutdown_default_executor())
    assert calls == [("getaddrinfo", "mine_0")]


def test_many_names_at_once_are_bounded(
    loop: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, most = 0, 0
    lock = threading.Lock()

    def slow(*_: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def main() -> None:
        await asyncio.gather(*(loop.getaddrinfo(f"host{n}.invalid", 80) for n in range(200)))

    run(main())
    assert 1 <= most <= 32


def test_errors_of_the_resolver_reach_the_caller(
    loop: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(socket.gaierror, match="try again"):
        run(loop.getaddrinfo("name.invalid", 80))
    with pytest.raises(socket.gaierror, match="try again"):
        run(loop.create_connection(asyncio.Protocol, "name.invalid", 80))


def test_failed_thread_starts_are_retried(
    loop: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refusals = threading.Thread.start, iter(range(40))

    def refuse(thread: threading.Thread) -> None:
        if next(refusals, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(40):
            with pytest.raises(RuntimeError, match="new thread"):
                await loop.getaddrinfo("localhost", 80)
        assert await support.within(loop.getaddrinfo("localhost", 80))

    run(main())


def test_lookups_after_a_thread_shortage_run_in_parallel(
    loop: Any, loop_name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop_name == "asyncio":
        pytest.skip("its executor may count threads as idle that are not there")
    start, refusals = threading.Thread.start, iter(range(8))
    together = threading.Barrier(4)

    def refuse(thread: threading.Thread) -> None:
        if next(refusals, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    def slow(*_: Any) -> Any:
        # Requires four threads at once.
        together.wait(support.PATIENCE_SECONDS)
        return []

    def ask(count: int) -> Any:
        names = (loop.getaddrinfo(f"host{n}.invalid", 80) for n in range(count))
        return asyncio.gather(*names, return_exceptions=True)

    async def main() -> None:
        await loop.getaddrinfo("localhost", 80)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
        monkeypatch.setattr(threading.Thread, "start", refuse)
        # Lookups that get no thread of their own wait for the existing one.
        await support.within(ask(5))
        for _ in refusals:
            pass
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        assert await support.within(ask(4)) == [[]] * 4

    run(main())


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A name server that does not answer until the event is set."""
    answer = threading.Event()
    real = socket.getaddrinfo

    def slow(host: Any, *arguments: Any) -> Any:
        if host == "slow.invalid":
            answer.wait(support.PATIENCE_SECONDS)
        return real("127.0.0.1", *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    yield answer
    answer.set()


def test_slow_resolver_does_not_block_close(
    loop_name: str, loop_factory: LoopFactory, stuck: threading.Event
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio.run() waits for the executor's threads, 300 seconds by default")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("slow.invalid", 80), 0.01)

    start = time.monotonic()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert time.monotonic() - start < support.PATIENCE_SECONDS / 2
    stuck.set()


def test_slow_resolver_does_not_block_other_lookups(
    loop: Any, run: Run, stuck: threading.Event
) -> None:
    async def main() -> None:
        slow = asyncio.ensure_future(loop.getaddrinfo("slow.invalid", 80))
        await asyncio.sleep(0.001)
        for _ in range(3):
            assert await support.within(loop.getaddrinfo("fast.invalid", 80))
        assert not slow.done()
        stuck.set()
        assert await support.within(slow)

    run(main())


def test_cancelled_lookup_is_forgotten(loop: Any, run: Run, stuck: threading.Event) -> None:
    async def main() -> None:
        lookup = asyncio.ensure_future(loop.getaddrinfo("slow.invalid", 80))
        await asyncio.sleep(0.005)
        lookup.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lookup
        stuck.set()
        assert await support.within(loop.getaddrinfo("fast.invalid", 80))

    run(main())


def test_lookup_after_the_executors_shutdown_is_refused(loop: Any, run: Run) -> None:
    run(loop.shutdown_default_executor())
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
            run(loop.getaddrinfo(host, 80))


def test_connections_to_names(run: Run) -> None:
    async def main() -> None:
        async with serving(Factory()) as (_, address):
            assert await ask(("localhost", address[1])) == b"ping"

    run(main())


def test_debug_mode_logs_lookups(loop: Any, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    with caplog.at_level(logging.DEBUG, "asyncio"):
        run(loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM))
        run(loop.getaddrinfo("localhost", 80))
    said = [record.getMessage() for record in caplog.records]
    kind = repr(socket.SOCK_STREAM)
    assert f"Get address info 127.0.0.1:80, type={kind}" in said
    assert any(
        line.startswith(f"Getting address info 127.0.0.1:80, type={kind} took ") for line in said
    )
    assert "Get address info localhost:80" in said
    loop.set_debug(False)
