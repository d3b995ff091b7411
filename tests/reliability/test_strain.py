"""No descriptors, signals at random, listeners that come and go: the loop goes on."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING

import pytest

from tests.soak import local, peers, strain, streams
from tests.soak.servers import Services

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.soak import Soak

    Play = Callable[..., Soak]

pytestmark = pytest.mark.one_thread("logs, warnings and hooks of the process are watched")


def test_all_are_served_again_once_there_are_descriptors(play: Play) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soak = play(strain.without_descriptors, streams.udp)
    assert soak.faults == []
    assert soak.done["without_descriptors"] == 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
    again = play(peers.after_faults, local.child)
    assert again.faults == []
    assert sum(again.done.values()) == 2


def test_signals_at_random_disturb_nothing(play: Play) -> None:
    soak = play(*streams.PARTS, *local.PARTS, times=2, signals=True)
    assert soak.faults == []
    assert sum(soak.done.values()) == 2 * len(streams.PARTS + local.PARTS)


def test_listener_that_comes_and_goes_serves_again(play: Play) -> None:
    async def restart(soak: Soak) -> None:
        # Beside the one of the fixture, so at a port of its own.
        soak.addresses.pop("tcp-streams")
        services = Services(soak)
        await services.listen("tcp-streams")
        for _ in range(10):
            # Connections are open, accepted or not, when the listener closes.
            opening = [streams.opened(soak, "tcp-streams") for _ in range(5)]
            pairs = await asyncio.gather(*opening)
            services.listeners["tcp-streams"].close()
            for _, writer in pairs:
                await streams.closed(writer)
            await services.listen("tcp-streams")
            await streams.talk(soak, "tcp-streams")
        services.listeners["tcp-streams"].close()

    soak = play(restart)
    assert soak.faults == []
    assert soak.done["restart"] == 1
