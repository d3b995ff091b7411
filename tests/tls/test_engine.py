"""The two engines of our TLS: which one a connection uses, and properties of the direct one."""

from __future__ import annotations

import asyncio
import ctypes
import os
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import _native
from tests import support
from tests.support.tcp import Recorder
from tests.support.tls import connected_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

OURS = [name for name in support.LOOPS if name != support.ORACLE]


@pytest.fixture(params=OURS)
def loop_name(request: pytest.FixtureRequest) -> str:
    """Our own loops: this tests their internals."""
    return support.usable_loop(request.param)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLOOP_TLS", "auto")
    if _native.tls_engine()[0] != "direct":
        pytest.skip(f"libssl is out of reach here: {_native.tls_engine()[1]}")


def is_direct(transport: Any) -> bool:
    return bool(transport._ssl_protocol._libssl)


async def exchanged(transport: Any, peer: Any, protocol: Recorder) -> None:
    """Transfer something in each direction."""
    transport.write(b"to the peer")
    assert await peer.receive_tls(11) == b"to the peer"
    await peer.send_tls(b"from the peer")
    await support.wait_until(lambda: protocol.data.endswith(b"from the peer"))


@pytest.mark.parametrize(("choice", "expected"), [("auto", True), ("direct", True), ("bio", False)])
def test_environment_chooses(
    run: Run,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    expected: bool,
) -> None:
    monkeypatch.setenv("RINGLOOP_TLS", choice)
    assert _native.tls_engine()[0] == ("direct" if expected else "bio")

    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            assert is_direct(transport) is expected
            await exchanged(transport, peer, protocol)

    run(main())


def test_unknown_choice_is_refused(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGLOOP_TLS", "fast")
    with pytest.raises(ValueError, match="one of auto, direct, bio"):
        _native.tls_engine()


def test_functions_are_those_of_the_library_that_ssl_uses() -> None:
    import _ssl

    # The same search as ours: through the module's own handle.
    address = ctypes.cast(ctypes.CDLL(_ssl.__file__).SSL_read_ex, ctypes.c_void_p).value
    assert address is not None
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    spans = [(line[0].split("-"), line[-1]) for line in lines if line[1].startswith("r-x")]
    found = [name for (low, high), name in spans if int(low, 16) <= address < int(high, 16)]
    assert len(found) == 1
    assert "ssl" in found[0]


def test_context_subclass_uses_the_direct_engine(run: Run, certificates: Certificates) -> None:
    class Context(ssl.SSLContext):
        pass

    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.authority)

    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, ssl=context) as (transport, peer):
            assert is_direct(transport)
            await exchanged(transport, peer, protocol)

    run(main())


def test_custom_ssl_objects_are_called_by_their_methods(
    run: Run, certificates: Certificates
) -> None:
    calls: list[str] = []

    class Watching(ssl.SSLObject):
        def read(self, *arguments: Any) -> Any:
            calls.append("read")
            return super().read(*arguments)

        def write(self, data: Any) -> int:
            calls.append("write")
            return super().write(data)

    context = certificates.client()
    context.sslobject_class = Watching

    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, ssl=context) as (transport, peer):
            assert not is_direct(transport)
            await exchanged(transport, peer, protocol)
        assert set(calls) == {"read", "write"}

    run(main())


def test_own_handshake_of_an_object_is_called(run: Run, certificates: Certificates) -> None:
    calls: list[str] = []

    class Verifying(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            calls.append("verified")

    context = certificates.client()
    context.sslobject_class = Verifying

    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, ssl=context) as (transport, peer):
            assert is_direct(transport)
            await exchanged(transport, peer, protocol)
        assert calls == ["verified"]

    run(main())


def test_contexts_with_hooks_use_the_methods(
    run: Run, certificates: Certificates, tmp_path: Any
) -> None:
    seen: list[str] = []

    async def checked(context: ssl.SSLContext) -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, ssl=context) as (transport, peer):
            assert not is_direct(transport)
            await exchanged(transport, peer, protocol)

    async def main() -> None:
        # The file is open while its context exists.
        logged, watched = certificates.client(), certificates.client()
        logged.keylog_filename = str(tmp_path / "keys")
        watched._msg_callback = lambda *message: seen.append(message[1])
        await checked(logged)
        await checked(watched)
        assert {"read", "write"} <= set(seen)

    run(main())


def test_stale_openssl_errors_are_ignored(run: Run, certificates: Certificates) -> None:
    import _ssl

    library = ctypes.CDLL(_ssl.__file__)

    class Soils(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            library.ERR_new()
            library.ERR_set_error(20, 100, None)

    async def main() -> None:
        protocol = Soils()
        async with connected_tls(protocol, certificates) as (transport, peer):
            for _ in range(3):
                await exchanged(transport, peer, protocol)
            assert not protocol.is_lost

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="pre-shared keys came with CPython 3.13")
def test_reentrant_callback_finds_the_session_busy(run: Run) -> None:
    """The server requests a renegotiation, so the callback runs inside a read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("PSK")
    protocol = Recorder()
    calls: list[bool] = []

    def key(hint: str | None) -> tuple[str | None, bytes]:
        calls.append(protocol.transport is not None)
        if protocol.transport is not None:
            protocol.transport.write(b"from inside\n")
        return "Client_identity", b"secret"

    context.set_psk_client_callback(key)  # type: ignore[attr-defined]

    async def main() -> None:
        server = await asyncio.create_subprocess_exec(
            *("openssl", "s_server", "-accept", "127.0.0.1:0", "-nocert", "-tls1_2"),
            *("-psk", b"secret".hex(), "-cipher", "PSK", "-no_ticket", "-no_cache"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        said = await support.within(server.stdout.readuntil(b"ACCEPT 127.0.0.1:"))
        port = int(await support.within(server.stdout.readline()))
        assert said
        try:
            await renegotiate(server, port)
        finally:
            server.kill()
            server.stdin.close()
            await support.within(server.communicate())

    async def renegotiate(server: Any, port: int) -> None:
        loop = asyncio.get_running_loop()
        connection = loop.create_connection(lambda: protocol, "127.0.0.1", port, ssl=context)
        transport, _ = await support.within(connection)
        assert is_direct(transport)
        assert calls == [False]
        server.stdin.write(b"r\n")
        await support.wait_until(lambda: calls == [False, True])
        await support.within(server.stdout.readuntil(b"from inside\n"))
        transport.write(b"and after\n")
        await support.within(server.stdout.readuntil(b"and after\n"))
        transport.abort()
        await protocol.until_lost()

    run(main())


WITHOUT = {
    "built in": ("del _ssl.__file__", "_ssl is built into the interpreter"),
    "moved": ("_ssl.__file__ = '/nowhere'", "_ssl is not loaded from its file"),
    "other layout": ("_ssl._SSLSocket = int", "the objects of _ssl are not laid out as expected"),
    "other types": ("_ssl._SSLSocket = 7", "_ssl has other types than expected"),
}
PROGRAM = """
import _ssl, asyncio, os, ssl, sys
{change}
import ringloop
from ringloop import _native
certificate, key, authority, driver = sys.argv[1:]
assert _native.tls_engine() == ("bio", {reason!r}), _native.tls_engine()

async def main():
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate, key)
    async def echo(reader, writer):
        writer.write(await reader.read(100))
        writer.close()
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context)
    async def connect():
        return await asyncio.open_connection(
            *server.sockets[0].getsockname(),
            ssl=ssl.create_default_context(cafile=authority), server_hostname="localhost")
    reader, writer = await connect()
    assert not writer.transport._ssl_protocol._libssl
    writer.write(b"x")
    assert await reader.read() == b"x"
    writer.close()
    await writer.wait_closed()
    os.environ["RINGLOOP_TLS"] = "direct"
    try:
        await connect()
    except RuntimeError as error:
        assert str(error) == "RINGLOOP_TLS=direct, but " + {reason!r}
    else:
        raise AssertionError("it was connected")
    server.close()

ringloop.Loop(driver=driver).run_until_complete(main())
"""


@pytest.mark.parametrize("name", WITHOUT)
def test_tls_works_without_access_to_libssl(
    loop_name: str, certificates: Certificates, name: str
) -> None:
    change, reason = WITHOUT[name]
    arguments = [*map(str, certificates.issue()), str(certificates.authority)]
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", PROGRAM.format(change=change, reason=reason)),
            *(*arguments, loop_name.removeprefix("ringloop-")),
        ],
        env=os.environ | {"RINGLOOP_TLS": "auto"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
