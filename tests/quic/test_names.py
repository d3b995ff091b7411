"""Names and addresses: IPv6 zones, server and protocol names, self-signed certificates."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from ringloop.quic._driver import numeric
from ringloop.quic.asyncio import connect
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.errors import shown
from tests.quic import shape
from tests.quic.support import client_config, dialled, served, server_config
from tests.support import within
from tests.support.tls import openssl

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

LOOPBACK = socket.if_nametoindex("lo")


def link_local() -> tuple[str, str, int] | None:
    """A link-local address of this machine, with its interface's name and number."""
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        digits, number, _, scope, _, name = line.split()
        if scope == "20":
            return (
                socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)),
                name,
                int(number, 16),
            )
    return None


# --- zones ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["lo", str(LOOPBACK)])
def test_zones_are_numbers_of_interfaces(certificates: Certificates, zone: str) -> None:
    assert numeric(f"fe80::1%{zone}", 9) == (socket.AF_INET6, ("fe80::1", 9, 0, LOOPBACK))
    endpoint = native.Endpoint(events=True)
    key = endpoint.connect(client_config(certificates), (f"fe80::1%{zone}", 9), "localhost", 1.0)
    connection = native.EventConnection(endpoint, key)
    assert connection.remote_address == ("fe80::1", 9, 0, LOOPBACK)


def test_full_addresses_keep_all_four(certificates: Certificates) -> None:
    endpoint = native.Endpoint(events=True)
    address = ("fe80::1", 9, 5, LOOPBACK)
    key = endpoint.connect(client_config(certificates), address, "localhost", 1.0)
    assert native.EventConnection(endpoint, key).remote_address == address


def test_invalid_zone(certificates: Certificates) -> None:
    endpoint = native.Endpoint(events=True)
    with pytest.raises(OSError, match=r"no interface|No such device"):
        endpoint.connect(client_config(certificates), ("fe80::1%none", 9), "localhost", 1.0)


def test_connections_within_a_link(run: Run, certificates: Certificates) -> None:
    found = link_local()
    if found is None:
        pytest.skip("this machine has no link-local address")
    address, name, number = found
    certificate, key = certificates.issue("link", f"IP:{address},DNS:localhost")
    shown: dict[str, Any] = {"certificate": certificate, "private_key": key, "alpn": ["test"]}
    known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}

    async def main() -> None:
        for host in ("::", f"{address}%{name}", f"{address}%{number}"):
            async with await quic.serve(None, host, **shown) as server:
                for zone in (name, str(number)):
                    async with quic.connect(f"{address}%{zone}", server.address[1], **known) as c:
                        assert c.remote_address[-1] == number
                    local = (address, 0, 0, number)
                    connected = quic.connect(
                        f"{address}%{zone}",
                        server.address[1],
                        server_name="localhost",
                        local_address=local,
                        **known,
                    )
                    async with connected as c:
                        assert c.endpoint.address[-1] == number

    run(main())


def test_link_local_connections_in_the_aioquic_api(run: Run, certificates: Certificates) -> None:
    found = link_local()
    if found is None:
        pytest.skip("this machine has no link-local address")
    address, name, number = found
    certificate, key = certificates.issue("link", f"IP:{address},DNS:localhost")
    server = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    server.load_cert_chain(certificate, key)

    async def main() -> None:
        for zone in (name, str(number)):
            configuration = QuicConfiguration(
                alpn_protocols=["test"], cafile=str(certificates.authority)
            )
            served = shape.served(certificates, configuration=server, host=f"{address}%{zone}")
            async with served as endpoint:
                port = shape.port_of(endpoint)
                connected = connect(f"{address}%{zone}", port, configuration=configuration)
                async with connected as protocol:
                    await within(protocol.ping())
                    assert protocol.get_extra_info("peername")[-1] == number

    run(main())


def test_local_address_with_its_zone_in_either_form(run: Run, certificates: Certificates) -> None:
    found = link_local()
    if found is None:
        pytest.skip("this machine has no link-local address")
    address, name, number = found

    async def main() -> None:
        async with served(certificates, host="::") as server:
            for local in (
                (f"{address}%{name}", 0),
                (f"{address}%{name}", 0, 0, 0),
                (f"{address}%{name}", 0, 0, number),
                (address, 0, 0, number),
            ):
                async with quic.connect(
                    f"{address}%{name}",
                    server.address[1],
                    server_name="localhost",
                    local_address=local,
                    ca_file=certificates.authority,
                    alpn=["test"],
                ) as connection:
                    assert connection.endpoint.address[-1] == number

    run(main())


def test_zones_are_shown() -> None:
    assert shown(("fe80::1", 9, 0, 3)) == "[fe80::1%3]:9"
    assert shown(("fe80::1%lo", 9, 0, 3)) == "[fe80::1%lo]:9"
    assert shown(("::1", 9, 0, 0)) == "[::1]:9"
    assert shown(("127.0.0.1", 9)) == "127.0.0.1:9"


def test_server_names_have_no_zone(certificates: Certificates) -> None:
    endpoint = native.Endpoint(events=True)
    config = client_config(certificates)
    for name in ("fe80::1%lo", f"fe80::1%{LOOPBACK}", "fe80::1%none"):
        endpoint.connect(config, (f"fe80::1%{LOOPBACK}", 9), name, 1.0)
    with pytest.raises(quic.ConnectError, match="is not a valid server name"):
        endpoint.connect(config, ("192.0.2.1", 9), "localhost%lo", 1.0)


# --- names of servers -----------------------------------------------------------------------------


def test_serving_at_a_name(run: Run, certificates: Certificates) -> None:
    certificate, key = certificates.issue()

    async def main() -> None:
        shown: dict[str, Any] = {"certificate": certificate, "private_key": key, "alpn": ["test"]}
        async with await quic.serve(None, "localhost", **shown) as server:
            known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}
            async with quic.connect("localhost", server.address[1], **known) as connection:
                assert connection.handshake is not None

    run(main())


@pytest.mark.parametrize("host", [["127.0.0.1"], b"127.0.0.1", 7])
def test_host_is_one_name(run: Run, certificates: Certificates, host: Any) -> None:
    certificate, key = certificates.issue()

    async def main() -> None:
        with pytest.raises(TypeError, match="host must be one name or address"):
            await quic.serve(None, host, certificate=certificate, private_key=key)
        with pytest.raises(TypeError, match="host must be one name or address"):
            await quic.open_connection(host, 9, verify=False)

    run(main())


def test_server_names_are_encoded_as_in_certificates(run: Run, certificates: Certificates) -> None:
    certificate, key = certificates.issue("u-label", "DNS:xn--bcher-kva.example")

    async def main() -> None:
        other = certificates.issue()
        sni: dict[str, Any] = {"bücher.example": (certificate, key)}
        shown: dict[str, Any] = {
            "certificate": other[0],
            "private_key": other[1],
            "sni": sni,
            "alpn": ["test"],
        }
        async with await quic.serve(None, "127.0.0.1", **shown) as server:
            known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}
            for name in ("bücher.example", "BÜCHER.example", "xn--bcher-kva.example"):
                connected = quic.connect(*server.address, server_name=name, **known)
                async with connected as connection:
                    assert connection.handshake is not None

    run(main())


def test_name_that_cannot_be_encoded(certificates: Certificates) -> None:
    endpoint = native.Endpoint(events=True)
    with pytest.raises(quic.ConfigurationError, match="is not a valid server name"):
        endpoint.connect(client_config(certificates), ("192.0.2.1", 9), "ü" * 64, 1.0)


@pytest.mark.parametrize("host", [None, "", "::", "0.0.0.0"])
def test_serving_at_every_address(run: Run, certificates: Certificates, host: str | None) -> None:
    async def main() -> None:
        async with served(certificates, host=host) as server:
            async with dialled(certificates, ("127.0.0.1", server.address[1])) as connection:
                await within(connection.ping())

    run(main())


def test_connecting_from_a_name(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            local = ("localhost", 0)
            connected = dialled(certificates, server.address, local_address=local)
            async with connected as connection:
                assert connection.endpoint.address[0] == "127.0.0.1"
            with pytest.raises(OSError, match="not of the server's address family") as caught:
                async with dialled(certificates, server.address, local_address=("::1", 0)):
                    pass
            assert caught.value.errno == errno.EAFNOSUPPORT

    run(main())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "", None])
def test_workers_at_a_name(host: str | None) -> None:
    workers = quic.bind_workers(host, count=2)
    addresses = {worker.sock.getsockname() for worker in workers}
    for worker in workers:
        worker.close()
    assert len(addresses) == 1
    with pytest.raises(TypeError, match="host must be one name or address"):
        quic.bind_workers(["127.0.0.1"], count=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [b"localhost", 3, ["localhost"]])
def test_server_name_is_one_name(run: Run, certificates: Certificates, name: Any) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="server_name must be one name"):
            async with dialled(certificates, ("127.0.0.1", 9), server_name=name):
                pass

    run(main())


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ("BÜCHER.example", "bücher.example"),
        ("*.bücher.example", "a.BÜCHER.example"),
        ("xn--bcher-kva.example.", "bücher.example"),
        ("bücher.example.", "xn--bcher-kva.example."),
        ("straße.example", "strasse.example"),
        ("bücher\u3002example", "bücher.example"),
    ],
)
def test_names_of_certificates(run: Run, certificates: Certificates, key: str, asked: str) -> None:
    names = "DNS:xn--bcher-kva.example,DNS:*.xn--bcher-kva.example,DNS:strasse.example"
    pair = certificates.issue("u-labels", names)

    async def main() -> None:
        config = server_config(certificates, sni={key: pair})
        async with served(certificates, configuration=config) as server:
            known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}
            async with quic.connect(*server.address, server_name=asked, **known) as connection:
                await within(connection.ping())
        assert config.remove_certificate(key)
        assert not config.remove_certificate(key)

    run(main())


@pytest.mark.parametrize("name", ["", "a b", "*", "*.", "a.*.b", "127.0.0.1", "::1", "x" * 64])
def test_names_that_clients_never_send(certificates: Certificates, name: str) -> None:
    pair = certificates.issue()
    config = server_config(certificates)
    for take in (
        lambda: server_config(certificates, sni={name: pair}),
        lambda: config.set_certificate(*pair, name),
        lambda: config.remove_certificate(name),
    ):
        with pytest.raises(quic.ConfigurationError, match="is not a name that clients can request"):
            take()


# --- names of protocols ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpn", "text"),
    [
        ([""], "1 to 255 bytes"),
        (["h3", b""], "1 to 255 bytes"),
        (["x" * 256], "has 256"),
        (["é" * 128], "has 256"),
        ([f"p{number:05}" for number in range(9400)], "65800 bytes in total"),
    ],
)
def test_protocols_that_tls_cannot_carry(
    certificates: Certificates, alpn: list[Any], text: str
) -> None:
    for make in (client_config, server_config):
        with pytest.raises(quic.ConfigurationError, match=f"alpn: .*{text}"):
            make(certificates, alpn=alpn)


@pytest.mark.parametrize(
    "alpn", ["h3", b"h3", [3], [[104, 51]], [None], [["h3"]], 3, True, object()]
)
def test_protocols_of_other_types(certificates: Certificates, alpn: Any) -> None:
    for make in (client_config, server_config):
        with pytest.raises(TypeError):
            make(certificates, alpn=alpn)


@pytest.mark.parametrize("alpn", ["h3", b"h3", bytearray(b"h3"), memoryview(b"h3"), [3], 3])
def test_protocols_of_other_types_in_the_aioquic_api(certificates: Certificates, alpn: Any) -> None:
    for make in (lambda it: it.client_config(), lambda it: it.server_config()):
        configuration = QuicConfiguration(alpn_protocols=alpn, cafile=str(certificates.authority))
        configuration.load_cert_chain(*certificates.issue())
        with pytest.raises(TypeError):
            make(configuration)


@pytest.mark.parametrize("alpn", [[], (), None])
def test_no_protocols(run: Run, certificates: Certificates, alpn: Any) -> None:
    async def main() -> None:
        async with served(certificates, alpn=alpn) as server:
            async with dialled(certificates, server.address, alpn=alpn) as connection:
                assert connection.alpn is None

    run(main())


def test_protocol_name_not_utf8(certificates: Certificates) -> None:
    for make in (client_config, server_config):
        with pytest.raises(quic.ConfigurationError, match=r"alpn: .* cannot be encoded"):
            make(certificates, alpn=["\udc80"])


def test_longest_protocol_names(run: Run, certificates: Certificates) -> None:
    certificate, key = certificates.issue()
    names = ["x" * 255, "é" * 127, b"\xff", bytearray(b"mutable"), memoryview(b"view")]

    async def main() -> None:
        shown: dict[str, Any] = {"certificate": certificate, "private_key": key, "alpn": names}
        async with await quic.serve(None, "127.0.0.1", **shown) as server:
            for name in names:
                known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": [name]}
                connected = quic.connect(*server.address, server_name="localhost", **known)
                async with connected as connection:
                    assert connection.handshake is not None

    run(main())


# --- self-signed certificates ---------------------------------------------------------------------


def self_signed(folder: Path, *options: str) -> tuple[Path, Path]:
    """Create with `openssl req -x509` a certificate that is a CA's and a server's in one."""
    certificate, key = folder / "own.pem", folder / "own.key"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=own", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
        *("-keyout", str(key), "-out", str(certificate), *options),
    )
    return certificate, key


def test_self_signed_certificate_as_its_own_authority(
    run: Run, tmp_path: Path, certificates: Certificates
) -> None:
    certificate, key = self_signed(tmp_path)

    async def main() -> None:
        shown: dict[str, Any] = {"certificate": certificate, "private_key": key, "alpn": ["test"]}
        async with await quic.serve(None, "127.0.0.1", **shown) as server:
            known: dict[str, Any] = {"ca_file": certificate, "alpn": ["test"]}
            connected = quic.connect(*server.address, server_name="localhost", **known)
            async with connected as connection:
                assert connection.handshake is not None
            # Another name, and another CA.
            for name, trusted in (("other", certificate), ("localhost", certificates.authority)):
                with pytest.raises(quic.ConnectionClosed):
                    await within(
                        quic.open_connection(
                            *server.address, server_name=name, ca_file=trusted, alpn=["test"]
                        )
                    )

    run(main())


def test_self_signed_client_certificate(
    run: Run, tmp_path: Path, certificates: Certificates
) -> None:
    certificate, key = self_signed(tmp_path)
    own, own_key = certificates.issue()

    async def main() -> None:
        shown: dict[str, Any] = {"certificate": own, "private_key": own_key, "alpn": ["test"]}
        wanted: dict[str, Any] = {"client_auth": "required", "ca_file": certificate}
        async with await quic.serve(None, "127.0.0.1", **shown, **wanted) as server:
            known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}
            mine: dict[str, Any] = {"certificate": certificate, "private_key": key}
            known.update(mine)
            connected = quic.connect(*server.address, server_name="localhost", **known)
            async with connected as connection:
                stream = await connection.open_stream()
                stream.write(b"x")
                accepted = await within(server.accept())
                assert accepted.peer_certificates()

    run(main())
