"""One loop under load, in a process of its own: `python -m tests.soak.child LOOP FOLDER`.

Plays random parts, several at once, as far as its share of a processor allows; between them it waits
until nothing is under way, and takes a sample. Prints a line of JSON for each sample, and one at the
end. FOLDER is where certificates are, or will be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests import support
from tests.soak import local, peers, strain, streams, web
from tests.soak.counters import Counters
from tests.soak.servers import Services
from tests.soak.soak import PART_SECONDS, Soak

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.soak import Part

AT_ONCE = 8
IDLE_SECONDS = 0.05
GROUPS: dict[str, tuple[Part, ...]] = {
    "streams": streams.PARTS,
    "web": web.PARTS,
    "local": local.PARTS,
    "peers": peers.PARTS,
}
# Before each sample, so that what stays open is open in each of them.
BEFORE_SAMPLE: dict[str, tuple[Part, ...]] = {
    "streams": (streams.kept_tls,),
    "web": (web.kept_websocket, web.http3),
    "local": (),
    "peers": (peers.after_faults,),
}
# Connections end a little later at the other end; a WebTransport client's a quarter of a second.
SETTLE_SECONDS = 10.0
STRAIN_EVERY_SECONDS = 20.0


class Load:
    """Chooses parts and plays them."""

    def __init__(self, soak: Soak, services: Services, options: argparse.Namespace) -> None:
        self.soak = soak
        self.services = services
        self.options = options
        self.parts = [part for name in options.groups for part in GROUPS[name]]
        self.began = time.monotonic()
        self._cpu_before = _cpu_seconds()
        self._under_way: set[asyncio.Task[None]] = set()
        self._strained = 0.0

    async def run(self) -> None:
        """Play until the time is over; the first sample is after the start."""
        end = self.began + self.options.seconds
        next_sample = self.began + self.options.sample
        restart = strain.restarting(self.services)
        while time.monotonic() < end and not self.soak.faults:
            if time.monotonic() >= next_sample:
                await self.sample()
                # From its end: on a busy machine a sample takes long, and the load needs time, too.
                next_sample = time.monotonic() + self.options.sample
            elif len(self._under_way) >= AT_ONCE:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            elif self._is_over_budget():
                await asyncio.sleep(IDLE_SECONDS)
            else:
                self._begin(self._choose(restart))
                await asyncio.sleep(0)
        await self.settle()

    def _choose(self, restart: Part) -> Part:
        elapsed = time.monotonic() - self.began
        if "peers" in self.options.groups and elapsed - self._strained >= self.options.strain:
            self._strained = elapsed
            return self.soak.rng.choice((strain.without_descriptors, restart))
        return self.soak.rng.choice(self.parts)

    def _begin(self, part: Part) -> None:
        task = self.soak.loop.create_task(self.soak.play(part))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _is_over_budget(self) -> bool:
        used = _cpu_seconds() - self._cpu_before
        share: float = self.options.share
        return used > share * (time.monotonic() - self.began)

    async def settle(self) -> None:
        """Wait until the parts under way have ended, and their connections with them."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        for name in self.options.groups:
            for part in BEFORE_SAMPLE[name]:
                await self.soak.play(part)
        until = time.monotonic() + SETTLE_SECONDS
        last, same = (-1, -1), 0
        while time.monotonic() < until and same < 5:
            await asyncio.sleep(0.1)
            now = (len(support.open_descriptors()), len(asyncio.all_tasks(self.soak.loop)))
            same = same + 1 if now == last else 0
            last = now

    async def sample(self) -> None:
        await self.settle()
        counters = Counters.now(self.soak.loop, self.began).as_dict()
        moved = {"parts": sum(self.soak.done.values()), "bytes": self.soak.bytes_checked}
        told = {"told": sum(self.soak.told.values())}
        _say({"sample": counters | moved | told})


def _cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(soak: Soak, options: argparse.Namespace) -> None:
    services = Services(soak)
    await services.start()
    load = Load(soak, services, options)
    signals = strain.Signals(soak)
    with signals.sending() if options.signals else contextlib.nullcontext():
        await load.run()
        if options.signals:
            await signals.check()
    async with asyncio.timeout(PART_SECONDS):
        # A call that fails on purpose may be one of the last.
        with soak.telling("end") if soak.tolerant else contextlib.nullcontext():
            await web.close_kept(soak)
            await services.stop()
    if options.signals:
        soak.done["signals"] = sum(signals.sent.values())
    left = asyncio.all_tasks(soak.loop) - {asyncio.current_task()}
    if left and not soak.tolerant:
        soak.fault(f"tasks left at the end: {left}")


def run(options: argparse.Namespace) -> Soak:
    """Run on a loop of its own; the result has the faults."""
    loop = support.loop_factory(options.loop)()
    soak = Soak(loop, options.folder, options.seed, tolerant=options.tolerant)
    loop.set_exception_handler(lambda _, context: soak.reported(_text(context)))
    asyncio.set_event_loop(loop)
    with soak.watched():
        try:
            loop.run_until_complete(main(soak, options))
        except Exception as error:
            soak.fault(f"the run itself: {type(error).__name__}: {error}")
        support.close_loop(loop)
    return soak


def _text(context: dict[str, object]) -> str:
    return f"loop: {context['message']} {context.get('exception')!r}"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.child", description=__doc__)
    parser.add_argument("loop", choices=["asyncio", "ringloop-uring", "ringloop-epoll"])
    parser.add_argument("folder", type=Path, help="of the certificates and of files")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sample", type=float, default=1e9, help="seconds between samples")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of one processor, children included"
    )
    parser.add_argument("--strain", type=float, default=STRAIN_EVERY_SECONDS, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--signals", action="store_true", help="send signals at random")
    parser.add_argument("--tolerant", action="store_true", help="errors of calls are no faults")
    return parser.parse_args(given)


if __name__ == "__main__":
    options = arguments(sys.argv[1:])
    faulthandler.enable()
    faulthandler.dump_traceback_later(options.seconds + 3 * PART_SECONDS, exit=True)
    outcome = run(options)
    _say(
        {
            "done": dict(outcome.done),
            "told": dict(outcome.told),
            "bytes": outcome.bytes_checked,
            "faults": outcome.faults,
        }
    )
    sys.exit(bool(outcome.faults))
