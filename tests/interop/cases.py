"""The cases tried with every pair, and the proof that each happened.

Owns: the cases and their proofs. Called by: `running`, `matrix`.

A client reports its result (`told`), a server what it saw (`events`), and the relay between them
what passed (`seen`): a case passes if all three agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.interop.relay import VERSION_2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.interop.relay import Seen

    Proof = Callable[["Outcome"], "str | None"]


@dataclass
class Outcome:
    """The reports of the three."""

    told: dict[str, Any]
    events: Sequence[dict[str, Any]]
    seen: Seen
    # Whether server and client report the application's codes (the HTTP/3 programs have their own).
    has_codes: bool = True
    has_reasons: bool = True
    tells_early: bool = True


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    name: str
    title: str
    proof: Proof = lambda _outcome: None
    retry: bool = False
    # After this many of the client's datagrams the source port changes.
    rebind_after: int | None = None
    # The second client has sent early data before the server's first answer reaches it.
    holds_answers: bool = False


def retry(outcome: Outcome) -> str | None:
    """The server has required address validation."""
    return None if outcome.seen.has("retry", by_client=False) else "no Retry packet was seen"


def resumed(outcome: Outcome) -> str | None:
    """The second handshake resumed a session."""
    return None if outcome.told.get("resumed") else "the session was not resumed"


def early(outcome: Outcome) -> str | None:
    """Early data was sent before the handshake completed, and accepted."""
    if not outcome.seen.has("0-rtt", by_client=True):
        return "no 0-RTT packet was seen"
    told = outcome.told.get("early") or not outcome.tells_early
    return resumed(outcome) if told else "early data was not accepted"


def version_2(outcome: Outcome) -> str | None:
    """Both sides have sent packets of version 2."""
    for by_client in (True, False):
        if not outcome.seen.has("handshake", by_client=by_client, version=VERSION_2):
            return (
                f"the {'client' if by_client else 'server'} sent no handshake packet of version 2"
            )
    return None


def rebound(outcome: Outcome) -> str | None:
    """The server has continued on the new port."""
    if not outcome.seen.is_rebound:
        return "the transfer was over before the port changed"
    return None if outcome.seen.server_datagrams_after_rebinding else "nothing came to the new port"


def codes(outcome: Outcome) -> str | None:
    """Each end has received the other's code and reason."""
    wanted = closing(42, "client", outcome)
    if not any(wanted.items() <= event.items() for event in outcome.events):
        return f"the server heard {[one for one in outcome.events if one['event'] == 'closed']}"
    if not outcome.has_codes:
        return None
    wanted = closing(43, "server", outcome)
    return None if wanted.items() <= outcome.told.items() else f"the client heard {outcome.told}"


def closing(code: int, role: str, outcome: Outcome) -> dict[str, Any]:
    """What the other end must receive; aiopquic neither sends nor reports reasons."""
    reason = {"reason": f"as the {role} says"} if outcome.has_reasons else {}
    return {"code": code} | reason


CASES = (
    Case("handshake", "handshake"),
    Case("transfer", "transfer, 1 MiB, every byte compared"),
    Case("retry", "Retry", retry, retry=True),
    Case("resumption", "resumption", resumed),
    Case("early-data", "0-RTT", early, holds_answers=True),
    Case("key-update", "key update"),
    Case("v2", "version 2", version_2),
    Case("rebinding", "rebinding of the client's port", rebound, rebind_after=40),
    Case("datagrams", "datagrams"),
    Case("close-codes", "close code and reason", codes),
)
