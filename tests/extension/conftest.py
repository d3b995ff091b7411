"""Fixtures of the tests of other extension modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop import Loop
from tests.extension import built

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["uring", "epoll"])
def ring(request: pytest.FixtureRequest) -> Iterator[Loop]:
    """A loop of ours, as stock asyncio has no Rust futures."""
    try:
        loop = Loop(driver=request.param)
    except OSError as error:
        pytest.skip(str(error))
    yield loop
    loop.close()


@pytest.fixture
def probe() -> Any:
    """Futures for tests."""
    return built("ringloop_probe")


@pytest.fixture
def echo() -> Any:
    """The example."""
    return built("ringloop_echo")
