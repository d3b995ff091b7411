"""A uvicorn process that serves examples/service.py on the loop under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from examples.check_service import Service
from tests import support

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def service(loop_name: str, leak_check: None) -> Iterator[Service]:
    """The running service; a test that stops it itself may do so."""
    if loop_name == support.ORACLE:
        service = Service("asyncio", "--no-access-log")
    else:
        driver = loop_name.removeprefix("ringloop-")
        service = Service("ringloop:new_event_loop", "--no-access-log", driver=driver)
    with service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A real HTTP client of the service."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client
