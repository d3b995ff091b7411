"""Connections that move, on every loop: rebinding, key updates, and waiters for a socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop._native import quic as native
from ringloop.quic import _driver
from tests.quic.support import both, client_config, dialled, echo, relayed, served
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import LoopLog
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_restarted_nat(run: Run, certificates: Certificates) -> None:
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


def test_moving_at_once_waits_for_the_handshake(run: Run, certificates: Certificates) -> None:
    """In the same task step in which the client connected: the server has not confirmed it yet."""

    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            for _ in range(10):
                async with dialled(certificates, server.address, idle_timeout=5) as connection:
                    before = connection.endpoint.address
                    await within(connection.rebind("127.0.0.1"))
                    assert connection.endpoint.address != before
                    stream = await connection.open_stream()
                    stream.write(b"after")
                    assert await within(stream.readexactly(5)) == b"after"

    run(main())


def test_moving_after_a_lost_last_flight(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo, initial_rtt=0.02) as server:
            # The first one is what begins the handshake.
            async with relayed(server.address, lost_from_client=range(1, 4)) as relay:
                for _ in range(5):
                    connected = dialled(certificates, relay.address, initial_rtt=0.02)
                    async with connected as connection:
                        assert not connection.is_confirmed
                        await within(connection.rebind("127.0.0.1"))
                        stream = await connection.open_stream()
                        stream.write(b"after")
                        assert await within(stream.readexactly(5)) == b"after"

    run(main())


def test_endpoint_does_not_move_during_a_handshake(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            async with dialled(certificates, server.address) as connection:
                await connection._confirmed()
                endpoint = connection.endpoint
                config = client_config(certificates)
                other = endpoint.begin(config, server.address, "localhost")
                with pytest.raises(OSError, match="not confirmed"):
                    endpoint.rebind("127.0.0.1")
                with pytest.raises(RuntimeError, match="not confirmed"):
                    native.EventConnection(endpoint._native, other._key).local_address_changed()
                # Rebinding one connection waits for the other's confirmation.
                await within(connection.rebind("127.0.0.1"))
                assert other.is_confirmed
                for moved in (connection, other):
                    stream = await moved.open_stream()
                    stream.write(b"after")
                    assert await within(stream.readexactly(5)) == b"after"
                other.close()

    run(main())


def test_moving_a_connection_whose_handshake_fails(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            async with dialled(certificates, server.address) as connection:
                config = client_config(certificates, alpn=["another"])
                other = connection.endpoint.begin(config, server.address, "localhost")
                await within(connection.rebind("127.0.0.1"))
                assert other.is_closed

    run(main())


class _Full:
    """Replaces an endpoint: its socket is full until it is rebound."""

    connection_count = 0
    is_full = True
    error: Exception | None = None

    def attach(self, _loop: object, _on_events: object, on_full: Callable[[], None]) -> None:
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


def test_waiter_for_a_full_socket_continues_on_the_next_one(run: Run) -> None:
    async def main() -> None:
        driver, sending = await _waiting(_Full())
        driver.rebind(_driver.bind("127.0.0.1"))
        await within(sending)
        driver.close()

    run(main())


@pytest.mark.loop_errors
def test_waiter_for_a_full_socket_gets_errors(run: Run, loop_log: LoopLog) -> None:
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


@pytest.mark.parametrize(
    "settings", [{"gso": False, "gro": False, "ecn": False}, {"segments_max": 2}]
)
def test_transfer_with_reduced_batching(
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
