"""`start_tls` that is refused, fails, takes too long or is cancelled."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Peer, Recorder, exceptions_of
from tests.tls.test_start_tls import plain, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.usefixtures("tls_engine")


def test_arguments_are_checked(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        protocol = Recorder()
        async with plain(protocol, certificates.server(), server_side=True) as (transport, _):
            context: Any
            for context in (None, True, object()):
                with pytest.raises(TypeError, match=r"instance of ssl\.SSLContext, got"):
                    await loop.start_tls(transport, protocol, context)
            context = certificates.client()
            with pytest.raises(TypeError, match=r"is not supported by start_tls\(\)"):
                await loop.start_tls(asyncio.Transport(), protocol, context)
            for name in ("ssl_handshake_timeout", "ssl_shutdown_timeout"):
                for seconds in (0, -1):
                    with pytest.raises(ValueError, match=f"{name} should be a positive number"):
                        await loop.start_tls(transport, protocol, context, **{name: seconds})
            # The plain connection is unchanged.
            assert transport.get_protocol() is protocol
            assert transport.is_reading()

    run(main())


def test_failed_handshake_is_raised_and_passed_to_connection_lost(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        protocol = Recorder()
        with exceptions_of(loop) as reports:
            async with plain(protocol, certificates.server(), server_side=True) as (
                transport,
                peer,
            ):
                upgrading = loop.start_tls(
                    transport, protocol, certificates.client(), server_hostname="elsewhere"
                )
                outcomes = await asyncio.gather(upgrading, peer.handshake(), return_exceptions=True)
                assert isinstance(outcomes[0], ssl.SSLCertVerificationError)
                await protocol.until_lost()
                assert protocol.reason is outcomes[0]
                assert protocol.events == ["connection_made", "connection_lost"]
        assert reports == []

    run(main())


def test_peer_that_goes_away(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        loop: Any = asyncio.get_running_loop()
        async with plain(protocol, certificates.server(), server_side=True) as (transport, peer):
            upgrading = asyncio.ensure_future(
                loop.start_tls(
                    transport, protocol, certificates.client(), server_hostname="localhost"
                )
            )
            await peer._more()
            peer.shut_down()
            with pytest.raises(ConnectionResetError):
                await support.within(upgrading)
            await protocol.until_lost()
            assert isinstance(protocol.reason, ConnectionResetError)

    run(main())


@pytest.mark.parametrize("server_side", [False, True])
def test_upgrade_after_eof_of_the_peer(
    run: Run, certificates: Certificates, server_side: bool
) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        loop: Any = asyncio.get_running_loop()
        async with plain(protocol, certificates.server(), server_side=True) as (transport, peer):
            peer.shut_down()
            await support.wait_until(lambda: "eof_received" in protocol.events, "the end")
            context = certificates.server() if server_side else certificates.client()
            name = None if server_side else "localhost"
            upgrading = loop.start_tls(
                transport, protocol, context, server_side=server_side, server_hostname=name
            )
            with pytest.raises(ConnectionResetError):
                await support.within(upgrading)

    run(main())


def test_handshake_times_out(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        loop: Any = asyncio.get_running_loop()
        async with plain(protocol, certificates.server(), server_side=True) as (transport, _):
            with pytest.raises(
                ConnectionAbortedError, match=r"handshake is taking longer than 0\.05 seconds"
            ):
                await loop.start_tls(
                    transport,
                    protocol,
                    certificates.client(),
                    server_hostname="localhost",
                    ssl_handshake_timeout=0.05,
                )
            # In the handshake state, the protocol is not notified of the end.
            await support.wait_until(transport.is_closing)
            assert protocol.events == ["connection_made"]

    run(main())


@pytest.mark.parametrize("when", ["before", "within"])
def test_cancelled_upgrade_closes_the_connection(
    run: Run, certificates: Certificates, when: str
) -> None:
    async def main() -> None:
        protocol = Recorder()
        loop: Any = asyncio.get_running_loop()
        async with plain(protocol, certificates.server(), server_side=True) as (transport, peer):
            upgrading = asyncio.ensure_future(
                loop.start_tls(
                    transport, protocol, certificates.client(), server_hostname="localhost"
                )
            )
            if when == "within":
                await peer._more()
            else:
                await asyncio.sleep(0)
            upgrading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await upgrading
            assert transport.is_closing()
            assert await peer.receive_all() is not None

    run(main())


def test_plaintext_ends_a_tls_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with upgraded(protocol, certificates) as (tls, peer):
            await Peer.send(peer, b"no record at all")
            await protocol.until_lost()
            assert isinstance(protocol.reason, ssl.SSLError)
            assert tls.is_closing()
            for _ in range(3):
                tls.write(b"into nowhere")
            assert tls.get_write_buffer_size() == 0

    run(main())
