"""An unmodified FastAPI application under uvicorn, the main use case: oracle and both drivers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect

from examples import check_service
from examples.service import CHUNK_BYTES
from tests import support
from tests.support import TEST_BYTES

if TYPE_CHECKING:
    import httpx

    from examples.check_service import Service

# What a transfer may add to the peak memory of the process: socket buffers and uvicorn's high-water
# marks are well below it, one buffered gigabyte is far above.
GROWTH_MAX_KIB = 48 * 1024
# How long the process may take to exit after the grace time, on a busy machine.
MARGIN_S = support.PATIENCE_SECONDS

# What uvicorn logs if it did not stop in time.
GRACE_WAS_USED_UP = "timeout graceful shutdown exceeded"

ABOUT = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = b"GET /slow?seconds=%d HTTP/1.1\r\nHost: x\r\n\r\n"


def peak_memory_kib(service: Service) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


def connect_to(service: Service) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def ask(peer: socket.socket, request: bytes) -> bytes:
    """Send; return everything received once the first response, a JSON object, is complete."""
    peer.sendall(request)
    answer = b""
    while not answer.endswith(b"}"):
        chunk = peer.recv(65536)
        assert chunk, answer
        answer += chunk
    return answer


def sockets_of(service: Service) -> int:
    folder = Path(f"/proc/{service.process.pid}/fd")
    found = 0
    for link in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found += str(link.readlink()).startswith("socket:")
    return found


def test_make_run(client: httpx.Client) -> None:
    # One after the other: starting a service takes longer than all of them.
    for name, check in check_service.CHECKS:
        assert check(client), name


def test_service_runs_on_the_loop_and_driver_asked_for(
    loop_name: str, client: httpx.Client
) -> None:
    about = json.loads(check_service.check_about(client))
    if loop_name == support.ORACLE:
        assert about["loop"].startswith("asyncio.")
    else:
        assert about["loop"].startswith("ringloop.")
        assert loop_name == f"ringloop-{about['driver']}"


@pytest.mark.large
@pytest.mark.timeout(240)
def test_large_response_is_byte_exact_in_bounded_memory(
    service: Service, client: httpx.Client
) -> None:
    check_service.check_stream(client, 4 * CHUNK_BYTES)
    before = peak_memory_kib(service)
    assert check_service.check_stream(client, TEST_BYTES).startswith(f"{TEST_BYTES} bytes")
    assert peak_memory_kib(service) - before < GROWTH_MAX_KIB


@pytest.mark.large
@pytest.mark.timeout(240)
def test_large_upload_is_byte_exact_in_bounded_memory(
    service: Service, client: httpx.Client
) -> None:
    check_service.check_upload(client, 4 * CHUNK_BYTES)
    before = peak_memory_kib(service)
    got = json.loads(check_service.check_upload(client, TEST_BYTES))
    assert got["size"] == TEST_BYTES
    assert peak_memory_kib(service) - before < GROWTH_MAX_KIB


def test_stalled_reader_bounds_memory_and_gets_every_byte(
    service: Service, client: httpx.Client
) -> None:
    size = 4 * GROWTH_MAX_KIB * 1024
    check_service.check_stream(client, 4 * CHUNK_BYTES)
    before = peak_memory_kib(service)
    digest = hashlib.sha256()
    with client.stream("GET", "/stream", params={"size": size}) as response:
        chunks = response.iter_raw()
        digest.update(next(chunks))
        # Other connections are served while this one is blocked.
        for _ in range(20):
            check_service.check_about(client)
        for chunk in chunks:
            digest.update(chunk)
    assert digest.hexdigest() == check_service.digest_of_pattern(size)
    assert peak_memory_kib(service) - before < GROWTH_MAX_KIB


def test_requests_in_one_segment_are_answered_in_order(service: Service) -> None:
    request = b"GET /items/%d HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect_to(service) as peer:
        peer.sendall(b"".join(request % number for number in range(101, 151)))
        answers = b""
        while answers.count(b'"no item ') < 50:
            answers += peer.recv(65536)
    assert re.findall(rb"no item (\d+)", answers) == [b"%d" % n for n in range(101, 151)]


@pytest.mark.parametrize("connections", [50])
def test_concurrent_websockets_echo_their_own_data(service: Service, connections: int) -> None:
    address = service.url.replace("http:", "ws:") + "/echo"
    sizes = (0, 1, 125, 126, 65_535, 65_536, 200_000)

    async def talk(number: int) -> int:
        async with connect(address, max_size=None, open_timeout=support.PATIENCE_SECONDS) as peer:
            for size in sizes:
                message = number.to_bytes(2, "big") * (size // 2) + b"." * (size % 2)
                await peer.send(message)
                assert await support.within(peer.recv()) == message
            await peer.send("last words")
            assert await support.within(peer.recv()) == "last words"
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*(talk(number) for number in range(connections)))

    assert asyncio.run(main()) == list(range(connections))


def test_connections_that_ended_leave_no_socket(service: Service, client: httpx.Client) -> None:
    check_service.check_about(client)
    client.close()
    listening = 1
    support.wait_until_blocking(lambda: sockets_of(service) <= 3, "the idle service")
    idle = sockets_of(service)
    assert idle >= listening
    for ending in range(30):
        peer = connect_to(service)
        peer.sendall(b"GET /stream?size=8000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")
        if ending % 2:  # a reset instead of a FIN, in the middle of the response
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
    support.wait_until_blocking(lambda: sockets_of(service) == idle, "the sockets' end")
    assert "Traceback" not in service.text()


def test_interrupt_ends_an_idle_service_at_once(service: Service) -> None:
    service.interrupt(timeout=MARGIN_S)
    service.assert_clean_exit()
    assert GRACE_WAS_USED_UP not in service.text()


def test_interrupt_ends_within_grace_with_an_idle_connection_open(service: Service) -> None:
    with connect_to(service) as peer:
        ask(peer, ABOUT)
        service.interrupt(timeout=check_service.GRACE_S + MARGIN_S)
        assert peer.recv(65536) == b""
    service.assert_clean_exit()
    assert GRACE_WAS_USED_UP not in service.text()


def test_interrupt_lets_a_request_in_flight_finish(service: Service) -> None:
    with connect_to(service) as peer:
        # The first answer shows that the second request has arrived too.
        ask(peer, ABOUT + SLOW % 1)
        service.interrupt(timeout=check_service.GRACE_S + MARGIN_S)
        assert b'{"slept":1.0}' in ask(peer, b"")
    service.assert_clean_exit()


def test_interrupt_cuts_a_request_that_outlasts_the_grace(service: Service) -> None:
    with connect_to(service) as peer:
        ask(peer, ABOUT + SLOW % 60)
        took = service.interrupt(timeout=check_service.GRACE_S + MARGIN_S)
    assert took >= check_service.GRACE_S - 1
    assert GRACE_WAS_USED_UP in service.text()
    assert "service stopped after" in service.text()


def test_interrupt_closes_websockets(service: Service) -> None:
    address = service.url.replace("http:", "ws:") + "/echo"

    async def main() -> int | None:
        async with connect(address, open_timeout=support.PATIENCE_SECONDS) as peer:
            await peer.send("here")
            assert await support.within(peer.recv()) == "here"
            await asyncio.to_thread(service.interrupt, check_service.GRACE_S + MARGIN_S)
            await support.within(peer.wait_closed())
            return peer.close_code

    assert asyncio.run(main()) == 1012
    service.assert_clean_exit()
