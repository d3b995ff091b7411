"""Peers that stall, reset, half-close, flood and send noise, beside clients that are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.soak import local, peers, streams, web

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.soak import Part, Soak

    Play = Callable[..., Soak]

pytestmark = pytest.mark.one_thread("logs, warnings and hooks of the process are watched")


def one_peer(kind: str) -> Part:
    """Make the part that plays a peer against each of its servers."""
    peer, names = peers.PEERS[kind]

    async def bad_peer(soak: Soak) -> None:
        for name in names:
            await peers.against(soak, peer, name)

    return bad_peer


@pytest.mark.parametrize("kind", list(peers.PEERS))
def test_bad_peer_ends_alone_and_the_others_are_served(play: Play, kind: str) -> None:
    soak = play(one_peer(kind), streams.tcp, streams.tls, peers.after_faults, times=2)
    assert soak.faults == []
    assert soak.done == {"bad_peer": 2, "tcp": 2, "tls": 2, "after_faults": 2}


@pytest.mark.parametrize("name", ["tls", "tls-streams", "tcp", "tcp-buffered"])
@pytest.mark.parametrize("limit", [0, 300, 1500, 17_000])
def test_connection_cut_within_a_record_is_told_and_its_bytes_are_right(
    play: Play, name: str, limit: int
) -> None:
    async def cut(soak: Soak) -> None:
        for with_reset in (False, True):
            await peers.cut_at(soak, name, limit, with_reset=with_reset)

    soak = play(cut, peers.after_faults)
    assert soak.faults == []
    assert sum(soak.told.values()) == 2


def test_good_clients_of_everything_at_once(play: Play) -> None:
    soak = play(*streams.PARTS, *web.PARTS, *local.PARTS)
    assert soak.faults == []
    assert sum(soak.done.values()) == len(streams.PARTS + web.PARTS + local.PARTS)
