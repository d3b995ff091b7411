"""The packages that the aioquic-style tests run on."""

from __future__ import annotations

import pytest

from tests.quic.scenarios import AIOQUIC, WITH_AIOQUIC, Shape


@pytest.fixture(params=["ringloop", AIOQUIC] if WITH_AIOQUIC else ["ringloop"])
def shape(request: pytest.FixtureRequest) -> Shape:
    return Shape(request.param)
