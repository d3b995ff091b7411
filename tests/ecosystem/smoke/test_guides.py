"""The programs of docs/guides/databases.md, django.md and aiohttp.md run, in processes of their own."""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.docs.blocks import ROOT, Block, blocks_of
from tests.docs.place import Place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ecosystem.smoke.services import Postgres, Redis

GUIDES = ROOT / "docs" / "guides"
PRINTED = {
    "with_asyncpg.py": "328350",
    "with_psycopg.py": "(5050,)",
    "with_sqlalchemy.py": "42",
    "with_redis.py": "499500",
}


def here(page: str) -> list[Block]:
    """Return the blocks that say that they are run by this file."""
    blocks = blocks_of(GUIDES / page)
    return [block for block in blocks if block.says.get("run by", "").endswith("test_guides.py")]


@pytest.fixture(params=support.DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    support.usable_loop(f"ringloop-{request.param}")
    name: str = request.param
    return name


def test_every_database_program_is_known() -> None:
    assert {block.name for block in here("databases.md")} == PRINTED.keys()


@pytest.mark.parametrize("program", PRINTED)
def test_database_program(
    program: str, driver: str, tmp_path: Path, postgres: Postgres, redis_server: Redis
) -> None:
    place = Place(GUIDES / "databases.md", tmp_path, driver)
    place.environment["DATABASE_URL"] = (
        f"postgresql://{postgres.user}@/postgres?host={postgres.folder}&port={postgres.port}"
    )
    place.environment["REDIS_URL"] = f"unix://{redis_server.path}"
    assert place.finish([sys.executable, program]).strip() == PRINTED[program]


def test_aiohttp_client_and_server(driver: str, tmp_path: Path) -> None:
    place = Place(GUIDES / "aiohttp.md", tmp_path, driver)
    assert [block.name for block in here("aiohttp.md")] == ["server.py", "client.py"]
    with place.serving([sys.executable, "server.py"], "8000"):
        loop, *printed = place.finish([sys.executable, "client.py"]).splitlines()
    assert loop.startswith(f"<ringloop.Loop driver={driver} ")
    assert printed == ["hello", "100"]


def test_django_application(driver: str, tmp_path: Path) -> None:
    place = Place(GUIDES / "django.md", tmp_path, driver)
    _, command = here("django.md")
    words = place.real(command.text).split()
    with place.serving([sys.executable, "-m", *words], "8000"):
        url = f"http://127.0.0.1:{place.real('8000')}/"
        with urllib.request.urlopen(url, timeout=support.PATIENCE_SECONDS) as answer:
            found = json.load(answer)
    assert (found["rates"], found["users"]) == (1.1, 7)
    assert found["loop"].startswith(f"<ringloop.Loop driver={driver} ")
