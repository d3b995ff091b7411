"""hypercorn accepts only its own names of loops; serving from a coroutine, it uses the running one.

`python -m tests.ecosystem.smoke.hypercorn_program PORT CERTIFICATE KEY`
"""

from __future__ import annotations

import asyncio
import signal
import sys

import hypercorn.asyncio
import hypercorn.config

from tests.ecosystem.smoke.services import new_event_loop
from tests.ecosystem.smoke.web_app import app


async def main(port: str, certificate: str, key: str) -> None:
    """Serve until SIGTERM."""
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = certificate, key
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await hypercorn.asyncio.serve(
        app,  # type: ignore[arg-type]
        config,
        shutdown_trigger=stop.wait,  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
