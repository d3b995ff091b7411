"""What the tests of signals share."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def signals_restored() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    kept[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
    assert signal.set_wakeup_fd(-1) == -1, "the wake-up descriptor was left behind"
