"""Numeric arguments: floats and the largest integers work as in asyncio; errors name the argument."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ORACLE, wait_until
from tests.support.tcp import Recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.tls import Certificates

Run = Any

INFINITY = float("inf")
NAN = float("nan")

# The arguments, and the resulting (low, high).
TAKEN: list[tuple[dict[str, Any], tuple[Any, Any]]] = [
    ({"high": 1e6}, (250_000.0, 1e6)),
    ({"high": 1.5}, (0.0, 1.5)),
    ({"low": 0, "high": INFINITY}, (0, INFINITY)),
    ({"low": INFINITY}, (INFINITY, INFINITY)),
    ({"high": 1 << 64}, (1 << 62, 1 << 64)),
    ({"low": 1 << 70}, (1 << 70, 1 << 72)),
    ({"low": 0.5}, (0.5, 2.0)),
    ({"high": Fraction(9, 2)}, (1, Fraction(9, 2))),
    ({"high": Decimal(100)}, (Decimal(25), Decimal(100))),
    ({"high": 1 << 5000, "low": 3}, (3, 1 << 5000)),
    ({"high": True}, (0, True)),
    ({"high": 0}, (0, 0)),
]
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"high": INFINITY}, ValueError, r"high \(inf\) must be >= low \(nan\) must be >= 0"),
    ({"high": NAN}, ValueError, r"high \(nan\) must be >= low \(nan\) must be >= 0"),
    ({"high": -1}, ValueError, r"high \(-1\) must be >= low \(-1\) must be >= 0"),
    ({"low": -1}, ValueError, r"high \(-4\) must be >= low \(-1\) must be >= 0"),
    ({"high": 1, "low": 2}, ValueError, r"high \(1\) must be >= low \(2\) must be >= 0"),
    ({"high": -INFINITY, "low": 0}, ValueError, "must be >= low"),
]
NO_NUMBERS = ["x", b"1", [], 1j]
KINDS = ["stream", "tls", "datagram", "pipe"]


@contextlib.asynccontextmanager
async def opened(kind: str, loop: Any, certificates: Certificates) -> AsyncIterator[Any]:
    """Open a transport of this kind."""
    async with contextlib.AsyncExitStack() as cleanup:
        if kind == "pipe":
            reader, writer = os.pipe()
            cleanup.callback(os.close, reader)
            transport, _ = await loop.connect_write_pipe(
                asyncio.BaseProtocol, os.fdopen(writer, "wb", 0)
            )
        elif kind == "datagram":
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
            )
        else:
            ours, theirs = socket.socketpair()
            transport, _ = await loop.create_connection(Recorder, sock=ours)
            peer, _ = await loop.connect_accepted_socket(Recorder, theirs)
            cleanup.callback(peer.abort)
            if kind == "tls":
                transport, _ = await asyncio.gather(
                    loop.start_tls(
                        transport,
                        Recorder(),
                        certificates.client(),
                        server_hostname="localhost",
                    ),
                    loop.start_tls(peer, Recorder(), certificates.server(), server_side=True),
                )
        yield transport
        transport.abort()
        await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_is_a_water_mark(
    loop: Any, run: Run, kind: str, certificates: Certificates
) -> None:
    async def main() -> None:
        async with opened(kind, loop, certificates) as transport:
            directions = ["write", "read"] if kind == "tls" else ["write"]
            for direction in directions:
                set_limits = getattr(transport, f"set_{direction}_buffer_limits")
                limits = getattr(transport, f"get_{direction}_buffer_limits")
                default = limits()
                for given, expected in TAKEN:
                    set_limits(**given)
                    assert limits() == expected
                    assert [type(mark) for mark in limits()] == [type(mark) for mark in expected]
                for given, error, text in REFUSED:
                    with pytest.raises(error, match=text):
                        set_limits(**given)
                assert limits() == TAKEN[-1][1], "a refusal changes nothing"
                set_limits()
                assert limits() == default

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_error_names_a_non_numeric_argument(
    loop: Any, run: Run, kind: str, loop_name: str, certificates: Certificates
) -> None:
    async def main() -> None:
        async with opened(kind, loop, certificates) as transport:
            for value in NO_NUMBERS:
                for name in ("high", "low"):
                    with pytest.raises(TypeError) as raised:
                        transport.set_write_buffer_limits(**{name: value})
                    if loop_name != ORACLE:
                        kind_name = type(value).__name__
                        assert f"'{name}' must be a number, not {kind_name}" in str(raised.value)

    run(main())


@pytest.mark.parametrize("high", [10.5, Fraction(21, 2), Decimal("10.5")])
def test_a_fraction_is_a_mark_between_two_sizes(loop: Any, run: Run, high: Any) -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        try:
            calls: list[str] = []

            class Paused(asyncio.Protocol):
                def pause_writing(self) -> None:
                    calls.append("pause")

                def resume_writing(self) -> None:
                    calls.append("resume")

            transport, _ = await loop.connect_write_pipe(Paused, os.fdopen(writer, "wb", 0))
            transport.set_write_buffer_limits(high=high, low=0.5)
            with contextlib.suppress(BlockingIOError):
                while os.write(writer, bytes(4096)):
                    pass
            transport.write(b"x" * 10)
            assert calls == []
            transport.write(b"x")
            assert calls == ["pause"]

            def emptied() -> bool:
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, 1 << 20)
                return len(calls) > 1

            await wait_until(emptied)
            assert calls == ["pause", "resume"]
            transport.abort()
            await asyncio.sleep(0)
        finally:
            os.close(reader)

    run(main())


@pytest.mark.parametrize("value", ["x", b"1", [], 1j])
def test_timers_name_a_non_numeric_argument(loop: Any, loop_name: str, value: Any) -> None:
    if loop_name == ORACLE:
        pytest.skip("asyncio says which operand does not fit, or breaks its heap")
    for method, argument in ((loop.call_later, "delay"), (loop.call_at, "when")):
        with pytest.raises(TypeError, match=f"^{argument} must be a number, not "):
            method(value, print)


@pytest.mark.parametrize(
    ("method", "arguments", "missing"),
    [
        ("call_soon", (), "callback"),
        ("call_soon_threadsafe", (), "callback"),
        ("call_later", (1,), "callback"),
        ("call_at", (1,), "callback"),
    ],
)
def test_a_missing_argument_is_named(
    loop: Any, method: str, arguments: tuple[Any, ...], missing: str
) -> None:
    with pytest.raises(TypeError, match=f"{method}.* missing .*: '{missing}'"):
        getattr(loop, method)(*arguments)
    with pytest.raises(TypeError, match=f"{method}.* unexpected keyword argument 'nonsense'"):
        getattr(loop, method)(*arguments, print, nonsense=1)


def test_impossible_descriptors(loop: Any) -> None:
    for number in (1 << 31, 1 << 70):
        for direction in ("reader", "writer"):
            with pytest.raises(OverflowError):
                getattr(loop, f"add_{direction}")(number, print)
            assert getattr(loop, f"remove_{direction}")(number) is False


def test_long_waits_and_short_ones(loop: Any, run: Run) -> None:
    async def main() -> None:
        fired: list[Any] = []
        handles = [loop.call_later(value, fired.append, value) for value in (1e300, 1 << 70)]
        handles += [loop.call_later(INFINITY, fired.append, INFINITY)]
        for value in (-1, -INFINITY, -(1 << 70), True - 1, Fraction(1, 1000), 1e-300):
            loop.call_later(value, fired.append, value)
        await wait_until(lambda: len(fired) == 6)
        for handle in handles:
            assert not handle.cancelled()
            handle.cancel()

    run(main())
