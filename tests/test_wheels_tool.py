"""tools/wheels: the source archive, the links of its page, and the time stamps that cargo goes by."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

BUILDING = Path(__file__).parents[1] / "tools" / "wheels" / "building.py"


@pytest.fixture(scope="module")
def building() -> ModuleType:
    specification = importlib.util.spec_from_file_location("wheels_building", BUILDING)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("relative", "absolute"),
    [
        ("[a](docs/a.md)", "[a](https://example.org/r/blob/v1/docs/a.md)"),
        (
            "![p](b/P.svg) [c](C.md#x)",
            "![p](https://example.org/r/raw/v1/b/P.svg) [c](https://example.org/r/blob/v1/C.md#x)",
        ),
        ("[b](https://example.com/b)", "[b](https://example.com/b)"),
        (
            "```\n[a](docs/a.md)\n```\n[b](b)",
            "```\n[a](docs/a.md)\n```\n[b](https://example.org/r/blob/v1/b)",
        ),
    ],
)
def test_links_of_readme_lead_into_repository(
    building: ModuleType, relative: str, absolute: str
) -> None:
    assert building.absolute_links(relative, "https://example.org/r", "1") == absolute


def test_readme_keeps_no_relative_link(building: ModuleType) -> None:
    readme = (BUILDING.parents[2] / "README.md").read_text()
    page = building.absolute_links(readme, "https://example.org/r", "1")
    outside = building.FENCE.sub("", page)
    assert building.LINK.search(building.FENCE.sub("", readme))
    assert not building.LINK.search(outside)


def test_unchanged_sources_keep_their_time(building: ModuleType, tmp_path: Path) -> None:
    new, place = tmp_path / "new", tmp_path / "place"
    new.mkdir()
    for name in ("same", "changed", "gone"):
        (new / name).write_text(name)
    building.synchronise(new, place, ["same", "changed", "gone"])
    for name in ("same", "changed"):
        os.utime(place / name, (1, 1))
    (new / "changed").write_text("new content")
    building.synchronise(new, place, ["same", "changed"])
    assert (place / "same").stat().st_mtime == 1
    assert (place / "changed").stat().st_mtime > 1
    assert (place / "changed").read_text() == "new content"
    assert not (place / "gone").exists()


@pytest.mark.sources
def test_source_archive_is_whole(
    building: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacked, it has all that cargo asks for, and a lock file that cargo would not change."""
    monkeypatch.setattr(building, "TARGET", tmp_path)
    archive = building.make_sdist(tmp_path, "https://example.org/r")
    source = building.unpack(archive)
    assert "strip = true" in (source / "pyproject.toml").read_text()
    assert not building.LINK.search(building.FENCE.sub("", (source / "README.md").read_text()))
    assert (source / "crates" / "ringloop-python" / "src" / "lib.rs").is_file()
    assert (source / "python" / "ringloop.data").is_dir()
    # What the package does not need is not in it.
    assert not (source / "benches").exists()
    assert 'name = "loadgen"' not in (source / "Cargo.lock").read_text()
