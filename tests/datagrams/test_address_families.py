"""Datagram endpoints of all address families: complete addresses, and persistent errors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading
import time
from typing import Any

import pytest

from tests import support
from tests.support import ORACLE, refuse, wait_until, within

Run = Any


class Recorder(asyncio.DatagramProtocol):
    """Records datagrams, their sources, and errors."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


def opened(*arguments: int, address: Any = None) -> socket.socket:
    """Create a non-blocking socket; skip if this machine or user may not."""
    with contextlib.ExitStack() as unless_bound:
        try:
            sock = unless_bound.enter_context(socket.socket(*arguments))
            if address is not None:
                sock.bind(address)
        except OSError as error:
            pytest.skip(f"no such socket here: {error}")
        unless_bound.pop_all()
    sock.setblocking(False)
    return sock


def links_request(sequence: int) -> bytes:
    """RTM_GETLINK for all, of rtnetlink(7)."""
    return struct.pack("=IHHII", 32, 18, 0x301, sequence, 0) + bytes(16)


def echo_request(sequence: int) -> bytes:
    """Create an ICMP echo request of 32 bytes that no other program sends."""
    message = struct.pack("!BBHHH", 8, 0, 0, 77, sequence) + os.urandom(24)
    total = sum(struct.unpack("!16H", message))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]


@pytest.mark.parametrize("addressed", [True, False])
def test_netlink_tells_the_source(loop: Any, run: Run, addressed: bool) -> None:
    async def main() -> None:
        sock = opened(socket.AF_NETLINK, socket.SOCK_DGRAM, 0, address=(0, 0))
        own = sock.getsockname()
        transport, protocol = await loop.create_datagram_endpoint(Recorder, sock=sock)
        assert transport.get_extra_info("sockname") == own
        assert transport.get_extra_info("peername") == sock.getpeername()
        transport.sendto(links_request(1), (0, 0) if addressed else None)
        await wait_until(lambda: protocol.got)
        transport.close()
        await asyncio.sleep(0)
        assert {address for _, address in protocol.got} == {(0, 0)}
        assert protocol.errors == []

    run(main())


def test_packet_sockets_receive_with_their_long_addresses(loop: Any, run: Run) -> None:
    async def main() -> None:
        sock = opened(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800), address=("lo", 0))
        transport, protocol = await loop.create_datagram_endpoint(Recorder, sock=sock)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 0))
            payload = os.urandom(16)

            async def arrives() -> None:
                # All that other tests send by the interface comes, too, and may leave no room.
                while not any(data.endswith(payload) for data, _ in protocol.got):
                    sender.sendto(payload, sender.getsockname())
                    await asyncio.sleep(0.01)

            await within(arrives())
        transport.close()
        await asyncio.sleep(0)
        data, address = next(got for got in protocol.got if got[0].endswith(payload))
        assert data[0] >> 4 == 4
        assert address[:2] == ("lo", 0x0800)
        assert len(address) == 5
        assert protocol.errors == []

    run(main())


def test_packets_of_other_protocols_are_never_joined(loop: Any, run: Run) -> None:
    async def main() -> None:
        sock = opened(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        protocol = Recorder()
        # create_datagram_endpoint() accepts SOCK_DGRAM only.
        transport = loop._make_datagram_transport(sock, protocol)
        requests = [echo_request(number) for number in range(5)]
        for request in requests:
            transport.sendto(request, ("127.0.0.1", 0))

        def come() -> list[bytes]:
            return [data[20:] for data, _ in protocol.got if data[20:] in requests]

        await wait_until(lambda: len(come()) == 5)
        transport.close()
        await asyncio.sleep(0)
        assert come() == requests

    run(main())


def test_socket_without_address_has_no_names(loop: Any, run: Run) -> None:
    async def main() -> None:
        sock = opened(socket.AF_ALG, socket.SOCK_SEQPACKET)
        transport = loop._make_datagram_transport(sock, Recorder())
        assert transport.get_extra_info("sockname") is None
        assert transport.get_extra_info("peername") is None
        transport.close()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_streams_of_other_families_connect_and_accept(loop: Any, run: Run, kind: int) -> None:
    async def main() -> None:
        local = (1, socket.VMADDR_PORT_ANY)  # VMADDR_CID_LOCAL
        listener = opened(socket.AF_VSOCK, kind, address=local)
        with contextlib.closing(listener):
            listener.listen()
            client = opened(socket.AF_VSOCK, kind)
            with contextlib.closing(client):
                accepting = asyncio.ensure_future(loop.sock_accept(listener))
                try:
                    await loop.sock_connect(client, listener.getsockname())
                except OSError as error:
                    accepting.cancel()
                    pytest.skip(f"no way to this machine: {error}")
                connection, address = await accepting
                with contextlib.closing(connection):
                    assert address == client.getsockname()

    run(main())


@pytest.mark.one_thread("changes the class of all sockets")
def test_persistent_error_is_retried_with_pauses(
    loop: Any, run: Run, loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop_name == ORACLE:
        pytest.skip("asyncio spins")
    receive = socket.socket.recvfrom
    is_refused = True

    def recvfrom(self: socket.socket, size: int) -> Any:
        if is_refused and self.family == socket.AF_NETLINK:
            raise OSError(errno.EIO, "refused")
        return receive(self, size)

    async def main() -> None:
        nonlocal is_refused
        sock = opened(socket.AF_NETLINK, socket.SOCK_DGRAM, 0, address=(0, 0))
        monkeypatch.setattr(socket.socket, "recvfrom", recvfrom)
        transport, protocol = await loop.create_datagram_endpoint(Recorder, sock=sock)
        transport.sendto(links_request(1))
        start = time.monotonic()
        await wait_until(lambda: len(protocol.errors) > 12)
        # The ninth and later ones come after 1, 2, 4, 8 and 16 ms.
        assert time.monotonic() - start > 0.03
        # Pausing and resuming changes nothing.
        transport.pause_reading()
        transport.resume_reading()
        is_refused = False
        await wait_until(lambda: protocol.got)
        # And it has ended: what arrives now is received at once.
        count = len(protocol.got)
        transport.sendto(links_request(2))
        await wait_until(lambda: len(protocol.got) > count)
        transport.close()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.one_thread("has a thread of its own")
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_a_refused_receive_does_not_spin(driver: str) -> None:
    numbers = [refuse.NUMBERS[name] for name in ("recvmmsg", "recvmsg") if name in refuse.NUMBERS]
    if len(numbers) < 2:
        pytest.skip("this machine's call numbers are not known")
    support.usable_loop(f"ringloop-{driver}")
    errors: list[Exception] = []

    async def main(loop: Any) -> None:
        transport, protocol = await loop.create_datagram_endpoint(
            Recorder, local_addr=("127.0.0.1", 0)
        )
        refuse.deny(numbers, errno.EIO)
        transport.sendto(b"x", transport.get_extra_info("sockname"))
        await wait_until(lambda: len(protocol.errors) > 8)
        before = len(protocol.errors)
        await asyncio.sleep(0.1)
        # After 1, 2, 4 … ms; without pauses there would be thousands.
        assert len(protocol.errors) - before < 20
        transport.close()
        await asyncio.sleep(0)
        errors.extend(protocol.errors)

    def in_thread() -> None:
        loop = support.loop_factory(f"ringloop-{driver}")()
        try:
            loop.run_until_complete(main(loop))
        except BaseException as error:
            errors[:] = [RuntimeError(repr(error))]
        finally:
            loop.close()

    # The refusal lasts for the life of its thread.
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert {type(error) for error in errors} == {OSError}, errors
