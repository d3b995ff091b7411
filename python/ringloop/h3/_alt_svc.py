"""Alternative services (RFC 7838): where else an origin is served, and a bounded cache of that.

Owns: the alternatives that origins have named. Called by: `_pool`, `_httpx`. Never does: connect. An
alternative has to show a certificate for the origin's name, so that a forged field redirects no one.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["AltSvcCache", "Alternative", "Origin", "parse"]

Origin: TypeAlias = tuple[str, int]
"""Host and port of an origin of the scheme https."""

_MAX_AGE_SECONDS = 24 * 3600
"""If an alternative names none (RFC 7838 §3.1)."""
_MAX_AGE_SECONDS_MAX = 365 * 24 * 3600
_BROKEN_SECONDS = 300
"""How long an alternative that failed is not tried again."""
_ALTERNATIVES_MAX = 8
"""Per origin: as many as a client would try."""
_PORT_MAX = 65535

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_PARAMETER = rf"[ \t]*+;[ \t]*+({_NAME})=({_NAME}|{_QUOTED})"
_VALUE = re.compile(rf"[ \t,]*+({_NAME})=({_QUOTED})((?:{_PARAMETER})*+)[ \t]*+(?=,|\Z)")
_PARAMETERS = re.compile(_PARAMETER)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._\-]*+):([0-9]{1,5})")


class Alternative(NamedTuple):
    """One alternative of a field."""

    protocol: str
    """Its name in ALPN: "h3" is HTTP/3."""
    host: str
    """"": that of the origin."""
    port: int
    max_age: int
    """Seconds for which it may be used."""


def parse(value: str) -> list[Alternative] | None:
    """Read an `Alt-Svc` field; None means `clear`. A malformed part and all that follows is ignored."""
    if value.strip(" \t") == "clear":
        return None
    return list(_parsed(value))


def _parsed(value: str) -> Iterator[Alternative]:
    at = 0
    while (found := _VALUE.match(value, at)) is not None:
        at = found.end()
        authority = _AUTHORITY.fullmatch(_unquoted(found[2]))
        if authority is None or not 0 < int(authority[2]) <= _PORT_MAX:
            continue
        max_age = _MAX_AGE_SECONDS
        for name, given in _PARAMETERS.findall(found[3]):
            if name.lower() == "ma":
                max_age = _seconds(_unquoted(given), max_age)
        yield Alternative(
            unquote(found[1]), authority[1].strip("[]").lower(), int(authority[2]), max_age
        )


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _seconds(digits: str, default: int) -> int:
    if not (digits.isascii() and digits.isdecimal()):
        return default
    # A number of any length, of which only the size matters.
    return min(int(digits.lstrip("0")[:10] or "0"), _MAX_AGE_SECONDS_MAX)


class AltSvcCache:
    """The alternatives that origins have announced; those of the latest `origins_max` origins.

    A `Pool` and an `HTTPTransport` have one each, or share one. `clock` returns seconds.
    """

    def __init__(
        self, *, origins_max: int = 1024, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if origins_max < 1:
            raise ValueError(f"origins_max is {origins_max}: give 1 or more")
        self._origins_max = origins_max
        self._clock = clock
        self._known: OrderedDict[Origin, list[tuple[Alternative, float]]] = OrderedDict()
        self._broken: OrderedDict[tuple[str, int], float] = OrderedDict()

    def store(self, origin: Origin, value: str) -> None:
        """Store the `Alt-Svc` field of an origin's response; it replaces the previous one."""
        alternatives = parse(value)
        self._known.pop(origin, None)
        now = self._clock()
        useful = [it for it in alternatives or () if it.protocol == "h3" and it.max_age > 0]
        if useful:
            self._known[origin] = [(it, now + it.max_age) for it in useful[:_ALTERNATIVES_MAX]]
            while len(self._known) > self._origins_max:
                self._known.popitem(last=False)

    def find(self, origin: Origin) -> list[Origin]:
        """Return the hosts and ports that serve the origin over HTTP/3, the preferred ones first.

        Those that have failed within the last five minutes are left out.
        """
        now = self._clock()
        known = [entry for entry in self._known.get(origin, ()) if entry[1] > now]
        if not known:
            self._known.pop(origin, None)
            return []
        places = [(it.host or origin[0], it.port) for it, _ in known]
        return [place for place in places if self._broken.get(place, 0.0) <= now]

    def mark_broken(self, place: Origin) -> None:
        """Do not return this host and port for five minutes: connecting to it failed."""
        self._broken[place] = self._clock() + _BROKEN_SECONDS
        self._broken.move_to_end(place)
        while len(self._broken) > self._origins_max:
            self._broken.popitem(last=False)

    def forget(self, origin: Origin) -> None:
        """Forget the alternatives of an origin."""
        self._known.pop(origin, None)

    def clear(self) -> None:
        """Forget all, as after a change of network (RFC 7838 §2.2)."""
        self._known.clear()
        self._broken.clear()

    def __len__(self) -> int:
        return len(self._known)
