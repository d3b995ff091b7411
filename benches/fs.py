"""Compare asynchronous file packages: the same work by each, in turn, one process per run.

    make bench-fs                                   everything
    python benches/fs.py --rounds 3 --only small    some rows
    python benches/fs.py --write                    also writes RESULTS-fs.json and RESULTS-fs.md

The files are on the disk of the checkout (`--folder` elsewhere) and in the page cache: this
measures the packages' overhead. The figures are medians, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
LARGE_BYTES = 100_000_000
PIECE_BYTES = 65_536
SMALL_FILES = 1000
SMALL_BYTES = 4096
LINES = 20_000

# Name: the package that opens files, and the loop.
CONTESTANTS = {
    "blocking": ("builtin", "asyncio"),
    "ringloop.fs, ring": ("ringloop", "ringloop-uring"),
    "ringloop.fs, epoll": ("ringloop", "ringloop-epoll"),
    "ringloop.fs, asyncio": ("ringloop", "asyncio"),
    "aiofiles, asyncio": ("aiofiles", "asyncio"),
    "aiofiles, ringloop": ("aiofiles", "ringloop-uring"),
    "aiofile": ("aiofile", "asyncio"),
    "ayafileio": ("ayafileio", "asyncio"),
    "blazio": ("blazio", "blazio"),
}
PACKAGES = ("aiofiles", "aiofile", "ayafileio", "blazio")


class Blocking:
    """A file of `open` with the asynchronous packages' methods."""

    def __init__(self, *args: Any) -> None:
        self._file = open(*args)  # noqa: PTH123, SIM115 - the baseline

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._file.close()

    async def read(self, size: int = -1) -> Any:
        return self._file.read(size)

    async def write(self, data: Any) -> int:
        return self._file.write(data)

    async def lines(self) -> int:
        return sum(1 for _ in self._file)


def opener(package: str) -> Callable[..., Any]:
    """The function that opens a file, by path and mode."""
    if package == "builtin":
        return Blocking
    if package == "ringloop":
        from ringloop import fs

        return fs.open
    if package == "aiofile":
        from aiofile import async_open

        return async_open
    return __import__(package).open


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """The loop of a contestant."""
    if name == "blazio":
        import blazio

        return blazio.new_event_loop()
    if name.startswith("ringloop-"):
        import ringloop

        return ringloop.Loop(driver=name.removeprefix("ringloop-"))
    return asyncio.new_event_loop()


# The rows: each does its work once on `folder`, and returns the bytes or lines it has seen.


async def read_large(open_file: Any, folder: Path) -> int:
    """Read 100 MB with one call."""
    async with open_file(folder / "large", "rb") as file:
        return len(await file.read())


async def read_large_in_pieces(open_file: Any, folder: Path) -> int:
    """Read 100 MB in pieces of 64 KiB."""
    total = 0
    async with open_file(folder / "large", "rb") as file:
        while piece := await file.read(PIECE_BYTES):
            total += len(piece)
    return total


async def read_small(open_file: Any, folder: Path) -> int:
    """Open, read and close 1,000 files of 4 KiB, one after the other."""
    total = 0
    for number in range(SMALL_FILES):
        async with open_file(folder / "small" / str(number), "rb") as file:
            total += len(await file.read())
    return total


async def read_small_at_once(open_file: Any, folder: Path) -> int:
    """The same, 50 at a time."""

    async def one(number: int) -> int:
        async with open_file(folder / "small" / str(number), "rb") as file:
            return len(await file.read())

    total = 0
    for start in range(0, SMALL_FILES, 50):
        total += sum(await asyncio.gather(*map(one, range(start, start + 50))))
    return total


async def read_small_whole(open_file: Any, folder: Path) -> int:
    """Read 1,000 files of 4 KiB, with the package's whole-file call if it has one."""
    whole = WHOLE.get(PACKAGE)
    if whole is None:
        return await read_small(open_file, folder)
    total = 0
    for number in range(SMALL_FILES):
        total += len(await whole()(folder / "small" / str(number)))
    return total


async def read_lines(open_file: Any, folder: Path) -> int:
    """Iterate over the 20,000 lines of a text."""
    count = 0
    async with open_file(folder / "lines", "r") as file:
        if isinstance(file, Blocking):
            return await file.lines()
        async for _ in file:
            count += 1
    return count


async def write_large(open_file: Any, folder: Path) -> int:
    """Overwrite 100 MB in pieces of 64 KiB."""
    piece = b"x" * PIECE_BYTES
    total = 0
    async with open_file(folder / f"written-{os.getpid()}", "wb") as file:
        for _ in range(LARGE_BYTES // PIECE_BYTES):
            total += await file.write(piece) or PIECE_BYTES
    return total


def _ringloop_whole() -> Any:
    from ringloop import fs

    return fs.read_bytes


def _ayafileio_whole() -> Any:
    import ayafileio

    return ayafileio.read_bytes


WHOLE: dict[str, Callable[[], Any]] = {
    "ringloop": _ringloop_whole,
    "ayafileio": _ayafileio_whole,
    "builtin": lambda: _blocking_whole,
}
PACKAGE = ""


async def _blocking_whole(path: Path) -> bytes:
    return path.read_bytes()  # noqa: ASYNC240 - likewise


ROWS: dict[str, tuple[Any, int]] = {
    "read_100mb": (read_large, LARGE_BYTES),
    "read_100mb_in_pieces": (read_large_in_pieces, LARGE_BYTES),
    "small_files": (read_small, SMALL_FILES * SMALL_BYTES),
    "small_files_at_once": (read_small_at_once, SMALL_FILES * SMALL_BYTES),
    "small_files_whole": (read_small_whole, SMALL_FILES * SMALL_BYTES),
    "lines": (read_lines, LINES),
    "write_100mb_in_pieces": (write_large, LARGE_BYTES // PIECE_BYTES * PIECE_BYTES),
}


def prepare(folder: Path) -> None:
    """Make the files, and load them into the page cache."""
    (folder / "small").mkdir(parents=True, exist_ok=True)
    (folder / "large").write_bytes(os.urandom(1_000_000) * (LARGE_BYTES // 1_000_000))
    (folder / "lines").write_text("".join(f"line {number} of a text\n" for number in range(LINES)))
    for number in range(SMALL_FILES):
        (folder / "small" / str(number)).write_bytes(b"s" * SMALL_BYTES)
    os.sync()


def run_one(contestant: str, row: str, folder: Path, repeats: int) -> None:
    """In a run's process: print the best time of some repeats, after a warm-up."""
    global PACKAGE
    PACKAGE, loop_name = CONTESTANTS[contestant]
    function, expected = ROWS[row]
    open_file = opener(PACKAGE)
    loop = new_loop(loop_name)
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        got = loop.run_until_complete(function(open_file, folder))
        times.append(time.perf_counter() - began)
        if got != expected:
            raise SystemExit(f"{contestant} has seen {got}, not {expected}")
        (folder / f"written-{os.getpid()}").unlink(missing_ok=True)
    print(json.dumps(min(times[1:]) * 1000))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """Run every contestant on every row, in turn."""
    results: dict[str, dict[str, Any]] = {}
    for row in ROWS:
        if options.only and options.only not in row:
            continue
        times: dict[str, list[float]] = {}
        errors: dict[str, str] = {}
        for _ in range(options.rounds):
            for contestant in CONTESTANTS:
                if contestant in errors:
                    continue
                done = subprocess.run(
                    [sys.executable, __file__, "--run", contestant, row, str(folder)],
                    capture_output=True, text=True, timeout=300, check=False,
                    env={**os.environ, "PYTHONPATH": str(HERE.parent / "python")},
                )  # fmt: skip
                if done.returncode:
                    lines = done.stderr.strip().splitlines() or ["no output"]
                    errors[contestant] = lines[-1][:120]
                else:
                    times.setdefault(contestant, []).append(json.loads(done.stdout))
        results[row] = {name: round(statistics.median(list_), 2) for name, list_ in times.items()}
        results[row].update(errors)
        print(row, results[row], file=sys.stderr)
    return results


def machine() -> dict[str, str]:
    """Describe the machine and the versions."""
    cpu = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        "unknown",
    )  # fmt: skip
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    ).stdout.strip()
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "cpu": f"{os.cpu_count()} × {cpu}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ringloop": commit,
        **versions,
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    rows = list(results)
    lines = ["| |" + "|".join(rows) + "|", "|---|" + "---|" * len(rows)]
    for contestant in CONTESTANTS:
        cells = [results[row].get(contestant, "-") for row in rows]
        shown = [f"{cell:.1f}" if isinstance(cell, float) else "fails" for cell in cells]
        lines.append(f"| {contestant} |" + "|".join(shown) + "|")
    notes = [
        f"- {contestant}, {row}: `{cell}`"
        for row in rows
        for contestant, cell in results[row].items()
        if isinstance(cell, str)
    ]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--repeats", type=int, default=3, help="repeats in each process; the best counts"
    )
    parser.add_argument("--only", help="rows whose name contains this")
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--build", default="release", help="how ringloop was built, for the report")
    parser.add_argument("--write", action="store_true", help="write RESULTS-fs.json")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        contestant, row, folder = options.run
        run_one(contestant, row, Path(folder), options.repeats)
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix=".fs-") as name:
        prepare(Path(name))
        results = measure(options, Path(name))
    print(table(results))
    report = {
        "command": " ".join(["benches/fs.py", *sys.argv[1:]]),
        "build": options.build,
        "machine": machine(),
        "milliseconds": results,
    }
    print(json.dumps(report["machine"], indent=2))
    if options.write:
        (HERE / "RESULTS-fs.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
