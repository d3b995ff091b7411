"""What this machine and process offer ringloop, and what to change: the findings of `doctor`.

Owns: each check. Called by: `python -m ringloop doctor`. Never does: change anything.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import ssl
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import ringloop
from ringloop import _native
from ringloop._system import IS_LINUX, IS_WINDOWS, usable_processors

if not IS_WINDOWS:
    import resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringloop._driver import Driver


@dataclass(frozen=True)
class Finding:
    """One fact, what it means, and what to do about it."""

    group: str
    name: str
    value: str
    # As it should be; something to know or to improve; what keeps a program from working.
    status: Literal["ok", "note", "problem"] = "ok"
    remedy: str = ""


# Below these a server reaches the limit before the machine's capacity.
_DESCRIPTORS_NEEDED = 256
_DESCRIPTORS_WANTED = 4096
_BACKLOG_WANTED = 1024
# What QUIC asks for by SO_RCVBUF.
_UDP_BUFFER_WANTED = 2 << 20

# Optional features of the ring, as the engine names them: the first Linux with it, and what it is for.
RING_FEATURES = {
    "no-sqarray": ("6.6", "submissions need no index array"),
    "no-iowait": ("6.15", "an idle loop does not show as I/O wait"),
    "min-timeout": ("6.12", "a wait collects several completions"),
    "recvsend-bundle": ("6.10", "one receive fills several buffers"),
    "reg-reg-ring": ("6.3", "buffers are registered by the ring's index"),
    "send-zc": ("6.1", "large sends without a copy"),
    "msg-ring": ("5.18", "loops wake each other through the ring"),
    "read-multishot": ("6.7", "one submission reads a pipe until its end"),
    "waitid": ("6.7", "children are waited for on the ring"),
    "futex": ("6.7", "futexes are waited for on the ring"),
    "ftruncate": ("6.9", "the length of a file is set on the ring"),
    "incremental-buffers": ("6.15", "receive buffers are used up in pieces"),
}

_PEERS = (
    *("uvicorn", "fastapi", "starlette", "hypercorn", "granian", "gunicorn", "aiohttp", "django"),
    *("uvloop", "rsloop", "zuvloop", "rloop", "anyio", "httptools", "websockets", "cryptography"),
)


def diagnose(driver: Driver | None = None) -> list[Finding]:
    """Run every check, for loops of `driver` or the driver that the environment names."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        _versions,
        _system,
        _ring,
        _limits,
        _settings,
        lambda: _loop(driver),
    ]
    return [finding for check in checks for finding in check()]


# --- versions -------------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    group = "versions"
    yield Finding(group, "ringloop", ringloop.__version__)
    yield Finding(group, "Python", describe_python())
    engine, reason = _native.tls_engine()
    if engine == "direct":
        yield Finding(group, "OpenSSL", f"{ssl.OPENSSL_VERSION}, driven directly")
    else:
        text = f"{ssl.OPENSSL_VERSION}, through ssl.MemoryBIO: {reason}"
        remedy = (
            "unset RINGLOOP_TLS" if reason == "RINGLOOP_TLS=bio" else "TLS works, but is slower"
        )
        yield Finding(group, "OpenSSL", text, "note", remedy)
    installed = []
    for name in _PEERS:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed.append(f"{name} {importlib.metadata.version(name)}")
    yield Finding(group, "related packages", ", ".join(installed) or "none installed")


def describe_python() -> str:
    """Return the interpreter's version, and whether it is free-threaded."""
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    build = "" if locked() else ", free-threaded"
    return f"{platform.python_implementation()} {platform.python_version()}{build}"


# --- the system -----------------------------------------------------------------------------------


def _system() -> Iterator[Finding]:
    group = "system"
    yield Finding(group, "kernel", _kernel())
    if not IS_WINDOWS:
        libc = " ".join(platform.libc_ver()).strip()
        yield Finding(group, "C library", libc or "unknown (not glibc)")
    usable = usable_processors()
    quota = _cpu_quota()
    text = f"{usable} usable of {os.cpu_count()}"
    yield Finding(group, "CPUs", text if quota is None else f"{text}, quota {quota:.2g}")
    if IS_WINDOWS:
        return
    container = _container()
    yield Finding(group, "container", container or "none detected")
    filtered = _of_status("Seccomp") == "2"
    if filtered:
        yield Finding(group, "seccomp", "a filter is active", "note", "see io_uring below")
    else:
        yield Finding(group, "seccomp", "no filter")


def _kernel() -> str:
    if IS_WINDOWS:
        version = ".".join(map(str, sys.getwindowsversion().platform_version))
        return f"Windows {version} {os.environ.get('PROCESSOR_ARCHITECTURE', '')}"
    system = os.uname()
    return f"{system.sysname} {system.release} {system.machine}"


def _container() -> str | None:
    """Name what this process runs in, by what runtimes leave behind."""
    if Path("/run/.containerenv").exists():
        return "Podman"
    if Path("/.dockerenv").exists():
        return "Docker"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes"
    groups = _read("/proc/1/cgroup") or ""
    for mark, name in (("docker", "Docker"), ("kubepods", "Kubernetes"), ("lxc", "LXC")):
        if mark in groups:
            return name
    return None


def _cpu_quota() -> float | None:
    quota, _, period = (_read("/sys/fs/cgroup/cpu.max") or "").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() else None


def _of_status(name: str) -> str | None:
    for line in (_read("/proc/self/status") or "").splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


# --- io_uring -------------------------------------------------------------------------------------


def _ring() -> Iterator[Finding]:
    if not IS_LINUX:
        return
    group = "io_uring"
    disabled = _read("/proc/sys/kernel/io_uring_disabled")
    if disabled is not None:
        yield Finding(
            group,
            "kernel.io_uring_disabled",
            disabled,
            "ok" if disabled == "0" else "note",
            "" if disabled == "0" else "sysctl kernel.io_uring_disabled=0 allows it",
        )
    try:
        with closing(ringloop.Loop(driver="uring")) as loop:
            _, features = loop._driver_features()
    except OSError as error:
        cause, _, remedy = str(error.strerror).partition("; ")
        yield Finding(group, "ring", cause, "note", remedy or "loops run on epoll")
        return
    yield Finding(group, "ring", "usable")
    present = [name for name, is_there in features if is_there]
    if present:
        yield Finding(group, "features", ", ".join(present))
    for name, is_there in features:
        if not is_there:
            since, purpose = RING_FEATURES[name]
            yield Finding(group, name, f"missing: {purpose}", "note", f"Linux {since} has it")


# --- limits ---------------------------------------------------------------------------------------


def _limits() -> Iterator[Finding]:
    if IS_WINDOWS:
        return
    group = "limits"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    status: Literal["ok", "note", "problem"] = "ok"
    remedy = ""
    if 0 <= soft < _DESCRIPTORS_WANTED:
        status = "note" if soft >= _DESCRIPTORS_NEEDED else "problem"
        most = "" if hard == resource.RLIM_INFINITY else f", at most {hard}"
        remedy = f"each connection takes a descriptor: ulimit -n {_DESCRIPTORS_WANTED}{most}"
    yield Finding(group, "RLIMIT_NOFILE", f"{_limit(soft)} (hard {_limit(hard)})", status, remedy)
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    # From Linux 5.12 on the ring's memory counts for the control group.
    yield Finding(
        group,
        "RLIMIT_MEMLOCK",
        f"{_limit(soft, 'bytes')}; applies to registered buffers, not to the ring",
    )
    memory = _read("/sys/fs/cgroup/memory.max")
    if memory is not None and memory.isdigit():
        yield Finding(group, "control group memory", f"{memory} bytes")
    yield from _sysctl("net.core.somaxconn", _BACKLOG_WANTED, "connections waiting to be accepted")
    for name in ("net.core.rmem_max", "net.core.wmem_max"):
        yield from _sysctl(name, _UDP_BUFFER_WANTED, "bytes of a UDP socket buffer, for QUIC")


def _limit(value: int, unit: str = "") -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value} {unit}".strip()


def _sysctl(name: str, wanted: int, purpose: str) -> Iterator[Finding]:
    value = _read("/proc/sys/" + name.replace(".", "/"))
    if value is None or not value.isdigit():
        return
    if int(value) >= wanted:
        yield Finding("limits", name, value)
    else:
        yield Finding("limits", name, f"{value} ({purpose})", "note", f"sysctl -w {name}={wanted}")


# --- the loop -------------------------------------------------------------------------------------

_VARIABLES = (
    "RINGLOOP_DRIVER",
    "RINGLOOP_FAST_STREAMS",
    "RINGLOOP_INSTALL",
    "RINGLOOP_TLS",
    "RINGLOOP_WRITES",
)


def _settings() -> Iterator[Finding]:
    group = "settings"
    there = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    for name, value in there.items():
        yield Finding(group, name, value)
    if not there:
        yield Finding(group, "environment", f"none of {', '.join(_VARIABLES)} is set")
    asked = there.get("RINGLOOP_INSTALL", "")
    if asked not in {"", "0", "1", "uvloop"}:
        yield Finding(
            group, "RINGLOOP_INSTALL", f"{asked} is not known", "problem", "set it to 1 or uvloop"
        )
    file = next(
        (path for folder in sys.path if (path := Path(folder, "ringloop_install.pth")).is_file()),
        None,
    )
    if file is None and asked not in {"", "0"}:
        yield Finding(
            group,
            "RINGLOOP_INSTALL",
            "has no effect: no ringloop_install.pth in site-packages",
            "problem",
            "install ringloop's wheel, or run programs with python -m ringloop",
        )


def _loop(driver: Driver | None) -> Iterator[Finding]:
    """Make a loop as programs do, and run it."""
    group = "loop"
    try:
        loop = ringloop.new_event_loop(driver=driver)
    except (OSError, ValueError) as error:
        text, _, remedy = str(getattr(error, "strerror", None) or error).partition("; ")
        remedy = remedy or "unset RINGLOOP_DRIVER to use the driver that this machine allows"
        yield Finding(group, "driver", text, "problem", remedy)
        return
    try:
        yield Finding(group, "driver", f"{loop.driver}: {loop.driver_reason}")
        loop.run_until_complete(asyncio.wait_for(_echo(), 10))
    except Exception as error:  # noqa: BLE001 - the user has to know, whatever it is
        text = f"{type(error).__name__}: {error}"
        yield Finding(group, "echo over TCP", text, "problem", "please report it with this output")
    else:
        yield Finding(group, "echo over TCP", "a megabyte came back intact")
    finally:
        loop.close()


async def _echo() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(-1))
        writer.close()
        await writer.wait_closed()

    sent = os.urandom(1 << 20)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        writer.write_eof()
        received = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
    if received != sent:
        raise OSError("the bytes that came back differ from those sent")
