"""Faults of the process itself: no descriptors, signals at random, servers that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

from tests.soak.streams import closed, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.servers import Services
    from tests.soak.soak import Part, Soak

SHORT_SECONDS = 1.5
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
SIGNAL_SECONDS_MAX = 0.2
# asyncio's words and ours where accept(2) finds no descriptor.
OUT_OF_DESCRIPTORS = r"accept.*out of system resource|Too many open files"


async def without_descriptors(soak: Soak) -> None:
    """Take all descriptors for a moment: what needs one fails with EMFILE, the rest goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    with soak.disturbing(OUT_OF_DESCRIPTORS), contextlib.ExitStack() as stack:
        used = max(map(int, os.listdir("/proc/self/fd")))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + 3, soft), hard))
        stack.callback(lambda: [os.close(filler) for filler in fillers])
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        refused = 0
        until = soak.loop.time() + SHORT_SECONDS
        while soak.loop.time() < until:
            try:
                # Without a limit a handshake would wait for the server, which waits for a descriptor.
                async with asyncio.timeout(SHORT_SECONDS / 3):
                    _, writer = await opened(soak, soak.rng.choice(("tcp", "unix", "tls")))
                    await closed(writer)
            except OSError:
                refused += 1
            await asyncio.sleep(0.05)
        # One comes free, and is taken again by a connection's two ends in turns.
        if fillers:
            os.close(fillers.pop())
        await asyncio.sleep(0.1)
    if not refused:
        soak.fault("without_descriptors: no connection was refused")
    # asyncio accepts again a second later.
    with soak.disturbing(OUT_OF_DESCRIPTORS):
        await asyncio.sleep(1.1)


def restarting(services: Services) -> Part:
    """Make the part that closes a listener, and opens it again at its address."""

    async def restart(soak: Soak) -> None:
        name = soak.rng.choice(list(services.listeners))
        with soak.disturbing():
            services.listeners.pop(name).close()
            try:
                with _held(soak.addresses[name]):
                    await asyncio.sleep(soak.rng.random() / 20)
                    await services.listen(name)
            except OSError as error:
                if soak.tolerant:
                    raise
                soak.fault(f"restart of {name}: {error}")

    return restart


@contextlib.contextmanager
def _held(address: Any) -> Iterator[None]:
    """Keep a port that is free for a moment from clients: the kernel gives them free ones."""
    with socket.socket() as holder:
        if isinstance(address, tuple):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(address)
        yield


class Signals:
    """Sends signals to the process at random times, from a thread, and counts what is handled."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._numbers = random.Random(soak.rng.random())
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="signals")
        self.handled = dict.fromkeys(SIGNALS, 0)
        self.sent = dict.fromkeys(SIGNALS, 0)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Handle two of the signals in the loop, the others in the interpreter's own way."""
        loop = self._soak.loop
        old = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS[:2]:
            loop.add_signal_handler(number, self._count, number)
        for number in SIGNALS[2:]:
            signal.signal(number, lambda which, _frame: self._count(signal.Signals(which)))
            signal.siginterrupt(number, True)
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()
            for number in SIGNALS[:2]:
                loop.remove_signal_handler(number)
            for number, handler in old.items():
                signal.signal(number, handler)

    async def check(self) -> None:
        """Send one of each kind, whose handler must be called."""
        before = dict(self.handled)
        for number in SIGNALS:
            os.kill(os.getpid(), number)
        until = self._soak.loop.time() + 20
        while any(self.handled[number] == before[number] for number in SIGNALS):
            if self._soak.loop.time() > until:
                self._soak.fault(f"signals not handled: {before} {self.handled}")
                return
            await asyncio.sleep(0.01)

    def _count(self, number: signal.Signals) -> None:
        self.handled[number] += 1

    def _run(self) -> None:
        while not self._ends.wait(self._numbers.random() * SIGNAL_SECONDS_MAX):
            number = self._numbers.choice(SIGNALS)
            self.sent[number] += 1
            os.kill(os.getpid(), number)
