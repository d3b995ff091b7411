"""examples/webtransport in headless Chromium: what the page shows of each of its three parts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser.chromium import Browser
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.browser.chromium import Page

    Run = Callable[[Any], Any]

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "webtransport" / "serve.py"
# Where pictures of the page go, to be looked at.
SCREENSHOTS = os.environ.get("RINGLOOP_SCREENSHOTS")
WIDTH, HEIGHT = 1120, 1090

# `until(condition)`, and what is read off the page.
LIBRARY = """
const until = async condition => {
    for (;;) {
        const value = condition()
        if (value) return value
        await new Promise(resolve => setTimeout(resolve, 20))
    }
}
const shown = id => document.getElementById(id).textContent
const row = id => [...document.getElementById(id).querySelectorAll('td')].map(it => it.textContent)
const number = text => parseFloat(text)
// Points of a plot: of its colour, or nearly so.
const drawn = (id, name) => {
    const canvas = document.getElementById(id)
    const context = document.createElement('canvas').getContext('2d')
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)
    const wanted = context.fillStyle.match(/[0-9a-f]{2}/g).map(part => parseInt(part, 16))
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
    let count = 0
    for (let at = 0; at < data.length; at += 4)
        if (wanted.every((part, index) => Math.abs(part - data[at + index]) < 30)) count++
    return count
}
"""


@contextlib.asynccontextmanager
async def demo() -> AsyncIterator[Page]:
    """Start the program, and open its page."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), "--port", "0", "--quic-port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await within(process.stdout.readline())).decode()
        assert "is ready" in line
        async with Browser() as browser:
            page = await browser.open()
            await browser.ask(
                "Emulation.setDeviceMetricsOverride",
                page.session,
                width=WIDTH,
                height=HEIGHT,
                deviceScaleFactor=1,
                mobile=False,
            )
            await page.load(line.split()[0])
            await page.run(LIBRARY)
            await within(page.run("until(() => shown('status') === 'connected')"))
            yield page
    finally:
        process.kill()
        await process.wait()


async def picture(page: Page, name: str) -> None:
    """Keep a picture, where one is asked for."""
    if SCREENSHOTS:
        Path(SCREENSHOTS, f"{name}.png").write_bytes(await page.screenshot())


def test_text_comes_back_as_it_is_typed(run: Run) -> None:
    texts = ["a", "ab", "two\tparts, äöü €"]
    script = f"""(async () => {{
        const input = document.getElementById('echo-input')
        for (const text of {json.dumps(texts)}) {{
            input.value = text
            input.dispatchEvent(new Event('input'))
        }}
        await until(() => shown('echo-count') === '3')
        return [shown('echo-answer'), shown('echo-time'), shown('echo-bytes')]
    }})()"""
    # In JSON, each with its line end.
    sizes = [len(json.dumps(text, ensure_ascii=False).encode()) + 1 for text in texts]

    async def main() -> None:
        async with demo() as page:
            # Written once its stream is open.
            await page.run("until(() => number(row('of-stream')[3]) > 0)")
            text, took, size = await within(page.run(script))
            assert text == texts[-1]
            assert took.endswith(" ms")
            assert size == f"{sum(sizes)} B"
            log = "[...document.querySelectorAll('#echo-log li')].map(it => it.firstChild.textContent)"
            assert await page.run(log) == texts[::-1]

    run(main())


def test_latency_of_both_is_plotted(run: Run) -> None:
    async def main() -> None:
        async with demo() as page:
            for name in ("of-datagrams", "of-stream"):
                await within(page.run(f"until(() => number(row('{name}')[3]) >= 40)"))
                median, _, longest, _, _ = await page.run(f"row('{name}')")
                assert 0 < float(median.split()[0]) <= float(longest.split()[0])
            assert await page.run("drawn('latency', 'stream')") > 50
            assert await page.run("drawn('latency', 'datagram')") > 50

    run(main())


def test_network_that_loses_datagrams_is_seen(run: Run) -> None:
    async def main() -> None:
        async with demo() as page:
            await page.run("document.querySelectorAll('#networks button')[1].click()")
            await within(page.run("until(() => number(row('of-datagrams')[0]) >= 40)"))
            await within(page.run("until(() => number(row('of-datagrams')[4]) >= 1)"))
            answered = "number(row('of-stream')[3])"
            await within(page.run(f"until(() => {answered} > 50)"))
            assert await page.run("number(row('of-stream')[0])") >= 40
            await within(page.run("until(() => drawn('latency', 'lost') > 5)"))
            await picture(page, "loss")
            # Back again, on another session.
            await page.run("document.querySelectorAll('#networks button')[0].click()")
            await within(
                page.run(f"until(() => {answered} > 5 && number(row('of-stream')[0]) < 40)")
            )

    run(main())


def test_upload_shows_progress_and_throughput(run: Run) -> None:
    async def main() -> None:
        async with demo() as page:
            await page.run("document.getElementById('upload-start').click()")
            await within(page.run("until(() => shown('upload-state') === 'complete')"))
            assert await page.run("shown('upload-arrived')") == "64.0 MiB"
            assert await page.run("document.getElementById('upload-progress').value") == 1
            rate = await page.run("shown('upload-rate')")
            assert rate.endswith("iB/s")
            assert float(rate.split()[0]) > 0
            assert await page.run("drawn('throughput', 'datagram')") > 50
            assert not await page.run("document.getElementById('upload-start').disabled")
            await page.run("document.getElementById('echo-input').value = 'Hello, WebTransport'")
            await page.run(
                "document.getElementById('echo-input').dispatchEvent(new Event('input'))"
            )
            await within(page.run("until(() => shown('echo-count') === '1')"))
            await picture(page, "upload")

    run(main())
