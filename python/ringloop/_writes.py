"""When bytes are sent: the choice of a loop, and the socket that a transport exposes.

Owns: `writes="gathered"` and `"eager"`, and what using `get_extra_info("socket")` means for writes that
wait for the end of the turn. Called by: `_loop`, the native transports. Never does: send.
"""

from __future__ import annotations

import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeAlias

    # What `writes=` takes.
    Writes: TypeAlias = Literal["gathered", "eager"]

_VARIABLE = "RINGLOOP_WRITES"
_GATHERED, _EAGER = "gathered", "eager"


def are_eager(writes: Writes | None) -> bool:
    """Return whether a loop sends every write at once; None leaves it to the environment."""
    name = "writes"
    chosen: str | None = writes
    if chosen is None:
        name, chosen = _VARIABLE, os.environ.get(_VARIABLE) or _GATHERED
    if chosen not in {_GATHERED, _EAGER}:
        raise ValueError(f'{name} must be "{_GATHERED}" or "{_EAGER}", not {chosen!r}')
    return chosen == _EAGER


# What neither changes what is sent nor gives the descriptor away, and what only has to come behind
# what was written.
_PLAIN = frozenset({"family", "type", "proto", "getpeername", "getsockname", "get_inheritable"})
_BEHIND = frozenset({"getsockopt", "setsockopt", "shutdown"})


class ShownSocket:
    """A socket made by a loop, as the `TransportSocket` of its transport holds it.

    Gathered data is sent before the socket is changed or queried. Once its descriptor is taken, or it is
    used in a way that `TransportSocket` does not support, every later write is sent at once.
    """

    __slots__ = ("_shown", "_transport")

    def __init__(self, shown: Any, transport: Any) -> None:
        self._shown = shown
        self._transport = weakref.ref(transport)

    def __getattr__(self, name: str) -> Any:
        if name not in _PLAIN and (transport := self._transport()) is not None:
            if name in _BEHIND:
                transport._send_gathered()
            else:
                transport._write_at_once()
        return getattr(self._shown, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._shown)

    def __repr__(self) -> str:
        return repr(self._shown)
