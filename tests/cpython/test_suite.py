"""Each module of CPython's asyncio tests, on the oracle and on both drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.cpython import expected, runner

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not runner.available("test.test_asyncio.test_events"),
    reason="this CPython was installed without its test package",
)


@pytest.mark.timeout(runner.TEST_SECONDS)
@pytest.mark.parametrize(
    "module",
    [m for m in runner.MODULES if runner.available(m)],
    ids=lambda name: name.rpartition(".")[2],
)
def test_module(
    module: str, loop_name: str, outcome_of: Callable[[str, str], runner.Outcome]
) -> None:
    outcome = outcome_of(module, loop_name)
    assert not outcome.wrong, "\n".join(outcome.wrong)


@pytest.mark.timeout(runner.TEST_SECONDS)
@pytest.mark.parametrize("loop_name", expected.FAST)
@pytest.mark.parametrize(
    "module",
    [m for m in runner.STREAM_MODULES if runner.available(m)],
    ids=lambda name: name.rpartition(".")[2],
)
def test_module_with_native_streams(
    module: str, loop_name: str, outcome_of: Callable[[str, str], runner.Outcome]
) -> None:
    support.usable_loop(loop_name.partition("+")[0])
    outcome = outcome_of(module, loop_name)
    assert not outcome.wrong, "\n".join(outcome.wrong)
