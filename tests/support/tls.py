"""Shared by the TLS tests: certificates made for the run, and a plain peer with its own TLS.

The peer is `ssl.SSLObject` over a plain socket, driven by the test: no loop's TLS is ever tested
against itself. The certificates come from the `openssl` command and are trusted only here.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from tests import support
from tests.support.tcp import Peer, Recorder, socket_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NAMES = "DNS:localhost,IP:127.0.0.1"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
# The largest plaintext of a record (RFC 8446, 5.1).
RECORD_LEN_MAX = 16384


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Certificates:
    """A CA and the certificates it has signed, as files in one folder."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            support.skip("no `openssl` command to make certificates with")
        self.folder = folder
        self._lock = threading.Lock()
        self._alternatives: dict[str, str] = {}
        self.authority = folder / "authority.pem"
        self._authority_key = folder / "authority.key"
        openssl(
            *("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=authority", *KEY),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(self._authority_key), "-out", str(self.authority)),
        )

    def issue(
        self,
        name: str = "localhost",
        alternative: str = NAMES,
        *,
        days: int = 2,
        password: str = "",
    ) -> tuple[Path, Path]:
        """Create a certificate and its key, once per name, by the first thread that needs it."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        with self._lock:
            if not certificate.exists():
                self._alternatives[name] = alternative
                self._sign(certificate, key, alternative, days, password)
            assert self._alternatives[name] == alternative, f"{name} was issued for other names"
        return certificate, key

    def _sign(
        self, certificate: Path, key: Path, alternative: str, days: int, password: str
    ) -> None:
        name = certificate.stem
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        secret = ("-passout", f"pass:{password}") if password else ("-nodes",)
        openssl(
            *("req", "-new", "-subj", f"/CN={name}", *KEY, *secret),
            *("-keyout", str(key), "-out", str(request)),
        )
        openssl(
            *("x509", "-req", "-in", str(request), "-days", str(days), "-CAcreateserial"),
            *("-CA", str(self.authority), "-CAkey", str(self._authority_key)),
            *("-extfile", str(extensions), "-out", str(certificate)),
        )

    def server(self, name: str = "localhost", alternative: str = NAMES) -> ssl.SSLContext:
        """Create the context of a server called `name`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name, alternative))
        return context

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """Create the context of a client called `name` that trusts the CA."""
        context = ssl.create_default_context(cafile=self.authority)
        if name is not None:
            context.load_cert_chain(*self.issue(name))
        return context


def versions() -> list[ssl.TLSVersion]:
    return [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class TlsPeer(Peer):
    """The plain end of a connection, with TLS over it."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, **wrap: Any) -> None:
        super().__init__(sock)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, **wrap)
        self.has_ended = False

    async def handshake(self) -> None:
        await self._do(self.tls.do_handshake)

    async def send_tls(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = await self._do(self.tls.write, view)
            view = view[count:]

    async def receive_tls(self, count: int) -> bytes:
        """Receive exactly `count` bytes of plaintext."""
        data = bytearray()
        while len(data) < count:
            chunk = await self._do(self.tls.read, count - len(data))
            assert chunk, f"close_notify came after {len(data)} of {count} bytes"
            data += chunk
        return bytes(data)

    async def receive_tls_end(self) -> bytes:
        """Receive all plaintext up to the peer's close_notify."""
        data = bytearray()
        while chunk := await self._do(self.tls.read, 65536):
            data += chunk
        return bytes(data)

    async def unwrap(self) -> None:
        """Send close_notify and wait for the other one."""
        await self._do(self.tls.unwrap)

    async def send_close_notify(self) -> None:
        """Send close_notify without waiting for the other one."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        await self._flush()

    def encrypted(self, *messages: bytes) -> bytes:
        """Create records without sending them."""
        for message in messages:
            self.tls.write(message)
        return self.outgoing.read()

    async def _do(self, step: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._more()
            except ssl.SSLError:
                # The other end waits for the alert.
                await self._flush()
                raise
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        if data := self.outgoing.read():
            await self.send(data)

    async def _more(self) -> None:
        chunk: bytes | None = None

        def arrived() -> bool:
            nonlocal chunk
            chunk = self.received()
            return chunk is not None

        await support.wait_until(arrived, "ciphertext", timeout=30)
        if chunk:
            self.incoming.write(chunk)
        else:
            self.has_ended = True
            self.incoming.write_eof()


@contextlib.asynccontextmanager
async def connected_tls(
    protocol: asyncio.BaseProtocol,
    certificates: Certificates,
    buffer_bytes: int | None = None,
    peer_context: ssl.SSLContext | None = None,
    **arguments: Any,
) -> AsyncIterator[tuple[Any, TlsPeer]]:
    """Connect `protocol` as a client; close both ends afterwards, and wait for `connection_lost`."""
    ours, theirs = socket_pair(buffer_bytes)
    peer = TlsPeer(theirs, peer_context or certificates.server(), server_side=True)
    arguments.setdefault("ssl", certificates.client())
    loop = asyncio.get_running_loop()
    (transport, _), _ = await asyncio.gather(
        loop.create_connection(
            lambda: protocol, sock=ours, server_hostname="localhost", **arguments
        ),
        peer.handshake(),
    )
    try:
        yield transport, peer
    finally:
        peer.close()
        if ours.fileno() != -1:
            transport.abort()
        await support.wait_until(lambda: ours.fileno() == -1, "the socket to be closed")


@contextlib.asynccontextmanager
async def accepted_tls(
    protocol: asyncio.BaseProtocol, certificates: Certificates, **arguments: Any
) -> AsyncIterator[tuple[Any, TlsPeer]]:
    """Accept a connection for `protocol`; otherwise like `connected_tls`."""
    ours, theirs = socket_pair()
    peer = TlsPeer(theirs, certificates.client(), server_hostname="localhost")
    arguments.setdefault("ssl", certificates.server())
    loop = asyncio.get_running_loop()
    (transport, _), _ = await asyncio.gather(
        loop.connect_accepted_socket(lambda: protocol, ours, **arguments), peer.handshake()
    )
    try:
        yield transport, peer
    finally:
        peer.close()
        if ours.fileno() != -1:
            transport.abort()
        await support.wait_until(lambda: ours.fileno() == -1, "the socket to be closed")


@contextlib.asynccontextmanager
async def handshaking(
    protocol: asyncio.BaseProtocol, context: ssl.SSLContext, **arguments: Any
) -> AsyncIterator[tuple[asyncio.Task[Any], Peer]]:
    """Begin a client's handshake with a peer that sends nothing by itself."""
    ours, theirs = socket_pair()
    peer = Peer(theirs)
    loop = asyncio.get_running_loop()
    connecting = asyncio.ensure_future(
        loop.create_connection(
            lambda: protocol, sock=ours, ssl=context, server_hostname="localhost", **arguments
        )
    )
    try:
        yield connecting, peer
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        peer.close()
        await support.wait_until(lambda: ours.fileno() == -1, "the socket to be closed")


async def connect(address: tuple[str, int], context: ssl.SSLContext, **arguments: Any) -> Any:
    """Connect to a server of the loop under test; return the transport."""
    arguments.setdefault("server_hostname", "localhost")
    loop = asyncio.get_running_loop()
    connection = loop.create_connection(Recorder, *address, ssl=context, **arguments)
    transport, _ = await support.within(connection)
    return transport


async def close(transport: Any) -> None:
    protocol = transport.get_protocol()
    transport.close()
    await protocol.until_lost()


async def plain_client(
    address: tuple[str, int], context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> TlsPeer:
    """Connect the test's own client; it is closed if its handshake fails."""
    sock = socket.create_connection(address)
    peer = TlsPeer(sock, context, server_hostname="localhost", session=session)
    try:
        await support.within(peer.handshake())
    except BaseException:
        peer.close()
        raise
    return peer


class Servers:
    """A factory that keeps its protocols."""

    def __init__(self) -> None:
        self.made: list[Recorder] = []

    def __call__(self) -> Recorder:
        self.made.append(Recorder())
        return self.made[-1]

    async def until_lost(self) -> None:
        for protocol in self.made:
            await protocol.until_lost()
