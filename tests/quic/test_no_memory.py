"""Failed allocations while received data is delivered: the next call returns it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from ringloop._native import h3
from ringloop._native import quic as native
from tests.quic.support import Pair, both, client_config
from tests.support import within
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

pytestmark = pytest.mark.one_thread("the interpreter's allocators are the process's")

DATA = pattern(5000)


def failing(call: Callable[[], Any], number: int) -> tuple[Any, bool]:
    """Call with that allocation failing, and again if it failed; also return whether it did."""
    testcapi = pytest.importorskip("_testcapi", reason="allocations fail by _testcapi")
    testcapi.set_nomemory(number, number + 1)
    try:
        return call(), False
    except MemoryError:
        testcapi.remove_mem_hooks()
        return call(), True
    finally:
        testcapi.remove_mem_hooks()


def received(certificates: Certificates) -> native.EventConnection:
    """Return a server's connection that has received all of a stream."""
    pair = Pair.make(certificates)
    client = pair.connect(client_config(certificates))
    pair.run_until(lambda: pair.accepted and not pair.accepted[-1].is_handshaking)
    server = pair.accepted[-1]
    server.take_events()
    client.send_stream_data(client.next_stream_id(), DATA, end_stream=True)
    pair.exchange()
    return server


@pytest.mark.parametrize("at_once", [True, False])
def test_undelivered_events_are_returned_next(certificates: Certificates, at_once: bool) -> None:
    for number in range(100):
        server = received(certificates)
        took, has_failed = failing(server.take_events if at_once else server.next_event, number)
        events = took if at_once else [took]
        while more := server.take_events():
            events += more
        chunks = [event for event in events if isinstance(event, native.StreamDataReceived)]
        assert b"".join(chunk.data for chunk in chunks) == DATA, f"allocation {number} has failed"
        assert chunks[-1].end_stream
        if not has_failed:
            assert number > 0
            return
    pytest.fail("allocations without an end")


@pytest.mark.parametrize("size", [100, 70_000])
def test_undelivered_bytes_are_returned_next(
    run: Callable[[Any], Any], certificates: Certificates, size: int
) -> None:
    sent = pattern(20 * size)

    async def main() -> None:
        async with both(certificates) as (client, server):
            ours = await client.open_stream()
            ours.write(sent)
            ours.finish()
            theirs = await within(server.accept_stream())
            got = bytearray()
            number = failures = 0
            while True:
                take = functools.partial(theirs._take, size - number)
                chunk, has_failed = failing(take, number)
                if chunk is None:
                    await within(theirs._read_waiter())
                    continue
                if not chunk:
                    break
                got += chunk
                # Each chunk is read with the first, the second … allocation failing.
                number = number + 1 if has_failed else 0
                failures += has_failed
            assert got == sent
            assert failures > 0

    run(main())


def test_events_and_output_of_http3_are_returned_next() -> None:
    def core(*, is_client: bool) -> h3.Connection:
        first = 2 if is_client else 3
        return h3.Connection(
            is_client=is_client,
            control=first,
            encoder=first + 4,
            decoder=first + 8,
            datagrams=True,
            webtransport=True,
        )

    def taken(take: Callable[[], Any], number: int) -> tuple[list[Any], bool]:
        """Everything that there is to take, where the allocation `number` of each call fails."""
        found: list[Any] = []
        has_failed = False
        while True:
            one, failed = failing(take, number)
            has_failed |= failed
            if one is None:
                return found, has_failed
            found.append(one)

    headers = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"a"),
        (b":path", b"/"),
    ]
    want = [("headers", 0, headers, False, None), ("data", 0, DATA, True, None)]
    for number in range(100):
        client, server = core(is_client=True), core(is_client=False)
        assert client.send_request(0, headers, end_stream=False) is None
        assert client.send_data(0, DATA, end_stream=True) is None
        output, output_failed = taken(client.next_output, number)
        for _kind, stream_id, data, end_stream in output:
            assert server.receive(stream_id, data, end_stream) is None
        events, events_failed = taken(server.next_event, number)
        assert events == want, f"allocation {number} has failed"
        if not (output_failed or events_failed):
            assert number > 0
            return
    pytest.fail("allocations without an end")
