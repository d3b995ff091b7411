"""The application of `test_workers.py`: shows which process answers, and can hang one."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ringloop
from tests.ecosystem.smoke.services import describe_loop
from tests.support import ORACLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# hypercorn has no option for other loops, and imports this before it creates one.
if os.environ.get("SMOKE_INSTALL") and os.environ["SMOKE_LOOP"] != ORACLE:
    ringloop.install()


async def app(
    scope: dict[str, Any], _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    """Answer `GET /` with the process and its loop; `GET /hang/FILE` as well, before it hangs."""
    assert scope["type"] == "http"
    loop = asyncio.get_running_loop()
    body = json.dumps([os.getpid(), describe_loop(loop)]).encode()
    headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    if scope["path"].startswith("/hang/"):
        loop.call_later(0.05, hang, Path(scope["path"].removeprefix("/hang")))


def hang(file: Path) -> None:
    """Create a file to report it, and block the loop until the file is deleted."""
    file.touch()
    while file.exists():
        time.sleep(0.01)
