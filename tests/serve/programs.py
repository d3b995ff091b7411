"""The application of test_programs.py."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer with the protocol and the worker; `/slow` after a second, `/endless` never."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/endless":
        print("endless request", flush=True)  # noqa: T201
        await asyncio.Event().wait()
    if scope["path"] == "/slow":
        print("slow request", flush=True)  # noqa: T201
        await asyncio.sleep(1)
    body = f"{scope['http_version']} {os.getpid()} {threading.get_native_id()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
