"""Settings: each number is refused where it is set, by its name, with its bounds."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from tests.quic.support import both, server_config
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

NUMBER_END = 2**62
WRONG_NUMBERS = (-1, NUMBER_END, 2**64, 2**200)
WRONG_TIMES = (-1, 0, 0.0009, math.nan, math.inf, -math.inf, 1e300)

# What a number may not be, beside those above.
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


def test_no_version_at_all() -> None:
    with pytest.raises(quic.ConfigurationError, match="versions: one at least"):
        native.Endpoint(versions=())


def test_the_least_that_is_allowed_carries_data(run: Run, certificates: Certificates) -> None:
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


def test_a_window_of_next_to_nothing_is_no_reason_to_spin(
    run: Run, certificates: Certificates
) -> None:
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
