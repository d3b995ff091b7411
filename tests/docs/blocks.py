"""The fenced blocks of README.md and docs, with what the comments before them say of how they are run.

A block follows comments such as `<!-- serves: 8000 -->` on lines of their own:

| comment | the block |
|---|---|
| none | runs to its end, with status 0 |
| `with: NAME` | runs beside what tests/docs/contexts.py has by that name |
| `continues` | runs after the Python block before it, in the same program |
| `serves: PORT` | each command, or the program, is a server: it answers at that port, SIGTERM ends it |
| `beside: FILE` | runs while the program of that name on the page, a server, does |
| `needs: python 3.12` | is not run on an older Python |
| `run by: make TARGET`, `run by: PATH` | is run there, and not here |
| `not run: REASON` | is not run anywhere |
| `all run by: …` | as `run by`, for each block that follows |

A Python block whose first line is `# NAME.py` is a file for the other blocks of its page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

COMMANDS = {"sh", "console"}
# Settings and pictures: nothing to run.
DATA = {"text", "json", "ini", "toml", "yaml", "html", "dockerfile"}
KNOWN = {"python", "rust", *COMMANDS, *DATA}
KEYS = {"with", "continues", "serves", "beside", "needs", "run by", "not run"}

_COMMENT = re.compile(r"<!-- ([a-z ]+?)(?:: (.*?))? -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, what its fence says, its text and its comments."""

    page: Path
    line: int
    language: str
    options: tuple[str, ...]
    text: str
    comments: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def says(self) -> dict[str, str]:
        """What its comments say."""
        return dict(self.comments)

    @property
    def name(self) -> str | None:
        """The name of its file, if it is one."""
        first = self.text.partition("\n")[0]
        found = re.fullmatch(r"# ([\w/]+\.py)", first) if self.language == "python" else None
        return found[1] if found else None

    @property
    def is_run_here(self) -> bool:
        """Whether this folder's tests run it."""
        return self.language in {"python", *COMMANDS} and not {"run by", "not run"} & {*self.says}


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    found: list[Block] = []
    comments: list[tuple[str, str]] = []
    everywhere: list[tuple[str, str]] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = re.match(r"( *)```(.*)$", line)
        if fence is None:
            comment = _COMMENT.fullmatch(line.strip())
            if comment and comment[1] == "all run by":
                everywhere = [("run by", comment[2])]
            elif comment:
                comments.append((comment[1], comment[2] or ""))
            elif line.strip():
                comments = []
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
        language, *options = re.split(r"[,\s]+", fence[2].strip())
        text = "".join(text.removeprefix(fence[1]) + "\n" for text in lines[at + 1 : end])
        found.append(Block(page, at + 1, language, tuple(options), text, (*everywhere, *comments)))
        comments = []
        at = end + 1
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def files_of(page: Path) -> dict[str, str]:
    """Return the files that the page shows, by name."""
    return {block.name: block.text for block in blocks_of(page) if block.name}


def program_of(block: Block) -> str:
    """Return the text of a Python block, after that of the blocks it continues."""
    if "continues" not in block.says:
        return block.text
    here = [other for other in blocks_of(block.page) if other.language == "python"]
    before = here[[other.line for other in here].index(block.line) - 1]
    return program_of(before) + "\n" + block.text
