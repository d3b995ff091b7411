"""Alternative services (RFC 7838): the field, and the cache of what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3
from ringloop.h3._alt_svc import Alternative, parse
from tests.h3.support import served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

DAY = 24 * 3600
HERE = ("origin.example", 443)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('h3=":443"', [("h3", "", 443, DAY)]),
        (
            'h3=":8443"; ma=60, h3-29="alt.example:443";ma="7"; persist=1 , h2=":1"',
            [("h3", "", 8443, 60), ("h3-29", "alt.example", 443, 7), ("h2", "", 1, DAY)],
        ),
        ('w%3Dx%3Ay="new.example:443"', [("w=x:y", "new.example", 443, DAY)]),
        ('h3="[2001:DB8::1]:443"', [("h3", "2001:db8::1", 443, DAY)]),
        (r'h3="a\.example:\443"', [("h3", "a.example", 443, DAY)]),
        (', ,h3=":1",, h3=":2"', [("h3", "", 1, DAY), ("h3", "", 2, DAY)]),
        ('h3=":443"; ma=x', [("h3", "", 443, DAY)]),
        (f'h3=":443"; ma={"9" * 5000}', [("h3", "", 443, 365 * DAY)]),
        # Alternatives with an invalid authority are left out.
        ('h3=":0", h3=":65536", h3="x", h3="a b:1", h3=":5"', [("h3", "", 5, DAY)]),
        # Nothing is read behind a mistake.
        ('h3=":1", h3=:2, h3=":3"', [("h3", "", 1, DAY)]),
        ('h3=":1" h3=":2"', []),
        ('h3=":1', []),
        ("", []),
        ("Clear", []),
    ],
)
def test_fields_are_read(value: str, expected: list[tuple[str, str, int, int]]) -> None:
    assert parse(value) == [Alternative(*alternative) for alternative in expected]


@pytest.mark.parametrize("part", ["h3=", ' \t;a="', "a;", '\\"', 'h3=":1";a=b', " ", ","])
@pytest.mark.timeout(20)
def test_long_fields_are_read_in_linear_time(part: str) -> None:
    parse(part * 200_000)
    parse('h3="' + part * 200_000)


def test_clear_is_told_from_nothing() -> None:
    assert parse(" clear ") is None


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_alternatives_expire() -> None:
    clock = Clock()
    cache = h3.AltSvcCache(clock=clock)
    cache.store(HERE, 'h3=":1"; ma=10, h3="alt.example:2"; ma=20, h2=":3"')
    assert cache.find(HERE) == [("origin.example", 1), ("alt.example", 2)]
    clock.now += 10
    assert cache.find(HERE) == [("alt.example", 2)]
    clock.now += 10
    assert cache.find(HERE) == []
    assert len(cache) == 0


def test_each_field_replaces_the_one_before() -> None:
    cache = h3.AltSvcCache()
    for value in ("clear", 'h2=":2"', 'h3=":1"; ma=0', "nonsense"):
        cache.store(HERE, 'h3=":1"')
        assert cache.find(HERE) == [("origin.example", 1)]
        cache.store(HERE, value)
        assert cache.find(HERE) == [], value


def test_broken_alternatives_are_left_alone_for_a_while() -> None:
    clock = Clock()
    cache = h3.AltSvcCache(clock=clock)
    cache.store(HERE, 'h3=":1", h3=":2"')
    cache.mark_broken(("origin.example", 1))
    assert cache.find(HERE) == [("origin.example", 2)]
    clock.now += 300
    assert len(cache.find(HERE)) == 2
    cache.mark_broken(("origin.example", 1))
    cache.clear()
    cache.store(HERE, 'h3=":1"')
    assert cache.find(HERE) == [("origin.example", 1)]


def test_cache_is_bounded() -> None:
    cache = h3.AltSvcCache(origins_max=3)
    for number in range(10):
        cache.store((f"{number}.example", 443), 'h3=":1"')
        cache.mark_broken((f"{number}.example", 2))
    assert len(cache) == 3
    assert len(cache._broken) == 3
    assert cache.find(("9.example", 443))
    assert not cache.find(("6.example", 443))
    many = ", ".join(f'h3=":{port}"' for port in range(1, 1000))
    cache.store(HERE, many)
    assert len(cache.find(HERE)) == 8
    with pytest.raises(ValueError, match="origins_max is 0: give 1 or more"):
        h3.AltSvcCache(origins_max=0)


@pytest.mark.parametrize("host", ["a..b", ".", f"{'a' * 64}.example", "a" * 300, "[:::::]"])
def test_alternative_that_is_no_host_is_passed_over(
    run: Callable[[Any], Any], certificates: Certificates, host: str
) -> None:
    async def handler(request: h3.Request) -> None:
        await request.respond(200, {"alt-svc": f'h3="{host}:443"'})

    async def main() -> None:
        async with (
            served(certificates, handler) as server,
            h3.Pool(ca_file=certificates.authority) as pool,
        ):
            origin = ("localhost", server.address[1])
            url = f"https://localhost:{origin[1]}/"
            response = await within(pool.request("GET", url))
            assert await within(response.read()) == b""
            assert pool.alternatives.find(origin) == [(host.strip("[]"), 443)]
            client = pool._places[origin].client
            assert client is not None
            client.close()
            # On another connection.
            response = await within(pool.request("GET", url))
            assert response.status == 200
            assert pool._places[origin].client is not client
            assert await within(response.read()) == b""

    run(main())
