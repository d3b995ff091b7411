"""Headless Chromium for a test: where it is, how it starts, and pages driven by DevTools.

Commands and events are JSON texts with a NUL between them, on two pipes that Chromium inherits.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Self

from tests.interop import debian
from tests.interop.installing import run
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("chromium-headless-shell",)
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    # Nothing outside this machine is asked for.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # The tests' servers have no address of IPv6.
    *("--host-resolver-rules=MAP localhost 127.0.0.1", "--remote-debugging-pipe"),
)
# A command is answered at once by an idle machine; starting takes some seconds on a busy one.
ANSWER_SECONDS_MAX = 60
# Where the pipes are in Chromium's process.
COMMANDS_FD, EVENTS_FD = 3, 4


def command() -> tuple[tuple[str, ...], dict[str, str]]:
    """Return how Chromium starts, and its environment; installs it where it is not there."""
    if named := os.environ.get("RINGLOOP_CHROMIUM"):
        return (named,), {}
    found = debian.unpacked("chromium", PACKAGES)
    program = found.folder / "usr" / "lib" / "chromium" / "chromium-headless-shell"
    run([str(program), "--version"], env=os.environ | found.environment)
    return (str(program),), found.environment


def public_key_hash(certificate: str) -> str:
    """Return the pin of a certificate's key, as `--ignore-certificate-errors-spki-list` takes it."""
    key = run(["openssl", "x509", "-in", certificate, "-noout", "-pubkey"])
    body = "".join(key.splitlines()[1:-1])
    return base64.b64encode(hashlib.sha256(base64.b64decode(body)).digest()).decode()


class PageError(Exception):
    """A command or a script failed in the browser."""


class Browser:
    """A Chromium process, as a context manager."""

    def __init__(self, *switches: str) -> None:
        self.switches = switches
        self.loop = asyncio.get_running_loop()
        self.received = bytearray()
        self.answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.on_event: dict[tuple[str, str], Callable[[], object]] = {}
        self.last_id = 0
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.start()
        os.set_blocking(self.events, False)
        self.loop.add_reader(self.events, self.read)
        return self

    async def __aexit__(self, *_: object) -> None:
        # Chromium exits when its pipe is closed; its own children with it.
        os.close(self.commands)
        with contextlib.suppress(TimeoutError):
            await within(self.ended.wait(), ANSWER_SECONDS_MAX)
        self.loop.remove_reader(self.events)
        os.close(self.events)
        self.process.kill()
        self.process.wait()
        self.profile.cleanup()

    def start(self) -> None:
        """Start the process with its pipes."""
        words, environment = command()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self.commands = os.pipe()
        self.events, events = os.pipe()
        # The shell puts the pipes where Chromium expects them.
        placed = f'exec "$@" {COMMANDS_FD}<&{commands} {EVENTS_FD}>&{events}'
        words = (*words, *SWITCHES, f"--user-data-dir={self.profile.name}", *self.switches)
        self.process = subprocess.Popen(
            ["bash", "-c", placed, "bash", *words],
            env=os.environ | environment,
            pass_fds=(commands, events),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(events)

    def read(self) -> None:
        """Take what has come."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.events, 1 << 20)
            if not data:
                self.end()
            self.received += data
        *texts, rest = self.received.split(b"\0")
        self.received = rest
        for text in texts:
            message = json.loads(text)
            if "id" in message:
                self.answers.pop(message["id"]).set_result(message)
            elif told := self.on_event.get((message.get("sessionId", ""), message["method"])):
                told()

    def end(self) -> None:
        """Fail the commands that get no answer: the process has ended."""
        self.loop.remove_reader(self.events)
        self.ended.set()
        for answer in self.answers.values():
            answer.set_exception(PageError("Chromium has ended"))
        self.answers.clear()

    async def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        self.last_id += 1
        message: dict[str, Any] = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answer = self.answers[self.last_id] = self.loop.create_future()
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.commands, text) :]
        reply = await within(answer, ANSWER_SECONDS_MAX)
        if "error" in reply:
            raise PageError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def open(self, url: str = "about:blank") -> Page:
        """Open a page and wait until it has loaded."""
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = Page(self, attached["sessionId"])
        await self.ask("Page.enable", page.session)
        if url != "about:blank":
            await page.load(url)
        return page


class Page:
    """A page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    async def load(self, url: str) -> None:
        """Go to an address and wait until it has loaded."""
        loaded = asyncio.Event()
        self.browser.on_event[self.session, "Page.loadEventFired"] = loaded.set
        answer = await self.browser.ask("Page.navigate", self.session, url=url)
        if "errorText" in answer:
            raise PageError(f"{url}: {answer['errorText']}")
        await within(loaded.wait(), ANSWER_SECONDS_MAX)

    async def run(self, script: str) -> Any:
        """Return the value of an expression, or what its promise gives."""
        answer = await self.browser.ask(
            "Runtime.evaluate",
            self.session,
            expression=script,
            awaitPromise=True,
            returnByValue=True,
        )
        if details := answer.get("exceptionDetails"):
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    async def screenshot(self) -> bytes:
        """Return the page as PNG."""
        answer = await self.browser.ask("Page.captureScreenshot", self.session)
        return base64.b64decode(answer["data"])
