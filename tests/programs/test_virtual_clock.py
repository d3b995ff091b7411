"""examples/virtual_clock.py runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.programs.conftest import ROOT

if TYPE_CHECKING:
    from tests.programs.conftest import Interpreter


def test_example_of_the_virtual_clock(interpreter: Interpreter) -> None:
    done = interpreter(str(ROOT / "examples" / "virtual_clock.py"))
    assert done.lines[0] == "an answer"
    assert done.lines[-1].startswith("2097 virtual seconds in ")
