"""The flame graph of a profile in headless Chromium: it shows the slow handler, zooms and searches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import profiling
from ringloop.profiling import _profile
from tests.browser.chromium import Browser

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

FUNCTION = profiling.Function
ROOT = (FUNCTION("running"), FUNCTION("task serve"), FUNCTION("serve", "/app/app.py", 1))
REPORT = FUNCTION("report", "/app/app.py", 10)
PING = FUNCTION("ping", "/app/app.py", 20)
# What a reader sees of a box: where it begins, how wide it is, in parts of the window.
PLACE = """(() => {
  const box = [...document.querySelectorAll('.box')].find(
    node => node.querySelector('text').textContent.startsWith('%s'));
  const place = box.getBoundingClientRect();
  const seen = [place.left / innerWidth, place.width / innerWidth, place.top];
  return box.classList.contains('hidden') ? null : seen;
})()"""


@pytest.fixture
def graph(tmp_path: Path) -> str:
    profile = profiling.Profile("running", 100)
    track = _profile.Track("loop 1")
    profile.tracks.append(track)
    profile.add(track, 0.0, (*ROOT, REPORT), 3.0)
    profile.add(track, 3.0, (*ROOT, PING), 1.0)
    profile.add(track, 4.0, (FUNCTION("idle"),), 96.0)
    profile.save(tmp_path / "flame.svg")
    return (tmp_path / "flame.svg").as_uri()


def test_flame_graph_names_zooms_and_searches(run: Run, graph: str) -> None:
    async def main() -> None:
        async with Browser("--window-size=1280,720") as browser:
            page = await browser.open(graph)
            text = await page.run("document.querySelector('table').innerText")
            assert re.search(r"75\.0 %\s*report \(/app/app\.py:10\)", text)
            left, width, top = await page.run(PLACE % "report")
            assert (left, width) == pytest.approx((0, 0.75), abs=0.01)
            # On the first screen.
            assert top < 720
            left, width, _ = await page.run(PLACE % "ping")
            assert (left, width) == pytest.approx((0.75, 0.25), abs=0.01)

            click = (
                "[...document.querySelectorAll('.box')].at(-1).dispatchEvent(new Event('click'))"
            )
            await page.run(click)
            assert (await page.run(PLACE % "ping"))[1] == pytest.approx(1, abs=0.01)
            assert await page.run(PLACE % "report") is None
            await page.run("document.getElementById('reset').click()")
            assert (await page.run(PLACE % "report"))[1] == pytest.approx(0.75, abs=0.01)

            await page.run(
                "(() => { const field = document.getElementById('search'); field.value = '^report';"
                " field.dispatchEvent(new Event('input')); })()"
            )
            assert await page.run("document.getElementById('share').textContent") == "75.0 % found"
            assert await page.run("document.querySelectorAll('.found').length") == 1
            assert (await page.screenshot()).startswith(b"\x89PNG")

    run(main())
