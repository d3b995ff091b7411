"""The packages that the aioquic-style tests run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.quic.h3_pair import Pair, pair
from tests.quic.scenarios import AIOQUIC, WITH_AIOQUIC, Shape

if TYPE_CHECKING:
    from tests.support.tls import Certificates


@pytest.fixture(params=["ringloop", AIOQUIC] if WITH_AIOQUIC else ["ringloop"])
def shape(request: pytest.FixtureRequest) -> Shape:
    return Shape(request.param)


@pytest.fixture
def both(certificates: Certificates) -> Pair:
    """HTTP/3 of `ringloop.quic.h3` on both ends."""
    return pair(certificates)
