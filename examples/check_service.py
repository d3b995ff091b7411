"""Drive examples/service.py as a user would, and say what came back: `make run CHECK=1`.

Starts uvicorn on ringloop in a process of its own, sends real HTTP and WebSocket traffic, stops it
with Ctrl-C's signal, and exits non-zero when anything is not as it should be. `Service` and the
checks are used by tests/service too.
"""

import hashlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import httpx
from websockets.sync.client import connect

from examples.service import CHUNK_BYTES, pattern

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 60.0
GRACE_S = 3


class ServiceError(Exception):
    """The service did not do what it should."""


class Service:
    """A uvicorn process that serves examples/service.py; a context manager.

    `url` is where it listens; `log` collects what it printed.
    """

    def __init__(
        self, loop: str = "ringloop:new_event_loop", *options: str, driver: str = ""
    ) -> None:
        command = [
            *(
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "uvicorn",
                "examples.service:app",
                "--loop",
                loop,
            ),
            *(
                "--http",
                "httptools",
                "--ws",
                "websockets-sansio",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
            ),
            *("--timeout-graceful-shutdown", str(GRACE_S), *options),
        ]
        environment = os.environ | ({"RINGLOOP_DRIVER": driver} if driver else {})
        self.log: list[str] = []
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="service log")
        self._reader.start()
        self.url = ""

    def __enter__(self) -> Self:
        try:
            found = self.wait_for_line(r"running on (http://\S+)", START_TIMEOUT_S)
        except ServiceError:
            self.kill()
            raise
        self.url = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def wait_for_line(self, wanted: str, timeout: float) -> re.Match[str]:
        """Return the first new line of the log that has the pattern `wanted`."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                stacks = self.abort()
                raise ServiceError(f"no {wanted!r} within {timeout} s:\n{stacks}") from None
            if line is None:
                raise ServiceError(f"the service ended:\n{self.text()}")
            self.log.append(line)
            if found := re.search(wanted, line):
                return found

    def text(self) -> str:
        """Return what the service has printed so far."""
        while not self._lines.empty():
            if (line := self._lines.get()) is not None:
                self.log.append(line)
        return "\n".join(self.log)

    def interrupt(self, timeout: float) -> float:
        """Send Ctrl-C's signal; return the seconds until the process had ended by itself."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            stacks = self.abort()
            raise ServiceError(f"still running {timeout} s after SIGINT:\n{stacks}") from None
        took = time.monotonic() - began
        self._reader.join()
        return took

    def abort(self) -> str:
        """End a process that is stuck; return its log, which ends with the stack of every thread."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()
        self._reader.join()
        return self.text()

    def kill(self) -> None:
        """End the process whatever it does."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def assert_clean_exit(self) -> None:
        """Raise unless the application shut down in order and nothing was reported on the way."""
        log = self.text()
        for wanted in ("service stopped after", "Application shutdown complete", "Finished server"):
            if wanted not in log:
                raise ServiceError(f"the log lacks {wanted!r}:\n{log}")
        for unwanted in (
            "Traceback",
            "was destroyed",
            "never retrieved",
            "never awaited",
            "Warning",
        ):
            if unwanted in log:
                raise ServiceError(f"the log has {unwanted!r}:\n{log}")
        # uvicorn ends by the signal that stopped it, once everything is closed.
        if self.process.returncode not in {0, -signal.SIGINT, 128 + signal.SIGINT}:
            raise ServiceError(f"exit status {self.process.returncode}:\n{log}")


def expect(what: str, got: object, wanted: object) -> None:
    """Raise unless `got` is `wanted`."""
    if got != wanted:
        raise ServiceError(f"{what}: got {got!r}, wanted {wanted!r}")


def upload_chunks(size: int) -> Iterator[bytes]:
    """Yield `size` bytes of the pattern in chunks."""
    for offset in range(0, size, CHUNK_BYTES):
        yield pattern(offset, min(CHUNK_BYTES, size - offset))


def digest_of_pattern(size: int) -> str:
    """Return the SHA-256 of the first `size` bytes of the pattern."""
    digest = hashlib.sha256()
    for chunk in upload_chunks(size):
        digest.update(chunk)
    return digest.hexdigest()


def check_about(client: httpx.Client) -> str:
    """GET /: which loop and driver serve."""
    response = client.get("/")
    expect("status", response.status_code, 200)
    return response.text


def check_items(client: httpx.Client) -> str:
    """POST and GET an item; the background task writes the audit trail; bad input is refused."""
    added = client.post(
        "/items", json={"name": "coil", "price": 2.5}, headers={"x-request-id": "check-1"}
    )
    expect("status", added.status_code, 201)
    expect("echoed request id", added.headers["x-request-id"], "check-1")
    item_id = added.json()["item_id"]
    item = client.get(f"/items/{item_id}")
    expect("item", item.json(), {"name": "coil", "price": 2.5, "tags": []})
    expect("unknown item", client.get("/items/999").status_code, 404)
    expect("bad item", client.post("/items", json={"name": ""}).status_code, 422)
    deadline = time.monotonic() + 30
    while "check-1 added coil" not in client.get("/audit").json():
        if time.monotonic() > deadline:
            raise ServiceError("the background task wrote no audit line")
    return item.text


def check_context(client: httpx.Client) -> str:
    """GET /context: the middleware's variable reaches handler, task and thread."""
    response = client.get("/context", headers={"x-request-id": "check-2"})
    expect("context", response.json(), dict.fromkeys(("handler", "task", "thread"), "check-2"))
    return response.text


def check_stream(client: httpx.Client, size: int = 3_000_001) -> str:
    """GET /stream: every byte as the pattern has it."""
    digest, got = hashlib.sha256(), 0
    with client.stream("GET", "/stream", params={"size": size}) as response:
        for chunk in response.iter_raw():
            digest.update(chunk)
            got += len(chunk)
    expect("streamed bytes", got, size)
    expect("streamed digest", digest.hexdigest(), digest_of_pattern(size))
    return f"{got} bytes, sha256 {digest.hexdigest()[:16]}… as sent"


def check_upload(client: httpx.Client, size: int = 3_000_001) -> str:
    """PUT /upload: the service hashes what we sent."""
    response = client.put(
        "/upload", content=upload_chunks(size), headers={"content-length": str(size)}
    )
    expect("upload", response.json(), {"size": size, "sha256": digest_of_pattern(size)})
    return response.text


def check_websocket(client: httpx.Client) -> str:
    """Echo text and binary messages, a large one among them."""
    sent: list[str | bytes] = ["hello", b"\x00\xff" * 10, "ü" * 1000, b"x" * 300_000]
    with connect(f"ws://{client.base_url.netloc.decode()}/echo", max_size=None) as socket:
        for message in sent:
            socket.send(message)
        for message in sent:
            expect("websocket message", socket.recv(timeout=30), message)
    return f"{len(sent)} messages, largest {max(map(len, sent))} bytes, echoed"


CHECKS: tuple[tuple[str, Callable[[httpx.Client], str]], ...] = (
    ("GET /", check_about),
    ("/items, /audit", check_items),
    ("GET /context", check_context),
    ("GET /stream", check_stream),
    ("PUT /upload", check_upload),
    ("WS /echo", check_websocket),
)


def main() -> int:
    """Run every check against a service of its own; return the exit status."""
    passed = 0
    try:
        with Service() as service:
            print(f"serving on {service.url}")
            with httpx.Client(base_url=service.url, timeout=30) as client:
                for name, check in CHECKS:
                    print(f"  {name:<15} {check(client)}")
                    passed += 1
                about = json.loads(check_about(client))
            took = service.interrupt(timeout=GRACE_S + 30)
            service.assert_clean_exit()
            print(f"  {'Ctrl-C':<15} stopped cleanly in {took:.2f} s")
            expect("package that serves", about["loop"].split(".")[0], "ringloop")
    except (ServiceError, httpx.HTTPError, OSError) as error:
        print(f"FAILED after {passed} checks: {error}", file=sys.stderr)
        return 1
    print(f"driver in use: {about['driver']}; {passed + 1} checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
