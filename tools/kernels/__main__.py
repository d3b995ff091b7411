"""`make kernels`: the engine's tests and a service check on Debian's kernels, emulated by qemu.

Boots each kernel with an initramfs that holds this interpreter and the package built here, plays the
rounds below in it and prints a table; --write puts it into docs/platforms.md. --quick, for CI: the ring
and its refusal on one kernel, without the engine's tests.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import image  # noqa: E402
import packages  # noqa: E402
from guest import BITS, FLAGS, MARK, OPERATIONS  # noqa: E402

from tests.interop.installing import CHECKOUT, UnavailableError, run  # noqa: E402

PAGE = CHECKOUT / "docs" / "platforms.md"
BEGIN, END = "<!-- kernels: begin -->", "<!-- kernels: end -->"
# `auto` chooses in every round but the second; "disabled" is last, as it changes the whole guest.
ROUNDS = (
    {"name": "auto", "driver": "auto"},
    {"name": "epoll", "driver": "epoll"},
    {"name": "seccomp EPERM", "driver": "auto", "errno": "EPERM"},
    {"name": "seccomp ENOSYS", "driver": "auto", "errno": "ENOSYS"},
    {"name": "io_uring_disabled=2", "driver": "auto", "sysctl": "2"},
)
# Quick enough without a processor that virtualises.
ENGINE_TESTS = ("operations", "net", "refused", "signal", "process", "time")
# The oldest with a ring that we take.
QUICK_KERNEL, QUICK_ROUNDS = "6.1", ("auto", "seccomp ENOSYS")
QUICK_CHECKS = "tcp unix udp signals timers files"
FEATURES = (*FLAGS, *OPERATIONS, *BITS)
MEMORY_MB = 1536


@dataclass
class Result:
    """What one kernel's guest reported."""

    name: str
    release: str = ""
    rounds: dict[str, dict[str, Any]] = field(default_factory=dict)
    engine: list[dict[str, Any]] = field(default_factory=list)
    # Why there is no result, or why it ends early.
    broken: str = ""
    seconds: float = 0.0

    def add(self, line: dict[str, Any]) -> None:
        """Take one reported line."""
        if "kernel" in line:
            self.release = line["kernel"]
        elif "round" in line:
            self.rounds.setdefault(line.pop("round"), {}).update(line)
        elif "engine" in line:
            self.engine.append(line)
        elif "broken" in line:
            self.broken = line["broken"]

    def failures(self) -> list[str]:
        """Everything that is not as it should be, a line each."""
        found = [f"the guest: {self.broken}"] if self.broken else []
        for name, told in self.rounds.items():
            if "absent" in told:
                continue
            if told.get("status") != 0:
                found.append(f"{name}: ended with {told.get('status')}: {told.get('broken', '')}")
            wrong = {check: text for check, text in told.get("checks", {}).items() if text != "ok"}
            found += [f"{name}: {check}: {text}" for check, text in wrong.items()]
            has_ring = told.get("ring", {}).get("defer-taskrun", False)
            expected = "uring" if has_ring and name != "epoll" else "epoll"
            if told.get("driver", expected) != expected:
                found.append(f"{name}: the driver is {told['driver']}: {told['reason']}")
        for one in self.engine:
            if one["status"] != 0:
                text = "\n    ".join(one["output"])
                found.append(f"engine, {one['engine']} on {one['driver']}:\n    {text}")
        return found


def engine_tests(profile: str) -> dict[str, Path]:
    """Build the engine's tests; return their programs."""
    command = [
        "cargo",
        "test",
        "--quiet",
        "--no-run",
        "--profile",
        profile,
        "--package",
        "ringloop",
    ]
    command += [
        "--message-format",
        "json",
        *(word for one in ENGINE_TESTS for word in ("--test", one)),
    ]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if told.get("executable") and told["target"]["name"] in ENGINE_TESTS:
            found[told["target"]["name"]] = Path(told["executable"])
    return found


def boot(name: str, kernel: Path, initramfs: Path, seconds: float, log: Path) -> Result:
    """Boot the kernel, and read what the guest reports until it powers off."""
    command, environment = packages.emulator()
    arguments = "console=ttyS0 quiet panic=-1 no_timer_check"
    interpreter = image.interpreter()
    command += [
        *("-machine", "pc", "-cpu", "Westmere,+rdrand", "-smp", "1", "-m", str(MEMORY_MB)),
        # The guest's clock counts its instructions, 2 ns each, and leaps over idle times: on a busy
        # machine no timeout of the tests runs out. It allows one processor.
        *("-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off"),
        *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(kernel), "-initrd", str(initramfs)),
        *("-append", f"{arguments} rdinit={interpreter} -- -I {image.GUEST}/guest.py"),
    ]
    result, started, console = Result(name), time.monotonic(), []
    with subprocess.Popen(
        ["timeout", str(seconds), *command],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as guest:
        is_done = False
        for line in guest.stdout or ():
            console.append(line)
            _, mark, text = line.partition(MARK)
            if mark:
                told = json.loads(text)
                is_done = is_done or "done" in told
                result.add(told)
                print(f"{name}: {summary(told)}", flush=True)
    log.write_text("".join(console))
    result.seconds = time.monotonic() - started
    if not is_done and not result.broken:
        result.broken = f"ended early, after {result.seconds:.0f} s; its console is in {log}"
    return result


def summary(told: dict[str, Any]) -> str:
    """Return a reported line in short."""
    checks = told.get("checks")
    if checks is not None:
        wrong = [one for one, text in checks.items() if text != "ok"]
        text = f"driver {told['driver']}, {len(checks) - len(wrong)} of {len(checks)} checks"
        return text + (f"; FAILED: {', '.join(wrong)}" if wrong else "")
    if "engine" in told:
        return f"engine {told['engine']} on {told['driver']}: {told['result'] or told['status']}"
    return json.dumps({key: value for key, value in told.items() if key != "output"})


def table(results: list[Result]) -> str:
    """Return the table of docs/platforms.md."""
    lines = ["| | " + " | ".join(one.release or one.name for one in results) + " |"]
    lines.append("|---|" + "---|" * len(results))

    def row(title: str, cells: list[str]) -> None:
        lines.append(f"| {title} | " + " | ".join(cells) + " |")

    for round_ in ROUNDS:
        row(round_["name"], [_cell(one.rounds.get(round_["name"])) for one in results])
    for test in ENGINE_TESTS if any(one.engine for one in results) else ():
        for driver in ("uring", "epoll"):
            row(f"engine: `{test}`, {driver}", [_engine_cell(one, test, driver) for one in results])
    for feature in FEATURES:
        row(f"ring: {feature}", [_feature_cell(one, feature) for one in results])
    return "\n".join([*lines, "", _origin()]) + "\n"


def _origin() -> str:
    """Return what made the table."""
    command, environment = packages.emulator()
    emulator = (
        run([command[0], "--version"], env={**os.environ, **environment}).split("(")[0].strip()
    )
    commit = run(["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT).strip()
    return (
        f"Made by `make kernels WRITE=1` at {commit}: CPython {platform.python_version()}, {emulator},"
        " whose TCG emulates one processor."
    )


def _cell(told: dict[str, Any] | None) -> str:
    if told is None or ("status" not in told and "absent" not in told):
        return "not run"
    if "absent" in told:
        return "no such sysctl"
    checks = told.get("checks", {})
    wrong = [one for one, text in checks.items() if text != "ok"]
    return f"{told.get('driver', '?')}: " + (
        f"FAILED: {', '.join(wrong) or 'the round'}" if wrong or told["status"] else "passed"
    )


def _engine_cell(result: Result, test: str, driver: str) -> str:
    for one in result.engine:
        if (one["engine"], one["driver"]) == (test, driver):
            return "FAILED" if one["status"] else one["result"].split(";")[0].split(". ")[-1]
    ring = result.rounds.get("auto", {}).get("ring")
    has_no_ring = ring is not None and not ring.get("defer-taskrun")
    return "–" if driver == "uring" and has_no_ring else "not run"


def _feature_cell(result: Result, feature: str) -> str:
    told = result.rounds.get("auto", {}).get("ring")
    if told is None:
        return "not run"
    if "refused" in told:
        return str(told["refused"])
    return "yes" if told[feature] else "–"


def write(text: str) -> None:
    """Replace the table between the marks in the page."""
    page = PAGE.read_text()
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{PAGE} has no {BEGIN} and {END}")
    PAGE.write_text(page.partition(BEGIN)[0] + f"{BEGIN}\n{text}{END}" + page.partition(END)[2])


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make kernels", description=__doc__)
    parser.add_argument("--kernels", help=f"of: {' '.join(packages.SUITES)}")
    parser.add_argument("--quick", action="store_true", help="one kernel, two rounds of six checks")
    parser.add_argument("--if-possible", action="store_true", help="0 if no kernel can be emulated")
    parser.add_argument("--rounds", help="names of rounds, by commas")
    parser.add_argument("--checks", help="of the service check, by spaces")
    parser.add_argument("--no-engine", action="store_true", help="without the engine's tests")
    parser.add_argument("--profile", default="tested", help="of the engine's tests (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1500, help="for each kernel (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="kernels at a time (%(default)s)")
    parser.add_argument("--write", action="store_true", help="the table into docs/platforms.md")
    asked = parser.parse_args()
    if asked.quick:
        asked.kernels = asked.kernels or QUICK_KERNEL
        asked.rounds = asked.rounds or ",".join(QUICK_ROUNDS)
        asked.checks = asked.checks or QUICK_CHECKS
        asked.no_engine = True
    return asked


def find_kernels(names: list[str]) -> tuple[dict[str, Path], list[str]]:
    """Return the kernels' images, and the names of the unavailable ones."""
    kernels, missing = {}, []
    for name in names:
        try:
            packages.emulator()
            kernels[name] = packages.kernel(name)
        except UnavailableError as error:
            missing.append(name)
            print(f"== kernel {name} was NOT tested: {error}", flush=True)
    return kernels, missing


def main() -> int:
    """Boot what is asked for; return the exit status."""
    asked = arguments()
    wanted = asked.rounds.split(",") if asked.rounds else [one["name"] for one in ROUNDS]
    rounds = [{**one, "only": asked.checks or ""} for one in ROUNDS if one["name"] in wanted]
    kernels, missing = find_kernels((asked.kernels or " ".join(packages.SUITES)).split())
    if not kernels:
        return 0 if asked.if_possible else 1
    tests = {} if asked.no_engine else engine_tests(asked.profile)
    logs = CHECKOUT / os.environ.get("CARGO_TARGET_DIR", "target")
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        initramfs = image.build(
            Path(folder),
            {"rounds": rounds, "engine": [test.name for test in tests.values()]},
            [*tests.values()],
        )
        print(f"initramfs: {initramfs.stat().st_size >> 20} MB", flush=True)
        with ThreadPoolExecutor(asked.jobs) as pool:
            results = list(
                pool.map(
                    lambda one: boot(*one, initramfs, asked.seconds, logs / f"kernel-{one[0]}.log"),
                    kernels.items(),
                )
            )
    # The programs' names have a hash; tables have the tests'.
    names = {path.name: name for name, path in tests.items()}
    for result in results:
        for one in result.engine:
            one["engine"] = names[one["engine"]]
    text = table(results)
    print(text)
    failures = [f"{one.name}: {line}" for one in results for line in one.failures()]
    for line in failures:
        print(f"FAILED {line}")
    for result in results:
        print(f"{result.name}: {result.release}, {result.seconds:.0f} s")
    if asked.write:
        write(text)
    return 1 if failures or missing else 0


if __name__ == "__main__":
    sys.exit(main())
