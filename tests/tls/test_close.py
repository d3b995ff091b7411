"""How a TLS connection ends: by either side, in every state, and only once."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    exceptions_of,
    pattern,
    serving,
)
from tests.support.tls import accepted_tls, connected_tls, handshaking, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.usefixtures("tls_engine")


@pytest.mark.parametrize("version", versions(), ids=str)
def test_close_sends_close_notify_and_waits_for_the_peers(
    run: Run, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        protocol = Recorder()
        context = certificates.client()
        context.maximum_version = version
        async with connected_tls(protocol, certificates, ssl=context) as (transport, peer):
            transport.write(b"last")
            transport.close()
            assert transport.is_closing()
            assert await peer.receive_tls_end() == b"last"
            assert not peer.has_ended
            assert not protocol.is_lost
            await peer.unwrap()
            await protocol.until_lost()
            assert protocol.reason is None
            assert await peer.receive_all() == b""
            # EOF from the peer was its answer.
            assert protocol.events == ["connection_made", "eof_received", "connection_lost"]

    run(main())


def test_close_sends_all_that_was_written(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, SOCKET_BUFFER_BYTES) as (transport, peer):
            data = pattern(MORE_THAN_THE_KERNEL_TAKES)
            transport.write(data)
            transport.close()
            transport.close()
            assert await peer.receive_tls_end() == data
            await peer.unwrap()
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())


def test_writes_after_close_are_dropped_without_an_error(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            transport.write(b"before")
            transport.close()
            transport.write(b"after")
            transport.writelines([b"after"])
            assert await peer.receive_tls_end() == b"before"
            await peer.unwrap()
            await protocol.until_lost()
            transport.write(b"much later")
            transport.close()
            transport.abort()
            assert protocol.events.count("connection_lost") == 1

    run(main())


def test_peers_close_notify_ends_the_stream_and_is_answered(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with accepted_tls(protocol, certificates) as (transport, peer):
            await peer.send_tls(b"bye")
            await support.within(peer.unwrap())
            await protocol.until_lost()
            assert protocol.data == b"bye"
            assert protocol.reason is None
            assert protocol.events == [
                *("connection_made", "data_received"),
                *("eof_received", "connection_lost"),
            ]
            assert transport.is_closing()

    run(main())


def test_half_close_is_not_supported(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates, caplog: Any
) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected_tls(protocol, certificates) as (_, peer):
            await support.within(peer.unwrap())
            await protocol.until_lost()
        words = "returning true from eof_received() has no effect when using ssl"
        assert words in [record.getMessage() for record in caplog.records]

    run(main())


def test_stream_that_ends_without_close_notify(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            await peer.send_tls(b"cut")
            await support.wait_until(lambda: protocol.data)
            peer.shut_down()
            await protocol.until_lost()
            assert protocol.events == [
                *("connection_made", "data_received"),
                *("eof_received", "connection_lost"),
            ]
            assert protocol.reason is None
            assert transport.is_closing()

    run(main())


def test_stream_that_ends_inside_of_a_record(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (_, peer):
            await peer.send(peer.encrypted(b"whole") + peer.encrypted(b"half")[:-3])
            await support.wait_until(lambda: protocol.data)
            peer.shut_down()
            await protocol.until_lost()
            assert protocol.data == b"whole"
            assert protocol.events[-1] == "connection_lost"

    run(main())


def test_reset_is_the_reason_of_the_loss(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (_, peer):
            peer.reset()
            await protocol.until_lost()
            assert isinstance(protocol.reason, ConnectionResetError)
            assert "eof_received" not in protocol.events

    run(main())


def test_forged_record_ends_the_connection_with_its_error(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (_, peer):
            record = bytearray(peer.encrypted(b"good") + peer.encrypted(b"forged"))
            record[-1] ^= 1
            await peer.send(bytes(record))
            await protocol.until_lost()
            assert isinstance(protocol.reason, ssl.SSLError)
            assert protocol.reason.reason == "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
            assert protocol.reason.library == "SSL"
            assert protocol.reason.args[0] == ssl.SSL_ERROR_SSL
            text = "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed or bad record mac"
            assert str(protocol.reason).startswith(text)
            assert protocol.events[-1] == "connection_lost"

    run(main())


def test_plaintext_in_the_middle_ends_the_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with accepted_tls(protocol, certificates) as (_, peer):
            await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await protocol.until_lost()
            assert isinstance(protocol.reason, ssl.SSLError)
            assert protocol.reason.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")

    run(main())


def test_abort_sends_nothing_and_drops_queued_data(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, SOCKET_BUFFER_BYTES) as (transport, peer):
            data = pattern(MORE_THAN_THE_KERNEL_TAKES)
            transport.write(data)
            transport.abort()
            transport.abort()
            transport.close()
            await protocol.until_lost()
            assert protocol.reason is None
            assert protocol.events.count("connection_lost") == 1
            received = 0
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                while True:
                    received += len(await peer.receive_tls(1))
            assert received < len(data)

    run(main())


def test_close_with_a_silent_peer_times_out(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        limits: dict[str, Any] = {"ssl_shutdown_timeout": 0.05}
        async with connected_tls(protocol, certificates, **limits) as (transport, peer):
            transport.close()
            await protocol.until_lost()
            assert isinstance(protocol.reason, TimeoutError)
            assert str(protocol.reason) == "SSL shutdown timed out"
            assert await peer.receive_tls_end() == b""

    run(main())


def test_close_times_out_when_the_peer_does_not_read(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        limits: dict[str, Any] = {"ssl_shutdown_timeout": 0.05}
        connection = connected_tls(protocol, certificates, SOCKET_BUFFER_BYTES, **limits)
        async with connection as (transport, _):
            transport.write(pattern(MORE_THAN_THE_KERNEL_TAKES))
            transport.close()
            await protocol.until_lost()
            assert isinstance(protocol.reason, TimeoutError)

    run(main())


def test_data_that_comes_after_close_is_an_error(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            transport.close()
            assert await peer.receive_tls_end() == b""
            await peer.send_tls(b"not finished yet")
            await protocol.until_lost()
            assert protocol.data == b""
            assert isinstance(protocol.reason, ssl.SSLError)
            assert protocol.reason.reason == "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"

    run(main())


def test_close_in_the_handshake(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocol, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await support.wait_until(lambda: protocol.transport)
            protocol.transport.pause_reading()
            upgrading = asyncio.ensure_future(
                loop.start_tls(
                    protocol.transport, protocol, certificates.server(), server_side=True
                )
            )
            await asyncio.sleep(0)
            protocol.transport.close()
            # asyncio's start_tls does not notice that its transport was closed by close().
            assert await support.within(reader.read()) == b""
            writer.close()
            await writer.wait_closed()
            upgrading.cancel()
            await asyncio.gather(upgrading, return_exceptions=True)

    run(main())


def test_close_by_the_server_reaches_the_client(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with serving(lambda: protocol, ssl=certificates.server()) as (server, address):
            reader, writer = await asyncio.open_connection(
                *address, ssl=certificates.client(), server_hostname="localhost"
            )
            await support.wait_until(lambda: protocol.transport)
            server.close()
            protocol.transport.close()
            assert await support.within(reader.read()) == b""
            writer.close()
            await support.within(writer.wait_closed())
            await protocol.until_lost()

    run(main())


@pytest.mark.parametrize("engine_side", ["client", "server"])
def test_exception_in_data_received_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates, engine_side: str
) -> None:
    class Fails(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            raise ZeroDivisionError("on purpose")

    async def main() -> None:
        protocol = Fails()
        make = connected_tls if engine_side == "client" else accepted_tls
        with exceptions_of(loop) as reports:
            async with make(protocol, certificates) as (_, peer):
                await peer.send_tls(b"x")
                await protocol.until_lost()
                assert isinstance(protocol.reason, ZeroDivisionError)
        assert [report["message"] for report in reports] == ["Fatal error on SSL protocol"]
        assert isinstance(reports[0]["exception"], ZeroDivisionError)
        assert set(reports[0]) == {"message", "exception", "transport", "protocol"}

    run(main())


def test_exception_in_eof_received_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates
) -> None:
    class Fails(Recorder):
        def eof_received(self) -> bool:
            super().eof_received()
            raise ZeroDivisionError("on purpose")

    async def main() -> None:
        protocol = Fails()
        with exceptions_of(loop) as reports:
            async with connected_tls(protocol, certificates) as (_, peer):
                await peer.send_close_notify()
                await protocol.until_lost()
                assert isinstance(protocol.reason, ZeroDivisionError)
        assert [report["message"] for report in reports] == ["Error calling eof_received()"]

    run(main())


def test_exceptions_of_flow_control_are_reported(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates
) -> None:
    class Fails(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            raise ZeroDivisionError("on purpose")

        def resume_writing(self) -> None:
            super().resume_writing()
            raise ZeroDivisionError("on purpose")

    async def main() -> None:
        protocol = Fails()
        with exceptions_of(loop) as reports:
            connection = connected_tls(protocol, certificates, SOCKET_BUFFER_BYTES)
            async with connection as (transport, peer):
                # The first is sent at once, the second finds the socket full.
                data = pattern(MORE_THAN_THE_KERNEL_TAKES)
                half = len(data) // 2
                transport.write(data[:half])
                transport.write(data[half:])
                assert "pause_writing" in protocol.events
                assert await peer.receive_tls(len(data)) == data
                await support.wait_until(lambda: "resume_writing" in protocol.events)
                transport.write(b"alive")
                assert await peer.receive_tls(5) == b"alive"
        assert {report["message"] for report in reports} == {
            "protocol.pause_writing() failed",
            "protocol.resume_writing() failed",
        }

    run(main())


def test_exception_in_connection_made_does_not_hang(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates
) -> None:
    class Fails(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            raise ZeroDivisionError("on purpose")

    async def main() -> None:
        protocol = Fails()
        with exceptions_of(loop) as reports:
            async with serving(lambda: protocol, ssl=certificates.server()) as (_, address):
                reader, writer = await asyncio.open_connection(
                    *address, ssl=certificates.client(), server_hostname="localhost"
                )
                await support.wait_until(lambda: reports)
                protocol.transport.abort()
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    raise reader.exception() or ConnectionResetError
                writer.transport.abort()
        assert isinstance(reports[0]["exception"], ZeroDivisionError)

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exception_that_ends_the_program_leaves_the_loop(
    loop: asyncio.AbstractEventLoop,
    run: Run,
    certificates: Certificates,
    error: type[BaseException],
) -> None:
    class Leaves(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            raise error

    protocol = Leaves()
    connection = connected_tls(protocol, certificates)

    async def begin() -> None:
        _, peer = await connection.__aenter__()
        await peer.send_tls(b"x")
        await support.wait_until(lambda: protocol.is_lost)

    with pytest.raises(error):
        run(begin())
    assert protocol.data == b"x"

    async def end() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await connection.__aexit__(None, None, None)

    run(end())


def test_transport_that_was_never_closed_warns(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with handshaking(Recorder(), certificates.client()) as (_, plain):
            await plain.receive(5)
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, _):
            with pytest.warns(ResourceWarning, match="unclosed transport"):
                type(transport).__del__(transport)

    run(main())


def test_lost_tls_connection_releases_everything(run: Run, certificates: Certificates) -> None:
    async def main() -> list[weakref.ref[Any]]:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            ssl_object = transport.get_extra_info("ssl_object")
            watched = [weakref.ref(item) for item in (protocol, transport, ssl_object)]
            transport.close()
            await peer.receive_tls_end()
            await peer.unwrap()
            await protocol.until_lost()
        protocol.transport = None
        return watched

    watched = run(main())
    gc.collect()
    assert [item() for item in watched] == [None, None, None]


def test_ssl_object_outlives_its_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> Any:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            transport.write(b"x")
            assert await peer.receive_tls(1) == b"x"
            return transport.get_extra_info("ssl_object")

    ssl_object = run(main())
    gc.collect()
    assert ssl_object.version() in ("TLSv1.2", "TLSv1.3")
    assert ssl_object.cipher()
    assert ssl_object.pending() == 0
    with pytest.raises(ssl.SSLWantReadError):
        ssl_object.read(1)
    assert ssl_object.write(b"nobody hears it") == 15
