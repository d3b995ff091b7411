"""Skips the tests where Chromium is not to be had."""

from __future__ import annotations

import pytest

from tests.browser import chromium
from tests.interop.installing import UnavailableError


@pytest.fixture(scope="session", autouse=True)
def chromium_is_there() -> None:
    """Install Chromium, once a machine."""
    try:
        chromium.command()
    except UnavailableError as reason:
        pytest.skip(f"no Chromium here: {reason}")
