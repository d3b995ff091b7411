"""The server: both protocols, certificates, its end; on every loop."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from ringloop.serve import Server, Settings, StartupError
from ringloop.serve._settings import parse_address
from tests.serve.support import (
    both,
    client_of,
    fetched,
    fetched_over_tcp,
    plain,
    served,
    settings,
)
from tests.support import wait_until, within
from tests.support.tls import openssl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_http1_tells_of_http3(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, plain) as server:
            headers, body, _ = await fetched_over_tcp(certificates, server, "/one")
            assert body == b"/one by 1.1"
            assert headers["alt-svc"] == f'h3=":{server.quic_address[1]}"; ma=86400'
            async with client_of(certificates, server) as client:
                assert await fetched(client, "GET", "/two") == (200, b"/two by 3")
        async with served(certificates, plain, alt_svc_port=443) as server:
            headers, _, _ = await fetched_over_tcp(certificates, server)
            assert headers["alt-svc"] == 'h3=":443"; ma=86400'
        async with served(certificates, plain, alt_svc_seconds=0) as server:
            headers, _, _ = await fetched_over_tcp(certificates, server)
            assert "alt-svc" not in headers

    run(main())


async def shown(certificates: Certificates, server: Server, name: str) -> tuple[bytes, bytes]:
    """Return the certificates of both protocols that clients get which ask for a name."""
    _, _, tcp = await fetched_over_tcp(certificates, server, name=name)
    opening = h3.open_client(*server.quic_address, ca_file=certificates.authority, server_name=name)
    async with await within(opening) as client:
        chain = client.connection.peer_certificates()
    return tcp, chain[0]


def test_certificates_are_selected_by_name_and_reloaded(
    run: Run, certificates: Certificates, tmp_path: Path
) -> None:
    def der(pem: Path) -> bytes:
        return ssl.PEM_cert_to_DER_cert(pem.read_text())

    files = [tmp_path / "cert.pem", tmp_path / "key.pem"]
    other = certificates.issue("other.example", "DNS:other.example")
    again = certificates.issue("again", "DNS:localhost")
    for source, target in zip(certificates.issue(), files, strict=True):
        shutil.copy(source, target)

    async def main() -> None:
        changed = {
            "certificate": files[0],
            "private_key": files[1],
            "sni": {"other.example": other},
        }
        async with served(certificates, plain, **changed) as server:
            first = der(files[0])
            assert await shown(certificates, server, "localhost") == (first, first)
            second = der(other[0])
            assert await shown(certificates, server, "other.example") == (second, second)
            # A certificate without its key changes nothing.
            shutil.copy(again[0], files[0])
            assert not server.reload_certificates()
            assert await shown(certificates, server, "localhost") == (first, first)
            shutil.copy(again[1], files[1])
            assert server.reload_certificates()
            third = der(again[0])
            assert await shown(certificates, server, "localhost") == (third, third)
            assert await shown(certificates, server, "other.example") == (second, second)

    run(main())


@pytest.mark.parametrize(
    "kind", [("rsa:2048",), ("ed25519",), ("ec", "-pkeyopt", "ec_paramgen_curve:P-384")]
)
def test_kinds_of_keys(run: Run, tmp_path: Path, kind: tuple[str, ...], certificates: Any) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    openssl(
        *("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-newkey", *kind),
        *(
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ),
        *("-keyout", str(key), "-out", str(certificate)),
    )

    async def main() -> None:
        given = {"certificate": certificate, "private_key": key}
        async with served(certificates, plain, **given) as server:
            opening = h3.open_client(*server.quic_address, server_name="localhost", verify=False)
            async with await within(opening) as client:
                assert await fetched(client, "GET", "/") == (200, b"/ by 3")
            context = ssl.create_default_context(cafile=certificate)
            assert server.tcp_address is not None
            _, writer = await within(
                asyncio.open_connection(
                    *server.tcp_address, ssl=context, server_hostname="localhost"
                )
            )
            writer.close()
            await within(writer.wait_closed())

    run(main())


def test_end_waits_for_requests_of_both_protocols(run: Run, certificates: Certificates) -> None:
    begun = 0
    ended: list[str] = []
    body = bytes(3 << 20)

    async def main() -> None:
        may_end = asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            nonlocal begun
            if scope["type"] == "lifespan":
                await plain(scope, receive, send)
                ended.append("lifespan")
                return
            begun += 1
            await may_end.wait()
            headers = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            ended.append(scope["http_version"])

        async with served(certificates, application) as server:
            async with client_of(certificates, server) as client:
                by_http3 = asyncio.ensure_future(fetched(client, "GET", "/"))
                by_http1 = asyncio.ensure_future(fetched_over_tcp(certificates, server))
                await wait_until(lambda: begun == 2)
                server.shut_down()
                await wait_until(lambda: client.is_going_away)
                with pytest.raises(h3.RequestRejected):
                    await within(client.request("GET", "/"))
                may_end.set()
                assert await within(by_http3) == (200, body)
                assert (await within(by_http1))[1] == body
                await within(server.wait_closed())
        assert sorted(ended) == ["1.1", "3", "lifespan"]
        assert ended[-1] == "lifespan"

    run(main())


def test_second_signal_cuts_requests_off(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await plain(scope, receive, send)
                return
            begun.set()
            await asyncio.Event().wait()

        async with served(certificates, application) as server:
            async with client_of(certificates, server) as client:
                asking = asyncio.ensure_future(client.request("GET", "/"))
                await within(begun.wait())
                server.shut_down()
                await wait_until(lambda: client.is_going_away)
                server.shut_down()
                await within(server.wait_closed())
                with pytest.raises(quic.QuicError):
                    await within(asking)

    run(main())


@pytest.mark.parametrize("lifespan", ["auto", "on"])
def test_application_that_starts_is_ended_by_one_signal_later_and_by_two_at_once(
    run: Run, certificates: Certificates, lifespan: str
) -> None:
    async def main() -> None:
        begun, may_start, ended = asyncio.Event(), asyncio.Event(), []

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            begun.set()
            try:
                await may_start.wait()
                await plain(scope, receive, send)
            finally:
                ended.append(scope["type"])

        server = Server(application, settings(certificates, lifespan=lifespan))
        starting = asyncio.ensure_future(server.start())
        await within(begun.wait())
        server.shut_down()
        may_start.set()
        await within(starting)
        await within(server.wait_closed())
        assert ended == ["lifespan"]

        begun.clear()
        may_start.clear()
        server = Server(application, settings(certificates, lifespan=lifespan))
        starting = asyncio.ensure_future(server.start())
        await within(begun.wait())
        server.shut_down()
        server.shut_down()
        with pytest.raises(StartupError, match="before the application had started"):
            await within(starting)
        assert ended == ["lifespan", "lifespan"]

    run(main())


def test_second_signal_cuts_off_an_application_that_does_not_end(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        ends = asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            ends.set()
            await asyncio.Event().wait()

        server = Server(application, settings(certificates))
        await within(server.start())
        server.shut_down()
        await within(ends.wait())
        server.shut_down()
        await within(server.wait_closed())

    run(main())


def test_requests_that_take_too_long_are_cut_off(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await plain(scope, receive, send)
                return
            begun.set()
            await asyncio.Event().wait()

        async with both(certificates, application, graceful_seconds=0) as client:
            asking = asyncio.ensure_future(client.request("GET", "/"))
            await within(begun.wait())
        with pytest.raises(quic.QuicError):
            await within(asking)

    run(main())


def test_application_that_refuses_to_start(run: Run, certificates: Certificates) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    async def main() -> None:
        for refused in (application, "tests.serve.no_such_module:app", "tests.serve.support:none"):
            server = Server(refused, settings(certificates, lifespan="on"))
            with pytest.raises(StartupError):
                await within(server.start())

    run(main())


def test_address_in_use_is_named(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, plain) as server:
            for protocol, name in (("TCP", "bind"), ("UDP", "quic_bind")):
                address = server.tcp_address if name == "bind" else server.quic_address
                assert address is not None
                second = Server(plain, settings(certificates, **{name: address}))
                with pytest.raises(OSError, match=f"{protocol} 127.0.0.1:{address[1]}"):
                    await within(second.start())

    run(main())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("graceful_seconds", -1),
        ("alt_svc_seconds", -1),
        ("alt_svc_port", 65536),
        ("websocket_bytes_max", 0),
        ("bind", ("127.0.0.1", 65536)),
        ("root_path", "api"),
        ("root_path", "/api/"),
    ],
)
def test_settings_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Settings(certificate="c", private_key="k", **{name: value})


def test_settings_without_an_address_are_refused() -> None:
    with pytest.raises(ValueError, match="quic_bind"):
        Settings(certificate="c", private_key="k", bind=None)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:443", ("::1", 443)),
        (":443", ("", 443)),
        ("443", ("", 443)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "::1:443", "host:", "host:65536", "host:x", "host:-1", "host:²"]
)
def test_text_that_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        parse_address(text)
