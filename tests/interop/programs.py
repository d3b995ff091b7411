"""The participants, where they come from, and how they are started.

Owns: installing the peers into the cache folder, command lines, unsupported cases. Called by:
`running`, `__main__`. What is not available is left out with the reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import debian
from tests.interop.installing import CACHE, CHECKOUT, UnavailableError, run

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or CHECKOUT / "target")
# Versions that the matrix was made with; update them here.
PACKAGES = ("aioquic==1.7.2", "qh3==2.1.0", "aiopquic==0.6.1", "hypercorn[h3]==0.18.0")
# In an environment of their own: what is added here leaves the other one as it is.
SESSION_PACKAGES = ("peregrine-server==1.2.0", "pywebtransport==0.21.1")
# It has wheels for these versions alone.
QUINN_PACKAGES = ("web-transport-quinn==0.1.0", "cryptography==50.0.2")
QUINN_PYTHONS = ("3.13", "3.12")
NGTCP2_PACKAGES = ("ngtcp2-client", "ngtcp2-server")


@dataclass(frozen=True)
class Program:
    """One implementation, ready to run."""

    name: str
    command: tuple[str, ...]
    version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    # Speaks only HTTP/3, and is controlled by options: see `ngtcp2`.
    is_ngtcp2: bool = False
    has_h3: bool = True
    # Whether its closes, and its reports of a close, include the reason.
    has_reasons: bool = True
    # Whether its client reports the result of early data; otherwise the seen packets are used.
    tells_early: bool = True
    # (role, case): the reason.
    cannot: Mapping[tuple[str, str], str] = field(default_factory=dict)


# --- ours -----------------------------------------------------------------------------------------


INTEROP = TARGET / "debug" / "examples" / "interop"


def rust() -> Program:
    """The crate's example."""
    if "RINGLOOP_INTEROP_RUST" in os.environ:
        return Program("rust", (os.environ["RINGLOOP_INTEROP_RUST"],))
    command = ["cargo", "build", "--quiet", "--package", "ringloop-quic", "--example", "interop"]
    run(command, cwd=CHECKOUT)
    return Program("rust", (str(INTEROP),))


def make_certificates(folder: Path) -> None:
    """A CA and a server's certificate."""
    run([*rust().command, "certificates", str(folder)])


def native() -> Program:
    """Our own API in Python, on the interpreter's loop."""
    run([sys.executable, "-c", "import ringloop.quic"], cwd=CHECKOUT)
    command = (sys.executable, str(HERE / "programs" / "native_peer.py"))
    return Program("python", command, has_h3=False)


def events() -> Program:
    """Our aioquic-compatible API."""
    run([sys.executable, "-c", "import ringloop.quic.asyncio"], cwd=CHECKOUT)
    command = (sys.executable, str(HERE / "programs" / "events_peer.py"), "ringloop.quic")
    return Program("python-aioquic", command, has_h3=False)


OURS = {"rust": rust, "python": native, "python-aioquic": events}

# --- from PyPI ------------------------------------------------------------------------------------


def python_environment(
    packages: tuple[str, ...] = PACKAGES,
    suffix: str = "",
    versions: tuple[str, ...] = ("3.14", "3.13", "3.12", "3.15"),
) -> Path:
    """An environment with the packages that install here; a failing one does not affect the others."""
    python = newest_python(versions)
    tag = run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    folder = CACHE / f"python-{tag}{suffix}"
    inner = folder / "bin" / "python"
    stamp = folder / "installed.json"
    wanted = json.dumps(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        run([python, "-m", "venv", str(folder)])
        for package in packages:
            try:
                run([str(inner), "-m", "pip", "install", "--quiet", package])
            except UnavailableError as reason:
                (folder / f"{name_of(package)}.reason").write_text(str(reason))
        stamp.write_text(wanted)
    return folder


def name_of(package: str) -> str:
    """A package's name, without its extras and version."""
    return re.split(r"[=\[]", package)[0]


def newest_python(versions: tuple[str, ...]) -> str:
    """The interpreter for the peers, the first that is there: aiopquic needs 3.12 or newer."""
    lines = run([str(CHECKOUT / "tools" / "pythons")]).split("\n")
    known = dict(line.split(" ", 1) for line in lines if line)
    for version in versions:
        if version in known:
            return known[version]
    return sys.executable


def installed(folder: Path, name: str, module: str = "") -> tuple[str, str]:
    """Return the interpreter of an environment that has this package, and the package's version."""
    reason = folder / f"{name}.reason"
    if reason.exists():
        raise UnavailableError(reason.read_text())
    python = str(folder / "bin" / "python")
    imports = f"import importlib.metadata, {module or name}"
    return python, run(
        [python, "-c", f"{imports}; print(importlib.metadata.version({name!r}))"]
    ).strip()


def package(name: str) -> Program:
    """A package of PyPI."""
    python, version = installed(python_environment(), name)
    command = (python, str(HERE / "programs" / "events_peer.py"), name)
    return Program(
        name,
        command,
        version,
        has_reasons=name != "aiopquic",
        tells_early=name != "aiopquic",
        cannot=CANNOT.get(name, {}),
    )


# --- from elsewhere -------------------------------------------------------------------------------


def quic_go() -> Program:
    """A Go module."""
    binary = CACHE / "quic-go-peer"
    CACHE.mkdir(parents=True, exist_ok=True)
    run(["go", "build", "-o", str(binary), "."], cwd=HERE / "quic-go")
    lines = (HERE / "quic-go" / "go.mod").read_text().splitlines()
    version = next(line.split()[-1] for line in lines if "quic-go/quic-go " in line)
    return Program("quic-go", (str(binary),), version, cannot=CANNOT.get("quic-go", {}))


def ngtcp2() -> Program:
    """Debian's packages."""
    found = debian.unpacked("ngtcp2", NGTCP2_PACKAGES)
    client = found.folder / "usr" / "bin" / "gtlsclient"
    run([str(client), "--help"], env=os.environ | found.environment)
    return Program(
        "ngtcp2",
        (str(found.folder / "usr"),),
        "0.12.1",
        found.environment,
        is_ngtcp2=True,
        cannot=CANNOT["ngtcp2"],
    )


PEERS = {
    "aioquic": lambda: package("aioquic"),
    "qh3": lambda: package("qh3"),
    "aiopquic": lambda: package("aiopquic"),
    "quic-go": quic_go,
    "ngtcp2": ngtcp2,
}

# What a peer lacks or does differently, by its role and the case.
CANNOT: dict[str, dict[tuple[str, str], str]] = {
    "aiopquic": {
        (
            "client",
            "v2",
        ): "uses compatible negotiation (RFC 9368), which ours lacks",
    },
    "ngtcp2": {
        ("client", "v2"): "0.12 supports only a draft of version 2",
        ("server", "v2"): "0.12 supports only a draft of version 2",
        ("client", "datagrams"): "its programs do not support them",
        ("server", "datagrams"): "its programs do not support them",
        ("client", "close-codes"): "its program closes only with HTTP/3's code",
    },
}
