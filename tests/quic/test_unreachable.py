"""Unreachable servers: which connections fail and how soon, and several addresses of one name."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic import _connect, _race
from ringloop.quic import asyncio as shaped
from ringloop.quic.configuration import QuicConfiguration
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]
    Address = tuple[Any, ...]

# Far less than the idle timeout of 30 s, and than the first probe's second.
SOON = 20


def udp(family: int = socket.AF_INET) -> socket.socket:
    """A socket that receives datagrams and never answers."""
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0) if family == socket.AF_INET else ("::1", 0))
    return sock


def closed_port(family: int = socket.AF_INET) -> Address:
    with udp(family) as sock:
        return tuple(sock.getsockname())


def has_v6() -> bool:
    try:
        closed_port(socket.AF_INET6)
    except OSError:
        return False
    return True


def addresses(monkeypatch: pytest.MonkeyPatch, *found: Address) -> None:
    """Resolve every name to these addresses."""

    async def look_up(*_arguments: object) -> list[tuple[int, Any]]:
        families = {2: socket.AF_INET, 4: socket.AF_INET6}
        return [(families[len(address)], address) for address in found]

    monkeypatch.setattr(_connect, "look_up", look_up)


async def serving(certificates: Certificates, host: str = "127.0.0.1") -> quic.Endpoint:
    certificate, key = certificates.issue()

    async def echo(stream: quic.Stream) -> None:
        stream.write(await stream.read_to_end())

    return await quic.serve(
        None,
        host,
        stream_handler=echo,
        certificate=certificate,
        private_key=key,
        alpn=["test"],
    )


async def echoes(connection: quic.Connection) -> bool:
    stream = await connection.open_stream()
    stream.write(b"x")
    stream.finish()
    return await stream.read_to_end() == b"x"


# --- ICMP errors for a first packet ---------------------------------------------------------------


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_closed_port_fails_at_once(run: Run, family: int) -> None:
    if family == socket.AF_INET6 and not has_v6():
        pytest.skip("no IPv6 here")
    address = closed_port(family)

    async def main() -> None:
        connecting = quic.open_connection(*address[:2], verify=False)
        with pytest.raises(quic.Unreachable, match=f"{address[1]}: Connection refused") as caught:
            await within(connecting, SOON)
        assert caught.value.errno == errno.ECONNREFUSED
        assert caught.value.address[:2] == address[:2]
        assert isinstance(caught.value, quic.ConnectionClosed)

    run(main())


def test_local_send_error_fails_at_once(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(quic.Unreachable) as caught:
            # A broadcast, without permission.
            await within(quic.open_connection("255.255.255.255", 9, verify=False), SOON)
        assert caught.value.errno == errno.EACCES

    run(main())


def test_closed_port_fails_in_the_aioquic_api(run: Run) -> None:
    address = closed_port()

    async def main() -> None:
        configuration = QuicConfiguration(is_client=True, idle_timeout=300)
        with pytest.raises(ConnectionError, match="refused"):
            async with shaped.connect(*address, configuration=configuration):
                pytest.fail("nobody is there")

    run(within(main(), SOON))


def test_closed_port_fails_one_of_several_connections(run: Run, certificates: Certificates) -> None:
    closed = closed_port()

    async def main() -> None:
        server = await serving(certificates)
        silent = udp()
        config = quic.ClientConfig(ca_file=certificates.authority, alpn=["test"])
        own = quic.Endpoint(udp_for_loop())
        with silent:
            async with server, own:
                good = own.begin(config, server.address, "localhost")
                waiting = own.begin(config, silent.getsockname(), "localhost")
                bad = [own.begin(config, closed, "localhost") for _ in range(2)]
                for connection in bad:
                    with pytest.raises(quic.Unreachable):
                        await within(connection.wait_connected(), SOON)
                await within(good.wait_connected())
                assert await within(echoes(good))
                assert not waiting.is_closed

    run(main())


def udp_for_loop() -> socket.socket:
    sock = udp()
    sock.setblocking(False)
    return sock


def test_established_connection_survives_icmp_errors(run: Run, certificates: Certificates) -> None:
    """The port is closed and reopened: an ICMP error meanwhile only counts as a lost packet."""

    async def main() -> None:
        server = await serving(certificates)
        inner = server.address
        front = udp_for_loop()
        address = front.getsockname()
        relay = Front(front, inner)
        relay.begin()
        own = quic.Endpoint(udp_for_loop())
        config = quic.ClientConfig(
            ca_file=certificates.authority, alpn=["test"], initial_rtt=0.02, idle_timeout=60
        )
        async with server, own:
            connection = own.begin(config, address, "localhost")
            await within(connection.wait_connected())
            assert await within(echoes(connection))
            # Another connection without any answer yet, so that the socket keeps reporting errors.
            with udp() as silent:
                other = own.begin(config, silent.getsockname(), "localhost")
                relay.close()
                pinging = asyncio.ensure_future(connection.ping())
                await asyncio.sleep(0.1)
                assert not connection.is_closed
                relay.reopen(address)
                await within(pinging)
                assert await within(echoes(connection))
                assert not other.is_closed
        relay.close()
        relay.back.close()

    run(main())


class Front:
    """A port in front of a server that can be closed and reopened."""

    def __init__(self, sock: socket.socket, server: Address) -> None:
        self.sock, self.server = sock, server
        self.client: Address | None = None
        self.back = udp_for_loop()
        self.loop = asyncio.get_running_loop()

    def begin(self) -> None:
        self.loop.add_reader(self.sock.fileno(), self._forth)
        self.loop.add_reader(self.back.fileno(), self._back)

    def _forth(self) -> None:
        data, self.client = self.sock.recvfrom(2048)
        self.back.sendto(data, self.server)

    def _back(self) -> None:
        data, _ = self.back.recvfrom(2048)
        if self.sock.fileno() >= 0 and self.client is not None:
            self.sock.sendto(data, self.client)

    def close(self) -> None:
        self.loop.remove_reader(self.sock.fileno())
        self.loop.remove_reader(self.back.fileno())
        self.sock.close()

    def reopen(self, address: Address) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.sock.bind(address)
        self.begin()


# --- several addresses of one name ----------------------------------------------------------------


def test_families_take_turns() -> None:
    four, six = socket.AF_INET, socket.AF_INET6
    found: list[tuple[int, Any]] = [(six, 1), (six, 2), (six, 2), (six, 3), (four, 4)]
    assert _race.alternated(found) == [(six, 1), (four, 4), (six, 2), (six, 3)]
    assert _race.alternated([]) == []


@pytest.mark.parametrize("silent_count", [1, 3])
def test_silent_address_does_not_delay_others(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, silent_count: int
) -> None:
    async def main() -> None:
        server = await serving(certificates)
        with ExitStack() as stack:
            silent = [stack.enter_context(udp()) for _ in range(silent_count)]
            addresses(monkeypatch, *(it.getsockname() for it in silent), server.address)
            async with server:
                connecting = quic.open_connection(
                    "localhost", 0, ca_file=certificates.authority, alpn=["test"], idle_timeout=300
                )
                connection = await within(connecting, SOON)
                async with connection:
                    assert connection.remote_address == server.address
                    assert await within(echoes(connection))
                    # The other attempts have ended.
                    assert len(asyncio.all_tasks()) == 1
                assert all(it.recv(2048) for it in silent)

    run(main())


def test_refusing_address_is_skipped_at_once(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_race, "ATTEMPT_DELAY_SECONDS", 1000.0)

    async def main() -> None:
        server = await serving(certificates)
        addresses(monkeypatch, closed_port(), ("255.255.255.255", 9), server.address)
        async with server:
            connecting = quic.open_connection(
                "localhost", 0, ca_file=certificates.authority, alpn=["test"]
            )
            async with await within(connecting, SOON) as connection:
                assert await within(echoes(connection))

    run(main())


def test_race_on_a_shared_endpoint(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        server = await serving(certificates)
        with udp() as silent:
            addresses(monkeypatch, ("::1", 9, 0, 0), silent.getsockname(), server.address)
            async with server, quic.Endpoint(udp_for_loop()) as own:
                connecting = quic.open_connection(
                    "localhost", 0, endpoint=own, ca_file=certificates.authority, alpn=["test"]
                )
                connection = await within(connecting, SOON)
                assert await within(echoes(connection))
                assert [it for it in own.connections if not it.is_closed] == [connection]

    run(main())


def test_failure_names_all_addresses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = closed_port(), closed_port()
    addresses(monkeypatch, first, second, ("255.255.255.255", 9))

    async def main() -> None:
        with pytest.raises(quic.Unreachable) as caught:
            await within(quic.open_connection("localhost", 0, verify=False), SOON)
        text = str(caught.value)
        for address in (first, second, ("255.255.255.255", 9)):
            assert f"{address[0]}:{address[1]}" in text
        assert [address for address, _ in caught.value.attempts][-1] == ("255.255.255.255", 9)

    run(main())


def test_error_of_a_server_wins_a_failed_race(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        server = await serving(certificates)
        addresses(monkeypatch, server.address, closed_port())
        async with server:
            connecting = quic.open_connection(
                "localhost", 0, ca_file=certificates.authority, alpn=["other"]
            )
            with pytest.raises(quic.TlsError, match="all 2 addresses failed"):
                await within(connecting, SOON)

    run(main())


def test_cancelled_race_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with udp() as one, udp() as other:
            addresses(monkeypatch, one.getsockname(), other.getsockname())
            task = asyncio.ensure_future(quic.open_connection("localhost", 0, verify=False))
            other.setblocking(False)
            await within(asyncio.get_running_loop().sock_recv(other, 2048), SOON)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await within(task, SOON)
            assert len(asyncio.all_tasks()) == 1

    run(main())
