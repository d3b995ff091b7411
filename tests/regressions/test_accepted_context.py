"""The context variables that an accepted connection sees.

asyncio accepts in a task that copies the context of `start_serving`, since 3.15 the one in which the
server was created: the protocol factory and every callback see the variables set there, and what the
factory sets stays with its connection. Our loop
accepted in the context the loop itself ran in, and an application behind a server saw none of the
variables set before it (uvicorn's `test_contextvars_preserved_by_default`).
"""

from __future__ import annotations

import contextvars
import sys
from typing import TYPE_CHECKING, Any

from tests.support.tcp import Echo, Recorder, ask, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_connections_use_the_context_of_start_serving(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    made: list[Recorder] = []

    class Notes(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.note("__init__")
            # For this connection only: the next one starts with the context of the server again.
            variable.set("factory")
            made.append(self)

        def note(self, event: str) -> None:
            super().note(f"{event} {variable.get()}")

    async def main() -> None:
        variable.set("creator")
        async with serving(Notes, start_serving=False) as (server, address):
            variable.set("starter")
            await server.start_serving()
            variable.set("later")
            for _ in range(2):
                assert await ask(address) == b"ping"
        seen = "creator" if sys.version_info >= (3, 15) else "starter"
        for protocol in made:
            assert protocol.events[:3] == [
                f"__init__ {seen}",
                "connection_made factory",
                "data_received factory",
            ]
        assert len(made) == 2

    run(main())
