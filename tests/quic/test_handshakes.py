"""Handshakes of the native API, on every loop: versions, Retry, early data, certificates, secrets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic import _driver
from tests.quic.support import both, client_config, dialled, echo, served, server_config
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

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
                # The ticket arrives with or after the answer.
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


def test_rejected_early_data(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        config = client_config(certificates)
        certificate, key = certificates.issue()
        keys = {"certificate": certificate, "private_key": key, "alpn": ["test"]}
        async with served(certificates, stream_handler=echo, early_data=True) as server:
            async with dialled(certificates, server.address, configuration=config) as first:
                # The ticket arrives with or after the answer.
                stream = await first.open_stream()
                stream.write(b"x")
                stream.finish()
                await within(stream.read_to_end())
            # The new configuration does not know sessions of the old one.
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
                # It reuses the number of the rejected stream; aborting that one must not affect it.
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


def test_key_log_that_raises_does_not_affect_connections(
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


def test_secrets_go_to_the_file_of_the_environment(
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


def test_next_address_is_tried_if_an_attempt_fails_to_start(
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


def test_streams_requested_during_the_handshake_are_opened(
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
