"""uvicorn on several loops: threads of one process on free-threaded Python, processes elsewhere.

    python examples/workers.py [--workers N] [--kind thread|process] [--port PORT]

All workers serve one socket. `curl http://127.0.0.1:8000/` says which of them has answered; Ctrl-C ends
requests under way and then all workers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from typing import Any

import uvicorn

import ringloop


async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    """Say who answers."""
    assert scope["type"] == "http"
    loop = type(asyncio.get_running_loop()).__module__
    body = f"process {os.getpid()} {threading.current_thread().name} {loop}\n".encode()
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(worker: ringloop.Worker) -> None:
    """Run uvicorn until the worker is to end."""
    config = uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=10)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=list(worker.sockets)))
    stopping = asyncio.ensure_future(worker.stopping())
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kind", choices=["thread", "process"])
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    address = f"127.0.0.1:{asked.port}"
    return ringloop.run_workers(serve, asked.workers, kind=asked.kind, listen=[address])


if __name__ == "__main__":
    raise SystemExit(main())
