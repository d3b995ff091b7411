"""Settings: each number is refused where it is set, by name, with its bounds."""

from __future__ import annotations

import asyncio
import functools
import math
import ssl
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic, webtransport
from ringloop._native import quic as native
from ringloop.quic import asyncio as shaped
from ringloop.quic.configuration import QuicConfiguration
from tests.quic.support import both, server_config
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

NUMBER_END = 2**62
WRONG_NUMBERS = (-1, NUMBER_END, 2**64, 2**200)
WRONG_TIMES = (-1, 0, 0.0009, math.nan, math.inf, -math.inf, 1e300)

# Further invalid values, in addition to those above.
NUMBERS: dict[str, tuple[int, ...]] = {
    "max_streams_bidi": (2**16 + 1,),
    "max_streams_uni": (2**16 + 1,),
    "max_data": (0,),
    "max_stream_data": (0,),
    "send_window": (0,),
    "send_window_min": (0,),
    "max_data_grown": (),
    "datagram_receive_buffer": (0, 2**31),
    "datagram_send_buffer": (0, 2**31),
    "initial_mtu": (0, 1199, 65528),
    "mtu_max": (0, 1199, 65528),
}
TIMES = ("idle_timeout", "handshake_timeout", "keep_alive")
SERVERS_NUMBERS = {"tokens": (65,), "incoming_max": (0,)}
ENDPOINTS_NUMBERS = {
    "udp_payload_max": (0, 1199, 65528),
    "max_connections": (0,),
    "segments_max": (0, 65),
    "socket_buffer": (0, 2**31),
}


def refused(make: Any, name: str, value: object) -> None:
    with pytest.raises(quic.ConfigurationError, match=rf"^{name} is .*: give .* to ") as caught:
        make(**{name: value})
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_connections(certificates: Certificates, name: str) -> None:
    serve = functools.partial(server_config, certificates)

    for value in (*NUMBERS[name], *WRONG_NUMBERS):
        refused(native.ClientConfig, name, value)
        refused(serve, name, value)
    with pytest.raises(TypeError, match=name):
        native.ClientConfig(**{name: 1.5})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TIMES)
def test_times_of_connections(name: str) -> None:
    for value in WRONG_TIMES:
        refused(native.ClientConfig, name, value)
    native.ClientConfig(**{name: 0.001})  # type: ignore[arg-type]
    native.ClientConfig(**{name: None})  # type: ignore[arg-type]


def test_the_first_round_trip_time() -> None:
    for value in (-1, 0, math.nan, 61):
        refused(native.ClientConfig, "initial_rtt", value)


def test_settings_of_servers(certificates: Certificates) -> None:
    serve = functools.partial(server_config, certificates)

    for name, values in SERVERS_NUMBERS.items():
        for value in (*values, *WRONG_NUMBERS):
            refused(serve, name, value)
    for time_ in WRONG_TIMES:
        refused(serve, "retry_lifetime", time_)


def test_numbers_of_a_running_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _):
            for value in (NUMBER_END, 2**64 - 1):
                with pytest.raises(quic.ConfigurationError, match=r"max_data is [0-9]+: give 0 to"):
                    client.set_max_data(value)
                with pytest.raises(
                    quic.ConfigurationError, match=r"send_window is [0-9]+: give 0 to"
                ):
                    client.set_send_window(value)
                with pytest.raises(
                    quic.ConfigurationError, match=r"max_streams is [0-9]+: give 0 to"
                ):
                    client.set_max_streams(value, unidirectional=False)

    run(main())


@pytest.mark.parametrize("name", ENDPOINTS_NUMBERS)
def test_settings_of_endpoints(name: str) -> None:
    for value in (*ENDPOINTS_NUMBERS[name], -1, 2**64, 2**200):
        refused(native.Endpoint, name, value)


# --- values of other types ------------------------------------------------------------------------


class Index:
    """A whole number that is no int, like numpy's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


NO_NUMBERS: tuple[Any, ...] = (
    True,
    False,
    "30",
    b"30",
    Decimal(5),
    Fraction(1, 2),
    1.5,
    math.nan,
    [],
    1j,
)
NO_SECONDS: tuple[Any, ...] = (True, False, "30", b"30", [], 1j)


def not_a_number(make: Any, name: str, values: tuple[object, ...], words: str) -> None:
    for value in values:
        with pytest.raises(TypeError) as caught:
            make(**{name: value})
        assert str(caught.value).startswith(f"{name} is {value!r}: give {words}")


def test_integer_settings_refuse_other_numbers(certificates: Certificates) -> None:
    serve = functools.partial(server_config, certificates)
    makers: dict[Any, tuple[str, ...]] = {
        native.ClientConfig: (*NUMBERS, "version"),
        serve: (*NUMBERS, *SERVERS_NUMBERS),
        native.Endpoint: (*ENDPOINTS_NUMBERS, "connection_id_length"),
    }
    for make, names in makers.items():
        for name in names:
            not_a_number(make, name, NO_NUMBERS, "a whole number")
    for name in NUMBERS:
        native.ClientConfig(**{name: Index(1300)})  # type: ignore[arg-type]


def test_seconds_are_numbers_of_any_kind(certificates: Certificates) -> None:
    serve = functools.partial(server_config, certificates)
    for name in (*TIMES, "initial_rtt"):
        not_a_number(native.ClientConfig, name, NO_SECONDS, "seconds")
        native.ClientConfig(**{name: Decimal("0.5")})  # type: ignore[arg-type]
        native.ClientConfig(**{name: Index(1)})  # type: ignore[arg-type]
    not_a_number(serve, "retry_lifetime", NO_SECONDS, "seconds")
    with pytest.raises(quic.ConfigurationError, match="idle_timeout is 1000"):
        native.ClientConfig(idle_timeout=10**400)


def test_exception_of_a_number_is_passed_on() -> None:
    class Bad:
        def __index__(self) -> int:
            raise ZeroDivisionError("its own")

        __float__ = __index__

    for name in ("max_data", "idle_timeout"):
        with pytest.raises(ZeroDivisionError, match="its own"):
            native.ClientConfig(**{name: Bad()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("congestion", 5),
        ("alpn", [5]),
        ("sni", 5),
        ("sni", {"a": 1}),
        ("sni", {5: ("x", None)}),
        ("preferred_address", 5),
        ("preferred_address", "::1"),
        ("token_secret", 5),
        ("token_secret", "text"),
        ("system_roots", "no"),
        ("system_roots", 0),
        ("client_auth", 5),
        ("ca_file", 5),
        ("sessions", 5),
        ("qlog", 5),
    ],
)
def test_values_of_other_types_are_refused_by_name(
    certificates: Certificates, name: str, value: object
) -> None:
    with pytest.raises(TypeError, match=name):
        server_config(certificates, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("versions", 1),
        ("versions", ["one"]),
        ("reset_secret", "text"),
        ("reset_secret", [1, 2]),
        ("connection_id", 5),
        ("worker", 5),
        ("server", 5),
        ("retry", 5),
        ("gso", 1),
    ],
)
def test_values_of_endpoints_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        native.Endpoint(**{name: value})  # type: ignore[arg-type]


def test_numbers_of_running_connections_are_refused_by_name(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            setters: dict[str, Any] = {
                "max_data": client.set_max_data,
                "send_window": client.set_send_window,
                "max_streams": client.set_max_streams,
                "priority": lambda value: setattr(stream, "priority", value),
            }
            for name, set_to in setters.items():
                for value in (-(2**40), 2**62, 2**64, 2**200):
                    with pytest.raises(quic.ConfigurationError, match=rf"^{name} is {value}: give"):
                        set_to(value)
                for wrong in NO_NUMBERS:
                    with pytest.raises(TypeError, match=rf"^{name} is "):
                        set_to(wrong)
                set_to(Index(7))
            for give in (stream.reset, stream.stop, client.close, client.endpoint.close):
                for value in (-1, 2**62, 2**64, 2**200):
                    with pytest.raises(ValueError, match=rf"{value} is not an error code"):
                        give(value)
                with pytest.raises(TypeError, match="'5' is not an error code"):
                    give("5")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="-1 is too few"):
                await client.receive_datagrams(-1)
            with pytest.raises(ValueError, match="keying material cannot be exported"):
                client.export_keying_material("x", b"", 2**200)
            # As in asyncio's streams: more than possible means all.
            await within(stream.send(b"abc"))
            stream.finish()
            taken = await within(server.accept_stream())
            assert await within(taken.read(2**200)) == b"abc"

    run(main())


def test_bounds_of_a_datagrams_expiry(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            for value in (-1, -0.5, math.nan, -math.inf):
                with pytest.raises(ValueError, match=r"^expires is .*: give 0 seconds or more"):
                    await client.send_datagram(b"x", expires=value)
            for wrong in NO_SECONDS:
                with pytest.raises(TypeError, match=r"^expires is .*: give seconds"):
                    await client.send_datagram(b"x", expires=wrong)  # type: ignore[arg-type]
            # More than a clock counts to.
            for long in (math.inf, 1e19, 2**62, Decimal(5)):
                assert await client.send_datagram(b"x", expires=long)  # type: ignore[arg-type]
            assert set(await within(server.receive_datagrams())) == {b"x"}

    run(main())


def test_invalid_ports(run: Run, certificates: Certificates) -> None:
    shown: dict[str, Any] = {"configuration": server_config(certificates)}

    async def main() -> None:
        for port in (-1, 65536, 2**31, 2**62, 2**64):
            match = f"port is {port}: give 0 to 65535"
            for host in ("127.0.0.1", "localhost"):
                with pytest.raises(quic.ConfigurationError, match=match):
                    await quic.open_connection(host, port, verify=False, alpn=["test"])
                with pytest.raises(quic.ConfigurationError, match=match):
                    await quic.serve(None, host, port, **shown)
                with pytest.raises(quic.ConfigurationError, match=match):
                    async with shaped.connect(host, port):
                        pass
            with pytest.raises(quic.ConfigurationError, match=match):
                quic.bind_workers("127.0.0.1", port, count=1)
        for wrong in (None, True, 1.5, "http"):
            with pytest.raises(TypeError, match="port is"):
                await quic.serve(None, "127.0.0.1", wrong, **shown)  # type: ignore[arg-type]

    run(main())


def test_bounds_of_the_number_of_workers() -> None:
    for count in (0, -1, 257, 2**64):
        with pytest.raises(ValueError, match=rf"count is {count}: 1 to 256"):
            quic.bind_workers("127.0.0.1", count=count)
    for wrong in ("2", 1.5, math.nan, None, True):
        with pytest.raises(TypeError, match="count is"):
            quic.bind_workers("127.0.0.1", count=wrong)  # type: ignore[arg-type]


# A field of the aioquic-style configuration, and its invalid values.
FIELDS: dict[str, tuple[object, ...]] = {
    "max_datagram_size": (1199, -1, 65528, "1200", True),
    "keep_alive_interval": (0, math.nan, -1, "5"),
    "idle_timeout": (0.0001, math.nan, "5"),
    "max_data": (0, 2**62, "5"),
    "max_stream_data": (0, 2**62),
    "max_streams_bidi": (-1, 2**17),
    "send_window": (0, 2**64),
    "congestion_control_algorithm": (5, "fast"),
    "datagram_ring_bytes": (0, 2**31),
    "datagram_send_bytes": (0, 2**31),
    "socket_buffer_size": (0, 2**31, "5"),
    "connection_id_length": (0, 3, 21, -1, 2**40, "8", True),
    "tx_max_queued_bytes": (-1, 2**64, "5", True),
    "initial_rtt": (0, 61, "5"),
    "supported_versions": (["one"],),
}


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_the_aioquic_api_are_refused_by_their_own_names(run: Run, field: str) -> None:
    async def main() -> None:
        for value in FIELDS[field]:
            configuration = QuicConfiguration(verify_mode=ssl.CERT_NONE, max_datagram_frame_size=9)
            setattr(configuration, field, value)
            with pytest.raises((quic.ConfigurationError, TypeError, ValueError), match=field):
                async with shaped.connect("127.0.0.1", 9, configuration=configuration):
                    pass

    run(main())


def test_empty_list_of_versions() -> None:
    with pytest.raises(quic.ConfigurationError, match="versions: at least one"):
        native.Endpoint(versions=())


def test_smallest_settings_transfer_data(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        least = {"max_data": 1, "max_data_grown": 0, "max_stream_data": 1}
        async with both(certificates, least, send_window=1, send_window_min=1) as (client, server):
            began = time.process_time()
            sent = await client.open_stream()
            sent.write(b"abcdef")
            sent.finish()
            stream = await within(server.accept_stream())
            assert await within(stream.read()) == b"abcdef"
            assert time.process_time() - began < 2

    run(main())


def test_tiny_window_does_not_spin(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"max_data": 1, "max_data_grown": 1}) as (client, server):
            sent = await client.open_stream()
            sent.write(bytes(10_000))
            stream = await within(server.accept_stream())
            began = time.process_time()
            assert await within(stream.read(1)) == b"\0"
            client.set_max_data(0)
            await asyncio.sleep(0.2)
            assert time.process_time() - began < 0.2

    run(main())


def test_secrets_that_anyone_can_guess_are_refused(certificates: Certificates) -> None:
    empties: list[Any] = [b"", bytearray(), memoryview(b"")]
    for empty in empties:
        with pytest.raises(quic.ConfigurationError, match="token_secret is empty"):
            server_config(certificates, token_secret=empty)
        with pytest.raises(quic.ConfigurationError, match="reset_secret is empty"):
            native.Endpoint(reset_secret=empty)


def test_client_without_any_trust_is_refused(certificates: Certificates) -> None:
    with pytest.raises(quic.ConfigurationError, match="system_roots=False"):
        native.ClientConfig(system_roots=False)
    with pytest.raises(quic.ConfigurationError, match="ca_data has no certificate"):
        native.ClientConfig(ca_data=[])
    with pytest.raises(quic.ConfigurationError, match="ca_file="):
        server_config(certificates, client_auth="required", system_roots=False)
    native.ClientConfig(system_roots=False, verify=False)
    native.ClientConfig(system_roots=False, ca_file=certificates.authority)
    server_config(certificates, system_roots=False)


def test_password_needs_a_key_and_a_type(certificates: Certificates) -> None:
    with pytest.raises(quic.ConfigurationError, match="password= needs the key"):
        native.ClientConfig(password="secret")
    pytest.importorskip("cryptography")
    values: list[Any] = [0, 1.5, [], {}, False]
    for wrong in values:
        with pytest.raises(TypeError, match="password must be bytes"):
            server_config(certificates, password=wrong)


def test_material_may_be_a_view(certificates: Certificates) -> None:
    certificate, key = (Path(path).read_bytes() for path in certificates.issue())
    native.ServerConfig(certificate=memoryview(certificate), private_key=memoryview(key))
    native.ClientConfig(ca_data=memoryview(Path(certificates.authority).read_bytes()))


@pytest.mark.parametrize(
    "name",
    ["handler", "stream_handler", "on_handshake_failed", "configuration", "sock", "worker"],
)
def test_objects_that_servers_cannot_use_are_refused_by_name(
    name: str, run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        certificate, key = certificates.issue()
        own = {"certificate": certificate, "private_key": key}
        given: dict[str, Any] = {name: 5} if name == "configuration" else {**own, name: 5}
        with pytest.raises(TypeError, match=f"{name} is 5: give"):
            await quic.serve(host="127.0.0.1", **given)

    run(main())


@pytest.mark.parametrize("name", ["configuration", "endpoint", "local_address"])
def test_objects_that_clients_cannot_use_are_refused_by_name(name: str, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=f"{name} is 5: give"):
            await quic.open_connection("127.0.0.1", 1, **{name: 5})  # type: ignore[arg-type]

    run(main())


def test_objects_that_servers_of_http3_cannot_use_are_refused_by_name(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        certificate, key = certificates.issue()
        own: dict[str, Any] = {"certificate": certificate, "private_key": key}
        for serve in (h3.serve, webtransport.serve):
            for handler in (None, 5):
                with pytest.raises(TypeError, match=f"handler is {handler}: give"):
                    await serve(handler, "127.0.0.1", **own)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="webtransport is 5: give"):
            await h3.serve(print, "127.0.0.1", webtransport=5, **own)  # type: ignore[arg-type]
        for name in ("accepts", "request_handler", "limits"):
            with pytest.raises(TypeError, match=f"{name} is 5: give"):
                await webtransport.serve(print, "127.0.0.1", **own, **{name: 5})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="limits is 5: give"):
            await webtransport.open_session("https://127.0.0.1:1/", limits=5)  # type: ignore[arg-type]

    run(main())
