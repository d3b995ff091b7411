"""Every block of README.md and docs runs, in a process of its own, on both drivers; or says why not."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.docs.blocks import (
    BLOCKS,
    COMMANDS,
    KEYS,
    KNOWN,
    ROOT,
    Block,
    blocks_of,
    program_of,
)
from tests.docs.contexts import CONTEXTS
from tests.docs.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.tls import Certificates

pytestmark = [pytest.mark.sources, pytest.mark.one_thread("the blocks are processes of their own")]


# --- what stands on the pages ---------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_run_or_says_why_not(block: Block) -> None:
    assert block.language in KNOWN, f"{block}: a block of the kind {block.language!r}: name one"
    says = block.says
    assert {*says} <= KEYS, f"{block}: unknown comments"
    assert says.get("with", "") in CONTEXTS, f"{block}: no such context"
    if place := says.get("run by", ""):
        assert is_there(place, block.page.name), f"{block}: {place} does not run it"
    if "not run" in says:
        assert len(says["not run"]) > 10, f"{block}: a reason is needed"
    if block.language == "rust" and not {"run by", "not run"} & {*says}:
        assert "ignore" not in block.options, f"{block}: ignored without a reason"
        assert block.page in compiled_by_rustdoc(), f"{block}: no crate includes the page"


def is_there(place: str, page: str) -> bool:
    if place.startswith("make "):
        return f"\n{place.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()
    return page in (ROOT / place).read_text()


@cache
def compiled_by_rustdoc() -> set[Path]:
    """The pages whose Rust blocks are compiled, and run, with the crates' tests."""
    found = set()
    for source in (ROOT / "crates").glob("*/src/lib.rs"):
        for name in re.findall(r'doc = include_str!\("(.*?)"\)', source.read_text()):
            found.add((source.parent / name).resolve())
    return found


# --- running them ---------------------------------------------------------------------------------


@pytest.fixture(params=support.DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    support.usable_loop(f"ringloop-{request.param}")
    name: str = request.param
    return name


@pytest.fixture
def folder(tmp_path: Path, certificates: Certificates) -> Path:
    """A folder with the certificates that the pages name."""
    certificates.issue()
    certificates.issue("example.org", "DNS:example.org")
    for name in ("cert", "localhost", "example.org"):
        source = name.replace("cert", "localhost")
        shutil.copy(certificates.folder / f"{source}.pem", tmp_path / f"{name}.pem")
        shutil.copy(certificates.folder / f"{source}.key", tmp_path / f"{name}.key")
    shutil.copy(tmp_path / "cert.key", tmp_path / "key.pem")
    shutil.copy(certificates.authority, tmp_path)
    (tmp_path / "certificates").mkdir()
    for name in ("localhost.pem", "localhost.key", "authority.pem"):
        shutil.copy(tmp_path / name, tmp_path / "certificates")
    return tmp_path


def run_here(*languages: str) -> list[Block]:
    """The blocks to run, without the files that a command of their page runs."""
    return [
        block
        for block in BLOCKS
        if block.is_run_here and block.language in languages and not is_run_by_a_command(block)
    ]


def is_run_by_a_command(block: Block) -> bool:
    commands = (other for other in blocks_of(block.page) if other.language in COMMANDS)
    return block.name is not None and any(
        re.search(rf"\b{re.escape(block.name)}\b", other.text)
        for other in commands
        if other.is_run_here
    )


def skip_if_too_old(block: Block) -> None:
    if version := block.says.get("needs", "").removeprefix("python "):
        wanted = tuple(map(int, version.split(".")))
        if sys.version_info < wanted:
            pytest.skip(f"the block is for Python {version} and newer")


@contextlib.contextmanager
def neighbour(block: Block, place: Place) -> Iterator[None]:
    """The server of the page that the block talks to."""
    name = block.says.get("beside")
    if name is None:
        yield
        return
    server = next(other for other in blocks_of(block.page) if other.name == name)
    with place.serving([sys.executable, name], server.says["serves"]):
        yield


@pytest.mark.parametrize("block", run_here("python"), ids=str)
def test_python_block_runs(block: Block, driver: str, folder: Path) -> None:
    skip_if_too_old(block)
    place = Place(block.page, folder, driver)
    if block.name == "conftest.py":
        others = "".join(other.text for other in blocks_of(block.page) if other.is_run_here)
        assert "pytest" in others, "a command of the page runs it"
        return
    assert not (block.name or "").startswith("test_"), "no command of the page runs it"
    program = block.name or "block.py"
    (folder / program).write_text(place.real(program_of(block)))
    place.environment["RINGLOOP_INSTALL"] = "1"
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("child.py")), program]
    command.append(block.says.get("with", ""))
    if port := block.says.get("serves"):
        with place.serving([sys.executable, program], port):
            pass
    else:
        with neighbour(block, place):
            place.finish(command)


@pytest.mark.parametrize("block", run_here(*COMMANDS), ids=str)
def test_commands_run(block: Block, driver: str, folder: Path) -> None:
    skip_if_too_old(block)
    place = Place(block.page, folder, driver)
    if "--directory certificates" in block.text:
        shutil.rmtree(folder / "certificates")
    if port := block.says.get("serves"):
        for line in commands_of(block):
            with place.serving(["bash", "-c", f"exec env {place.real(line)}"], port):
                pass
    elif block.language == "sh":
        with neighbour(block, place):
            place.finish(["bash", "-euo", "pipefail", "-c", place.real(block.text)])
    else:
        with neighbour(block, place):
            check_session(block, place)


def commands_of(block: Block) -> list[str]:
    """Return the commands of a block, each on one line."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.join(words) for line in lines if (words := shlex.split(line, comments=True))]


def check_session(block: Block, place: Place) -> None:
    """Run each `$ command`; what stands below it is what it prints, with … for what differs."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        printed = place.finish(["bash", "-c", place.real(command)])
        at = 0
        for line in filter(str.strip, place.real(shown).splitlines()):
            pattern = ".*?".join(re.escape(piece.strip()) for piece in line.split("…"))
            found = re.compile(pattern.replace(r"\ ", r"\s+"), re.DOTALL).search(printed, at)
            assert found, f"{line!r} is not in what it printed from here on:\n{printed[at:]}"
            at = found.end()
