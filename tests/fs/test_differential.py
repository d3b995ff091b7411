"""Random scripts give what the built-in `open` gives: results, positions, errors and contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fs import scripts

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

SCRIPTS_A_TEST = 60
TESTS = 4


def _compare(
    make: Callable[[int], scripts.Script],
    number: int,
    loop: asyncio.AbstractEventLoop,
    folder: Path,
) -> None:
    for seed in range(number * SCRIPTS_A_TEST, (number + 1) * SCRIPTS_A_TEST):
        path = folder / f"file-{seed}"
        expected = scripts.run_builtin(make(seed), path)
        path.unlink(missing_ok=True)
        script = make(seed)
        found: Any = loop.run_until_complete(scripts.run_ours(script, path))
        path.unlink(missing_ok=True)
        steps = [("mode", ()), *script.steps, ("close", ()), ("tell", ())]
        for step, ours, theirs in zip(steps, found[0], expected[0], strict=False):
            assert ours == theirs, f"seed {seed}: {script.mode} {script.options}: {step} of {steps}"
        assert len(found[0]) == len(expected[0])
        assert found[1] == expected[1], f"seed {seed}: the contents of {script}"


@pytest.mark.parametrize("number", range(TESTS))
def test_binary_scripts_give_what_open_gives(
    number: int, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    _compare(scripts.binary, number, loop, tmp_path)


@pytest.mark.parametrize("number", range(TESTS))
def test_text_scripts_give_what_open_gives(
    number: int, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    _compare(scripts.text, number, loop, tmp_path)
