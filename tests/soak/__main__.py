"""Run both drivers under mixed load with faults, and judge the outcome: `make soak MINUTES=10`.

`python -m tests.soak --minutes 60 --share 0.15`. Exits with 0 if no byte was wrong, no line was logged,
nothing got stuck, and what the processes hold stayed flat; otherwise with 1. The samples are written to
a file, of which `tests/soak/report.py` makes `docs/reliability.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ringloop
from tests.injection.__main__ import tls_contexts
from tests.soak import counters, episodes

PROGRESS_SECONDS = 30.0
# Of the share of a processor: what both children get together; the rest is the episodes'.
CHILDREN_SHARE = 0.7
EPISODE_SECONDS = 5.0
LOOPS = ("ringloop-uring", "ringloop-epoll")
# Samples of a run: enough for medians, few enough that waiting for quiet costs little.
SAMPLES = 120
SAMPLE_SECONDS_MIN = 4.0
# How long a child may take beyond its time: it waits for the parts under way, and closes.
LATE_SECONDS = 300.0


class Child:
    """One loop's process, and what it has reported."""

    def __init__(self, loop: str, folder: Path, options: argparse.Namespace) -> None:
        self.loop = loop
        self.samples: list[dict[str, float]] = []
        self.outcome: dict[str, Any] = {}
        self.errors = ""
        seconds = options.minutes * 60
        command = [sys.executable, "-m", "tests.soak.child", loop, str(folder)]
        command += ["--signals", "--seconds", str(seconds), "--seed", str(options.seed)]
        command += ["--share", str(options.share * CHILDREN_SHARE / len(options.loops))]
        command += ["--sample", str(max(SAMPLE_SECONDS_MIN, seconds / SAMPLES))]
        self.process = subprocess.Popen(
            command,
            cwd=episodes.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [threading.Thread(target=it) for it in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if "sample" in said:
                    self.samples.append(said["sample"])
                else:
                    self.outcome = said
                    # At once: the other loop may run for an hour more.
                    for fault in said["faults"]:
                        _say(f"{self.loop}: FAULT {fault}")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line

    def end(self, timeout: float) -> list[str]:
        """Wait for the end; return the faults."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.outcome.setdefault("faults", []).append("did not end")
        for thread in self._threads:
            thread.join()
        faults = list(self.outcome.get("faults", ["ended without a report"]))
        if self.errors:
            faults.append(f"wrote to standard error: {self.errors[:3000]}")
        if self.process.returncode and not faults:
            faults.append(f"ended with {self.process.returncode}")
        return faults

    def line(self) -> str:
        """Say how far it is."""
        if not self.samples:
            return f"{self.loop}: no sample yet"
        last = self.samples[-1]
        return (
            f"{self.loop}: {last['parts']:.0f} parts, {last['bytes'] / 1e6:.0f} MB checked,"
            f" {last['told']:.0f} errors told, {last['descriptors']:.0f} fds,"
            f" {last['resident_bytes'] / 1e6:.1f} MB, {last['cpu_seconds']:.0f} s CPU"
        )


class Episodes(threading.Thread):
    """Plays the episodes one after the other, in a random order, within their share of a processor."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(name="episodes")
        self.results: list[tuple[episodes.Episode, episodes.Result]] = []
        self.now = ""
        self._folder = folder
        self._share = options.share * (1 - CHILDREN_SHARE)
        self._numbers = random.Random(options.seed)
        self._end = time.monotonic() + options.minutes * 60
        self._loops = options.loops

    def run(self) -> None:
        catalogue = [one for one in episodes.catalogue() if one.loop in self._loops]
        while True:
            self._numbers.shuffle(catalogue)
            for episode in catalogue:
                # An episode that has begun is played to its end.
                if time.monotonic() + 4 * EPISODE_SECONDS > self._end:
                    return
                self._play(episode)

    def _play(self, episode: episodes.Episode) -> None:
        self.now = episode.name
        began, before = time.monotonic(), sum(os.times()[2:4])
        seed = self._numbers.randrange(1000)
        result = episode.play(self._folder, seed, EPISODE_SECONDS, max(self._share, 0.2))
        self.results.append((episode, result))
        self.now = ""
        if result.faults:
            _say(f"{episode.name} (seed {seed}): {result.word()}")
        # The main children are counted when they have ended, after all episodes.
        used = sum(os.times()[2:4]) - before
        rest = used / self._share - (time.monotonic() - began)
        time.sleep(max(0.0, min(rest, self._end - time.monotonic())))


def _say(text: str) -> None:
    sys.stdout.write(time.strftime("%H:%M:%S ") + text + "\n")
    sys.stdout.flush()


def _watch(children: list[Child], other: Episodes, options: argparse.Namespace) -> None:
    """Tell how far all are, until the children have ended or are late."""
    began = told = time.monotonic()
    end = began + options.minutes * 60 + LATE_SECONDS
    while any(child.process.poll() is None for child in children) and time.monotonic() < end:
        time.sleep(0.2)
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            minutes = (told - began) / 60
            _say(f"{minutes:.1f} of {options.minutes:g} minutes; {len(other.results)} episodes")
            for child in children:
                _say(f"  {child.line()}")


def _environment(options: argparse.Namespace) -> dict[str, Any]:
    git = ["git", "-C", str(episodes.ROOT), "describe", "--always", "--dirty", "--abbrev=8"]
    described = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    model = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": described,
        "command": f"python -m tests.soak --minutes {options.minutes:g} --share {options.share:g}"
        f" --seed {options.seed}",
        "version": ringloop.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "processor": model[0].partition(":")[2].strip() if model else platform.machine(),
        "load": os.getloadavg(),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--share", type=float, default=1.0, help="of one processor, for all together"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loops", nargs="+", choices=[*LOOPS, "asyncio"], default=list(LOOPS))
    parser.add_argument("--no-episodes", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("target/soak/soak.json"))
    return parser.parse_args()


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tls_contexts(folder)
        report: dict[str, Any] = {"environment": _environment(options), "loops": {}}
        children = [Child(loop, folder, options) for loop in options.loops]
        other = Episodes(folder, options)
        if not options.no_episodes:
            other.start()
        _watch(children, other, options)
        failed = 0
        for child in children:
            failed += _judged(child, options, report)
        if not options.no_episodes:
            other.join()
        report["environment"]["load_at_the_end"] = os.getloadavg()
    failed += _told_episodes(other, report)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report))
    _say(f"{'FAILED' if failed else 'passed'}; samples in {options.output}")
    return min(failed, 1)


def _judged(child: Child, options: argparse.Namespace, report: dict[str, Any]) -> int:
    """Report on a child; 1 if it failed."""
    faults = child.end(1.0)
    flat = counters.judge(child.samples, options.minutes * 60)
    faults += [f"not flat: {one}" for one in flat if not one.is_flat]
    _say(child.line())
    for one in flat:
        _say(f"  {'flat' if one.is_flat else 'GREW'}  {one}")
    if not flat:
        _say(f"  {len(child.samples)} samples: too few to judge whether memory is flat")
    for fault in faults:
        _say(f"  FAULT {fault}")
    report["loops"][child.loop] = {
        **child.outcome,
        "samples": child.samples,
        "faults": faults,
        "flat": [vars(one) | {"is_flat": one.is_flat} for one in flat],
    }
    return bool(faults)


def _told_episodes(other: Episodes, report: dict[str, Any]) -> int:
    """Report on the episodes; 1 if one failed."""
    report["episodes"] = [
        {"name": episode.name, "kind": episode.kind, "what": episode.what, "loop": episode.loop}
        | {"word": result.word(), **vars(result)}
        for episode, result in other.results
    ]
    ran = sum(result.ran for _, result in other.results)
    failed = sum(bool(result.faults) for _, result in other.results)
    _say(f"episodes: {ran} ran, {failed} failed, {len(other.results) - ran} NOT run")
    for episode, result in other.results:
        if not result.ran:
            _say(f"  {episode.name}: {result.word()}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
