"""The load of `tests.soak` on the loop under test, some parts of it at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.soak import strain, web
from tests.soak.servers import Services
from tests.soak.soak import Soak
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.soak import Part
    from tests.support.tls import Certificates

    Play = Callable[..., Soak]


@pytest.fixture
def play(loop: asyncio.AbstractEventLoop, certificates: Certificates) -> Play:
    """Play parts at once on the loop, each a number of times; return the run, which has the faults."""
    certificates.issue()

    async def main(soak: Soak, parts: tuple[Part, ...], times: int, with_signals: bool) -> None:
        services = Services(soak)
        await within(services.start())
        signals = strain.Signals(soak)
        with signals.sending() if with_signals else contextlib.nullcontext():
            for _ in range(times):
                await asyncio.gather(*[soak.play(part) for part in parts])
            if with_signals:
                await signals.check()
        await within(web.close_kept(soak))
        await within(services.stop())

    def play(*parts: Part, times: int = 1, signals: bool = False, seed: int = 0) -> Soak:
        soak = Soak(loop, certificates.folder, seed)
        loop.set_exception_handler(lambda _, context: soak.reported(context["message"]))
        with soak.watched():
            loop.run_until_complete(main(soak, parts, times, signals))
        return soak

    return play
