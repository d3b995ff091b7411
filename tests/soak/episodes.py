"""Short runs on a kernel that lacks something: `Episode.play` runs a child and judges it.

- a feature of the ring is missing, one at a time, by `missing.c` preloaded;
- system calls fail with an errno now and then, by strace's injection;
- memory is short for seconds, by `tests.support.pressure`.

In each the child may get errors where a call failed; it must not hang, deliver a wrong byte, or abort.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.memory.test_pressure import environment
from tests.support import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
URING, EPOLL = "ringloop-uring", "ringloop-epoll"
# A busy machine, a traced child: what hangs takes longer.
HANG_SECONDS = 300.0

# linux/io_uring.h
FEATURES: dict[str, dict[str, int]] = {
    "no-iowait": {"SOAK_FEATURES": 1 << 17},
    "min-timeout": {"SOAK_FEATURES": 1 << 15},
    "recvsend-bundle": {"SOAK_FEATURES": 1 << 14},
    "reg-reg-ring": {"SOAK_FEATURES": 1 << 13},
    "no-sqarray": {"SOAK_FLAGS": 1 << 16},
    "send-zc": {"SOAK_OPERATIONS": 48},
    "msg-ring": {"SOAK_OPERATIONS": 40},
    "read-multishot": {"SOAK_OPERATIONS": 49},
    "waitid": {"SOAK_OPERATIONS": 50},
    "futex": {"SOAK_OPERATIONS": 51},
    "ftruncate": {"SOAK_OPERATIONS": 55},
    "registered ring descriptor": {"SOAK_REGISTER": 20},
}
ALL_FEATURES: dict[str, Any] = {
    "SOAK_FEATURES": sum(one.get("SOAK_FEATURES", 0) for one in FEATURES.values()),
    "SOAK_FLAGS": 1 << 16,
    "SOAK_OPERATIONS": "40,48,49,50,51,55",
    "SOAK_REGISTER": 20,
}


class StarvedError(Exception):
    """The machine was too busy to run a child."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"its threads waited {seconds:.0f} of {HANG_SECONDS:g} s for a processor")


@dataclass(frozen=True)
class Result:
    """How an episode ended; `reason` of one that did not run, `faults` of one that failed."""

    ran: bool
    faults: Sequence[str] = ()
    reason: str = ""
    parts: int = 0
    bytes: int = 0
    # How often something was taken out, or failed on purpose.
    faulted: int = 0

    def word(self) -> str:
        if not self.ran:
            return f"NOT run: {self.reason}"
        return "FAILED: " + " | ".join(self.faults) if self.faults else "ok"


@dataclass(frozen=True)
class Episode:
    """One run of a child."""

    kind: str
    what: str
    loop: str
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.what}, {self.loop}"

    def play(self, folder: Path, seed: int, seconds: float, share: float = 1.0) -> Result:
        """Run to the end; `folder` has the certificates and takes the child's files."""
        run = {"feature": _without_feature, "call": _with_failing_call, "memory": _without_memory}
        options = ["--seed", str(seed), "--seconds", str(seconds), "--share", str(share)]
        try:
            return run[self.kind](self, folder, options)
        except StarvedError as error:
            return Result(False, reason=str(error))


def library(folder: Path) -> Path | str:
    """Build `missing.c` once; the reason if that is not possible."""
    return refuse.interposer(Path(__file__).with_name("missing.c"), folder)


@cache
def tracer() -> tuple[str, str]:
    """Return the path of strace and "", or "" and the reason why it cannot be used."""
    path = shutil.which("strace")
    if path is None:
        return "", "no strace (apt-get install strace)"
    trial = [path, "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=openat", "true"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return (path, "") if done.returncode == 0 else ("", done.stderr.strip())


def _child(loop: str, folder: Path, options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tests.soak.child", loop, str(folder), *options]


def _run(command: Sequence[str], variables: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Run a child to its end; return its last line and what was wrong with it."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        out, err = process.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        waited = _waited_seconds(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        if waited > HANG_SECONDS / 2:
            raise StarvedError(waited) from None
        return {}, [f"hung for {HANG_SECONDS:g} s: {err[-2000:]}"]
    lines = out.splitlines()
    try:
        outcome: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}, [f"ended with {process.returncode}: {err[-2000:]}"]
    faults = list(outcome["faults"])
    if process.returncode and not faults:
        faults.append(f"ended with {process.returncode}: {err[-2000:]}")
    return outcome, faults


def _waited_seconds(pid: int) -> float:
    """How long the threads of a process, together, were ready to run and did not."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[1]) for thread in threads) / 1e9


def _result(outcome: dict[str, Any], faults: list[str], faulted: int) -> Result:
    parts = sum(outcome.get("done", {}).values())
    return Result(True, faults, "", parts, outcome.get("bytes", 0), faulted)


def _without_feature(episode: Episode, folder: Path, options: Sequence[str]) -> Result:
    built = library(folder)
    if isinstance(built, str):
        return Result(False, reason=built)
    note = folder / f"note-{os.getpid()}"
    note.unlink(missing_ok=True)
    variables = {name: str(value) for name, value in episode.variables.items()}
    variables |= {"LD_PRELOAD": str(built), "SOAK_NOTE": str(note)}
    outcome, faults = _run(_child(episode.loop, folder, options), variables)
    if not note.exists() and not faults:
        return Result(False, reason="this kernel or this engine does not use it")
    return _result(outcome, faults, len(note.read_text().splitlines()) if note.exists() else 0)


def _with_failing_call(episode: Episode, folder: Path, options: Sequence[str]) -> Result:
    path, reason = tracer()
    if not path:
        return Result(False, reason=reason)
    log = folder / f"strace-{os.getpid()}"
    call = episode.variables["call"]
    inject = f"inject={call}:error={episode.variables['error']}:when={episode.variables['when']}"
    command = [path, "-f", "--seccomp-bpf", "-qq", "-o", str(log)]
    command += ["-e", f"trace={call}", "-e", "signal=none", "-e", inject]
    command += _child(episode.loop, folder, [*options, "--tolerant"])
    outcome, faults = _run(command, {})
    injected = log.read_text(errors="replace").count("(INJECTED)") if log.exists() else 0
    log.unlink(missing_ok=True)
    if not injected and not faults:
        return Result(False, reason="this loop does not make the call as often")
    if not faults and not outcome["done"]:
        faults.append("no part has ended well")
    return _result(outcome, faults, injected)


def _without_memory(episode: Episode, folder: Path, options: Sequence[str]) -> Result:
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.pressure", episode.loop]
    command += [str(folder), *options[:2], "--left", str(episode.variables["left"])]
    outcome, faults = _run([*command, "--seconds", "3"], environment())
    if faults and "recover from MemoryErrors" in faults[0]:
        return Result(False, reason="the interpreter could not make a MemoryError, and ended")
    moved = sum(kind["got"] for kind in outcome.get("streams", {}).values())
    return Result(True, faults, bytes=moved, faulted=outcome.get("refused", 0))


def catalogue() -> list[Episode]:
    """List every episode."""
    episodes = [Episode("feature", name, URING, dict(one)) for name, one in FEATURES.items()]
    episodes.append(Episode("feature", "all of them", URING, dict(ALL_FEATURES)))
    for call, error, when, loops in CALLS:
        variables = {"call": call, "error": error, "when": when}
        episodes += [Episode("call", f"{call} {error}", loop, variables) for loop in loops]
    for left in (2048, 16 * 1024):
        episodes += [
            Episode("memory", f"{left} KiB left", loop, {"left": left}) for loop in (URING, EPOLL)
        ]
    return episodes


BOTH = (URING, EPOLL)
# Calls, errno, which of them by thread (strace's `when=`), and the loops.
CALLS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("io_uring_enter", "EINTR", "5+3", (URING,)),
    ("io_uring_enter", "EAGAIN", "20+7", (URING,)),
    ("io_uring_enter", "EBUSY", "20+7", (URING,)),
    ("epoll_wait,epoll_pwait,epoll_pwait2", "EINTR", "5+3", (EPOLL,)),
    ("recvfrom,recvmsg", "EINTR", "9+5", (EPOLL,)),
    ("recvfrom,recvmsg", "EAGAIN", "9+5", (EPOLL,)),
    ("recvfrom,recvmsg", "ECONNRESET", "50+40", (EPOLL,)),
    ("sendto,sendmsg", "EINTR", "9+5", (EPOLL,)),
    ("sendto,sendmsg", "EAGAIN", "9+5", (EPOLL,)),
    ("sendto,sendmsg", "ENOBUFS", "50+40", (EPOLL,)),
    ("accept4", "ECONNABORTED", "3+5", BOTH),
    ("accept4", "EMFILE", "9+20", BOTH),
    ("socket", "EMFILE", "30+7", BOTH),
    ("connect", "ECONNREFUSED", "30+7", BOTH),
    ("openat2", "EAGAIN", "1+2", BOTH),
    ("pipe2", "EMFILE", "9+7", BOTH),
    ("pidfd_open", "ENOSYS", "1+2", BOTH),
    ("setsockopt", "ENOBUFS", "50+7", BOTH),
    ("shutdown", "ENOTCONN", "3+4", BOTH),
    ("epoll_ctl", "ENOSPC", "60+9", (EPOLL,)),
    ("epoll_ctl", "ENOMEM", "60+31", (EPOLL,)),
    ("pwrite64,pwritev2", "ENOSPC", "1+3", (EPOLL,)),
    ("fsync,fdatasync", "EIO", "1+2", (EPOLL,)),
    ("recvmmsg,sendmmsg", "ENOSYS", "5+5", BOTH),
)
