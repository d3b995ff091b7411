"""Connections of the native API, on every loop: handshakes, TLS, datagrams, migration, ends."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic import _driver
from tests.quic.support import both, client_config, dialled, echo, relayed, served, server_config
from tests.support import wait_until, while_scheduled, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import LoopLog
    from tests.tls import Certificates

    Run = Callable[[Any], Any]


@pytest.mark.parametrize("version", [1, 2])
def test_versions(run: Run, certificates: Certificates, version: int) -> None:
    async def main() -> None:
        async with both(certificates, version=version) as (client, server):
            assert client.alpn == server.alpn == "test"
            assert client.get_extra_info("peername") == server.endpoint.address
            assert client.peer_certificate is not None
            secrets = [end.export_keying_material("l", b"c", 20) for end in (client, server)]
            assert secrets[0] == secrets[1]

    run(main())


def test_version_that_the_server_lacks(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, versions=[1]) as server:
            with pytest.raises(quic.VersionMismatch):
                async with dialled(certificates, server.address, version=2):
                    pass

    run(main())


@pytest.mark.parametrize("retry", ["always", "auto"])
def test_retry(run: Run, certificates: Certificates, retry: str) -> None:
    async def main() -> None:
        async with both(certificates, {"retry": retry}) as (client, _):
            assert not client.is_handshaking

    run(main())


def test_early_data_of_a_resumed_session(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        config = client_config(certificates)
        async with served(certificates, stream_handler=echo, early_data=True) as server:
            async with dialled(certificates, server.address, configuration=config) as first:
                # The ticket comes with or after the answer.
                stream = await first.open_stream()
                stream.write(b"x")
                stream.finish()
                await within(stream.read_to_end())
            async with dialled(
                certificates, server.address, configuration=config, early_data=True
            ) as second:
                assert second.is_handshaking
                stream = await second.open_stream()
                stream.write(b"early")
                stream.finish()
                assert await within(stream.read_to_end()) == b"early"
                await within(second.wait_connected())
                assert second.early_data_accepted
                assert second.handshake().is_resumed  # type: ignore[union-attr]

    run(main())


def test_early_data_that_the_server_refuses(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        config = client_config(certificates)
        certificate, key = certificates.issue()
        keys = {"certificate": certificate, "private_key": key, "alpn": ["test"]}
        async with served(certificates, stream_handler=echo, early_data=True) as server:
            async with dialled(certificates, server.address, configuration=config) as first:
                # The ticket comes with or after the answer.
                stream = await first.open_stream()
                stream.write(b"x")
                stream.finish()
                await within(stream.read_to_end())
            # Sessions of the old configuration are unknown to the new one.
            server._native.set_server(quic.ServerConfig(**keys))  # type: ignore[arg-type]
            async with dialled(
                certificates, server.address, configuration=config, early_data=True
            ) as second:
                assert second.is_handshaking
                stream = await second.open_stream()
                stream.write(b"early")
                await within(second.wait_connected())
                assert not second.early_data_accepted
                with pytest.raises(quic.EarlyDataRejected):
                    stream.write(b"more")
                again = await second.open_stream()
                # It has the number of the one that is not there, whose end is not its own.
                assert again.id == stream.id
                stream.abort()
                again.write(b"again")
                again.finish()
                assert await within(again.read_to_end()) == b"again"

    run(main())


def test_client_certificates_are_verified(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        wanted = {"client_auth": "required", "ca_file": certificates.authority}
        certificate, key = certificates.issue("client")
        async with both(certificates, wanted, certificate=certificate, private_key=key) as (
            client,
            server,
        ):
            await within(client.ping())
            assert server.peer_certificate is not None
        async with served(certificates, **wanted) as endpoint:
            with pytest.raises(quic.TlsError) as refused:
                async with dialled(certificates, endpoint.address) as connection:
                    await within(connection.wait_closed())
                    raise connection.error
            assert refused.value.alert == 116  # certificate_required

    run(main())


def test_certificate_by_name_and_its_change(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        other = certificates.issue("by-sni", "DNS:other.test")
        config = server_config(certificates, sni=MappingProxyType({"other.test": other}))
        async with served(certificates, configuration=config) as server:

            async def shown(name: str) -> bytes:
                async with quic.connect(
                    *server.address[:2],
                    server_name=name,
                    ca_file=certificates.authority,
                    alpn=["test"],
                ) as connection:
                    shown: bytes | None = connection.peer_certificate
                    assert shown is not None
                    return shown

            first = await within(shown("other.test"))
            assert first != await within(shown("localhost"))
            config.set_certificate(*certificates.issue("newer", "DNS:other.test"), "other.test")
            assert await within(shown("other.test")) != first

    run(main())


def test_wrong_name_and_wrong_protocol_are_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            for name, protocol in (("elsewhere.test", "test"), ("localhost", "other")):
                with pytest.raises(quic.TlsError):
                    await within(
                        quic.open_connection(
                            *server.address[:2],
                            server_name=name,
                            ca_file=certificates.authority,
                            alpn=[protocol],
                        )
                    )
            async with dialled(certificates, server.address, verify=False):
                pass

    run(main())


def test_secrets_are_logged(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    async def main() -> None:
        lines: list[str] = []
        path = tmp_path / "keys"
        async with both(certificates, {"keylog": path}, keylog=lines.append) as (client, _):
            await within(client.ping())
        labels = {line.split()[0] for line in lines}
        assert {"CLIENT_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0"} <= labels
        assert sorted(path.read_text().splitlines(keepends=True)) == sorted(lines)

    run(main())


def test_a_key_log_that_raises_keeps_nobody_from_hearing(
    run: Run, certificates: Certificates, loop: asyncio.AbstractEventLoop
) -> None:
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    def broken(_line: str) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with both(certificates, {"keylog": broken}, keylog=broken) as (client, server):
            await within(client.ping())
            await within(server.ping())

    run(main())
    assert len(reported) >= 4
    assert {type(context["exception"]) for context in reported} == {ZeroDivisionError}


def test_secrets_go_where_the_environment_says(
    run: Run, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(path))

    async def main() -> None:
        async with both(certificates, {"keylog": False}) as (client, _):
            await within(client.ping())

    run(main())
    labels = {line.split()[0] for line in path.read_text().splitlines()}
    assert {"CLIENT_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0"} <= labels


def test_authorities_of_a_directory(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            keywords = {"alpn": ["test"], "ca_path": tmp_path}
            (tmp_path / "authority.pem").write_bytes(Path(certificates.authority).read_bytes())
            async with dialled(certificates, server.address, **keywords) as client:
                assert not client.is_handshaking

    run(main())


def test_what_was_known_of_a_connection_that_is_forgotten(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(
            certificates, handler=lambda connection: connection.wait_closed()
        ) as server:
            async with dialled(certificates, server.address) as client:
                await wait_until(lambda: server.connections)
                (peer,) = server.connections
                address = peer.remote_address
            await within(peer.wait_closed(linger=True))
            assert peer.get_extra_info("peername") == address
            assert peer.get_extra_info("cipher", "unknown") == "unknown"
            assert client.get_extra_info("peername") == server.address
            assert client.get_extra_info("sockname", "closed") == "closed"

    run(main())


def test_clients_that_are_gone_before_they_are_accepted_are_not_given(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            for _client in range(3):
                async with dialled(certificates, server.address) as client:
                    await within(client.ping())
            await wait_until(lambda: not server.connections, "the end of them all")
            assert not server._waiting
            async with dialled(certificates, server.address) as client:
                await within(client.ping())
                connection = await within(server.accept())
                assert not connection.is_closed
                assert not server._waiting

    run(main())


def test_another_address_is_tried_where_one_cannot_be_begun(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            loop = asyncio.get_running_loop()

            async def found(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
                kind = socket.SOCK_DGRAM
                return [
                    (socket.AF_INET6, kind, 17, "", ("::1", server.address[1], 0, 0)),
                    (socket.AF_INET, kind, 17, "", server.address),
                ]

            monkeypatch.setattr(loop, "getaddrinfo", found, raising=False)
            async with dialled(
                certificates, ("localhost", 0), local_address=("127.0.0.1", 0)
            ) as client:
                assert client.remote_address == server.address

    run(main())


def test_all_of_many_clients_hear_of_the_end(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        endpoint = quic.Endpoint(_driver.bind("127.0.0.1"))
        config = client_config(certificates, idle_timeout=600.0)
        async with endpoint, served(certificates) as server:
            clients = await within(
                asyncio.gather(
                    *[
                        quic.open_connection(
                            *server.address[:2],
                            server_name="localhost",
                            configuration=config,
                            endpoint=endpoint,
                        )
                        for _ in range(100)
                    ]
                )
            )
            for client in clients:
                await within(client.ping())
            server.close(5)
            await within(server.wait_closed())
            for client in clients:
                await within(client.wait_closed())
            assert {getattr(client.error, "code", None) for client in clients} == {5}

    run(main())


def test_datagrams(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            size = client.max_datagram_size
            assert size is not None
            assert await client.send_datagram(bytes(size))
            assert len(await within(server.receive_datagram())) == size
            with pytest.raises(quic.DatagramError, match="longer than the path"):
                await client.send_datagram(bytes(size + 2000))
            assert await client.send_datagrams([b"1", b"2", b"3"]) == 3
            taken: list[bytes] = []
            while len(taken) < 3:
                taken += await within(server.receive_datagrams())
            assert taken == [b"1", b"2", b"3"]

    run(main())


def test_datagram_policies(run: Run, certificates: Certificates) -> None:
    new, kept, waited = (bytes([number]) * 1000 for number in (1, 2, 3))

    async def main() -> None:
        async with both(certificates, datagram_send_buffer=3000) as (client, server):
            await within(client.ping())
            while client.send_datagram_nowait(bytes(1000)):
                pass
            assert not await client.send_datagram(new, "drop_new")
            assert await client.send_datagram(kept, "drop_oldest")
            taken = await within(_until(server, kept))
            assert new not in taken
            while client.send_datagram_nowait(bytes(1000)):
                pass
            assert await within(client.send_datagram(waited))
            await within(_until(server, waited))

    run(main())


def test_more_datagrams_than_there_is_room_for(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        # Of different lengths, and not all of them bytes.
        datagrams = [bytes([number]) * (40 * number) for number in range(1, 25)]
        given: list[bytes | bytearray] = [bytearray(datagrams[0]), *datagrams[1:]]
        async with both(certificates, datagram_send_buffer=3000) as (client, server):
            await within(client.ping())
            count = await client.send_datagrams(given, "drop_new")
            assert 0 < count < len(datagrams)
            taken: list[bytes] = []
            while len(taken) < count:
                taken += await within(server.receive_datagrams())
            assert taken == datagrams[:count]
            assert await within(client.send_datagrams(given)) == len(datagrams)
            assert await within(client.send_datagrams(given, "drop_oldest")) == len(datagrams)
            await within(_until(server, datagrams[-1]))
            with pytest.raises(TypeError):
                await client.send_datagrams([b"1", "2"])  # type: ignore[list-item]

    run(main())


async def _until(connection: quic.Connection, last: bytes) -> list[bytes]:
    taken: list[bytes] = []
    while last not in taken:
        taken += await connection.receive_datagrams()
    return taken


def test_datagram_expires_where_nothing_passes(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            async with dialled(
                certificates, relay.address, datagram_send_buffer=3000
            ) as connection:
                relay.faults.blackhole = True
                sent = True
                for _ in range(200):
                    sent = await connection.send_datagram(bytes(1000), expires=0.05)
                    if not sent:
                        break
                assert not sent

    run(main())


def test_peer_that_takes_no_datagrams(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"datagram_receive_buffer": None}) as (client, _):
            assert client.max_datagram_size is None
            with pytest.raises(quic.DatagramError, match="takes no datagrams"):
                await client.send_datagram(b"x")

    run(main())


def test_nat_that_is_started_again(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            async with (
                relayed(server.address) as relay,
                dialled(certificates, relay.address) as connection,
            ):
                stream = await connection.open_stream()
                stream.write(b"before")
                assert await within(stream.readexactly(6)) == b"before"
                relay.rebind()
                stream.write(b"after")
                assert await within(stream.readexactly(5)) == b"after"

    run(main())


def test_rebind_keys_and_ping(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            before = client.endpoint.address
            await within(client.rebind("127.0.0.1"))
            assert client.endpoint.address != before
            await wait_until(lambda: server.remote_address == client.endpoint.address)
            for _ in range(3):
                client.update_keys()
                assert await within(client.ping()) >= 0
            stats = client.stats()
            assert stats.packets_sent > 0
            assert 0 < stats.rtt_min <= stats.rtt < 10
            assert "rtt=" in repr(stats)

    run(main())


class _Full:
    """In place of an endpoint: its socket takes nothing until it is another one."""

    connection_count = 0
    is_full = True
    error: Exception | None = None

    def attach(self, _loop: object, _on_news: object, on_full: Callable[[], None]) -> None:
        self._on_full = on_full

    def flush(self) -> bool:
        if self.error is not None:
            raise self.error
        if self.is_full:
            self._on_full()
        return not self.is_full

    def turn(self) -> None:
        pass

    def rebind(self, _fd: int) -> None:
        self.is_full = False

    def detach(self) -> None:
        pass


async def _waiting(full: Any) -> tuple[_driver.Driver, asyncio.Future[None]]:
    loop = asyncio.get_running_loop()
    driver = _driver.Driver(loop, _driver.bind("127.0.0.1"), full, lambda *_: None)
    sending = asyncio.ensure_future(driver.send_all())
    await asyncio.sleep(0)
    assert driver._full_waiters
    return driver, sending


def test_who_waits_for_a_full_socket_goes_on_with_the_next_one(run: Run) -> None:
    async def main() -> None:
        driver, sending = await _waiting(_Full())
        driver.rebind(_driver.bind("127.0.0.1"))
        await within(sending)
        driver.close()

    run(main())


@pytest.mark.loop_errors
def test_who_waits_for_a_full_socket_hears_of_an_error(run: Run, loop_log: LoopLog) -> None:
    async def main() -> None:
        full = _Full()
        driver, sending = await _waiting(full)
        full.error = ZeroDivisionError("asked for")
        with pytest.raises(ZeroDivisionError):
            await within(sending)
        driver.close()
        assert loop_log.take()

    run(main())


def test_a_client_does_not_move_to_the_other_family(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            before, seen = client.endpoint.address, server.remote_address
            with pytest.raises(OSError, match=r"IPv6.*IPv4"):
                await within(client.rebind("::"))
            assert client.endpoint.address == before
            assert await within(client.ping()) >= 0
            assert server.remote_address == seen

    run(main())


def test_close_tells_code_and_reason_to_whoever_waits(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            stream.write(b"x")
            waits = [
                stream.read(1),
                client.accept_stream(),
                client.receive_datagram(),
                stream.stopped(),
            ]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            _accepted = await within(server.accept_stream())
            server.close(7, "enough")
            for result in await within(asyncio.gather(*tasks, return_exceptions=True)):
                assert isinstance(result, quic.ConnectionClosedByPeer), result
                assert (result.code, result.reason) == (7, "enough")
            await within(client.wait_closed())
            with pytest.raises(quic.ConnectionClosedByPeer):
                await client.open_stream()
            with pytest.raises(quic.ConnectionClosed, match="closed here"):
                await server.open_stream()
            assert "closed" in repr(client)

    run(main())


def test_silence_ends_a_connection_and_keep_alive_does_not_let_it(
    run: Run, certificates: Certificates
) -> None:
    async def attempt() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            async with (
                dialled(certificates, relay.address, idle_timeout=0.3) as quiet,
                dialled(certificates, relay.address, idle_timeout=0.3, keep_alive=0.05) as kept,
            ):
                await within(quiet.wait_closed())
                assert isinstance(quiet.error, quic.IdleTimeout)
                assert not kept.is_closed
                relay.faults.blackhole = True
                await within(kept.wait_closed())
                assert isinstance(kept.error, TimeoutError)

    # Who sends nothing for so long because it does not run is silent, too.
    run(while_scheduled(attempt, 0.1))


def test_server_refuses_more_than_it_was_told_to_have(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, max_connections=2) as server:
            async with (
                dialled(certificates, server.address),
                dialled(certificates, server.address),
            ):
                with pytest.raises(quic.TransportError) as refused:
                    await within(dialled(certificates, server.address).__aenter__())
                assert refused.value.code == 2  # CONNECTION_REFUSED

    run(main())


def test_connections_come_and_go(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async def handler(connection: quic.Connection) -> None:
            stream = await connection.accept_stream()
            await echo(stream)
            stream.finish()
            await connection.wait_closed()

        async with served(certificates, handler=handler) as server:
            config = client_config(certificates)

            async def one() -> None:
                async with dialled(
                    certificates, server.address, configuration=config
                ) as connection:
                    stream = await connection.open_stream()
                    stream.write(b"hello")
                    stream.finish()
                    assert await stream.read_to_end() == b"hello"

            for _ in range(5):
                await within(asyncio.gather(*[one() for _ in range(10)]), 30)
            await wait_until(lambda: not server.connections)
            assert server._native.connection_count == 0

    run(main())


def test_several_connections_on_one_socket(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            async with quic.Endpoint(_driver.bind("127.0.0.1")) as shared:
                connections = [
                    await quic.open_connection(
                        *server.address[:2],
                        server_name="localhost",
                        endpoint=shared,
                        configuration=client_config(certificates),
                    )
                    for _ in range(3)
                ]
                for connection in connections:
                    async with await connection.open_stream() as stream:
                        stream.write(b"x")
                        stream.finish()
                        assert await within(stream.read_to_end()) == b"x"
                assert len(shared.connections) == 3

    run(main())


def test_streams_that_were_asked_for_before_the_handshake_was_complete_are_opened(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            async with quic.Endpoint(_driver.bind("127.0.0.1")) as endpoint:
                connection = endpoint.begin(
                    client_config(certificates), server.address, "localhost"
                )
                assert connection.is_handshaking
                streams = await within(
                    asyncio.gather(
                        connection.open_stream(),
                        connection.open_stream(),
                        connection.open_stream(unidirectional=True),
                    )
                )
                assert not connection.is_handshaking
                assert sorted(stream.id for stream in streams) == [0, 2, 4]

    run(main())


@pytest.mark.parametrize(
    "settings", [{"gso": False, "gro": False, "ecn": False}, {"segments_max": 2}]
)
def test_network_that_takes_no_trains(
    run: Run, certificates: Certificates, settings: dict[str, Any]
) -> None:
    async def main() -> None:
        async with (
            served(certificates, stream_handler=echo, **settings) as server,
            dialled(certificates, server.address, **settings) as connection,
        ):
            stream = await connection.open_stream()
            stream.write(bytes(100_000))
            stream.finish()
            assert len(await within(stream.read_to_end())) == 100_000

    run(main())


def test_lingering_ends_with_the_connections_own_socket(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            async with dialled(certificates, server.address) as connection:
                lingering = asyncio.ensure_future(connection.wait_closed(linger=True))
                connection.close()
                # It waits for the peer to forget the connection by then.
                await wait_until(lambda: connection.endpoint._changed)
            await within(lingering)

    run(main())


def test_what_waits_ends_with_the_socket(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            endpoint = quic.Endpoint(_driver.bind("127.0.0.1"))
            connections = [
                await quic.open_connection(
                    *server.address[:2],
                    server_name="localhost",
                    endpoint=endpoint,
                    configuration=client_config(certificates),
                )
                for _ in range(2)
            ]
            peers = [await within(server.accept()) for _ in connections]
            waiting = [asyncio.ensure_future(connections[0].wait_closed())]
            stream = await connections[1].open_stream()
            reading = asyncio.ensure_future(stream.read(1))
            await asyncio.sleep(0)
            # Without a close before.
            await within(endpoint.wait_closed())
            await within(waiting[0])
            with pytest.raises(quic.ConnectionClosed):
                await within(reading)
            assert all(connection.is_closed for connection in connections)
            # The peers are told.
            for peer in peers:
                await within(peer.wait_closed())
                assert isinstance(peer.error, quic.ConnectionClosedByPeer)

    run(main())


def test_what_waits_ends_with_a_socket_that_is_closed_without_a_word(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _server):
            stream = await client.open_stream()
            stream.write(bytes(64 << 20))
            waiting = [
                asyncio.ensure_future(wait)
                for wait in (stream.read(1), stream.drain(), client.receive_datagram())
            ]
            ending = asyncio.ensure_future(client.wait_closed())
            await within(client.ping())
            assert not any(task.done() for task in (*waiting, ending))
            client.endpoint._driver.close()
            for task in waiting:
                with pytest.raises(quic.ConnectionClosed):
                    await within(task)
            await within(ending)

    run(main())


def test_lost_close_is_said_again_while_lingering(run: Run, certificates: Certificates) -> None:
    async def attempt() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            async with dialled(certificates, relay.address, idle_timeout=5) as connection:
                peer = await within(server.accept())
                relay.faults.blackhole = True
                connection.close(3, "bye")
                await wait_until(lambda: relay.dropped)
                relay.faults.blackhole = False
                waiting = asyncio.ensure_future(connection.wait_closed(linger=True))
                (await peer.open_stream()).write(b"are you there?")
                await within(peer.wait_closed())
                assert isinstance(peer.error, quic.ConnectionClosedByPeer)
                assert peer.error.code == 3
                await within(waiting)

    # It lingers for three probe timeouts, a few hundredths of a second here.
    run(while_scheduled(attempt, 0.02))
