"""gunicorn's worker as in docs/deployment.md, on the loop that the environment names."""

from __future__ import annotations

from uvicorn_worker import UvicornWorker


class Worker(UvicornWorker):
    """Runs uvicorn's server."""

    CONFIG_KWARGS = {  # noqa: RUF012 - the attribute that the base class reads
        "loop": "tests.ecosystem.smoke.services:new_event_loop",
        "lifespan": "off",
    }
