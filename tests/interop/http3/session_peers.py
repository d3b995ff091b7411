"""The participants of WebTransport: where they come from, and what each lacks.

Owns: command lines and unsupported cases. Called by: `table`. A peer is a program of
programs/session_contract.py, started as contract.py says.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from tests.interop import programs
from tests.interop.http3 import peers
from tests.interop.http3.peers import PROGRAMS
from tests.interop.http3.processes import Peer, Program
from tests.interop.installing import CACHE, CHECKOUT, run

if TYPE_CHECKING:
    from collections.abc import Callable


def ours() -> Peer:
    """`ringloop.webtransport`, on the interpreter's own loop."""
    run([sys.executable, "-c", "import ringloop.webtransport"], cwd=CHECKOUT)
    command = (sys.executable, str(PROGRAMS / "ringloop_sessions.py"))
    return Program("ringloop.webtransport", command)


def peregrine() -> Peer:
    """The server that the requests are served by, too."""
    return dataclasses.replace(peers.peregrine(), cannot=CANNOT["peregrine-server"])


def pywebtransport() -> Peer:
    """pywebtransport, from PyPI."""
    folder = programs.python_environment(programs.SESSION_PACKAGES, "-sessions")
    return program("pywebtransport", *programs.installed(folder, "pywebtransport"))


def aiopquic() -> Peer:
    """aiopquic, from PyPI, as a client: its server takes sessions at one path."""
    package = programs.package("aiopquic")
    peer = program("aiopquic", package.command[0], package.version)
    return dataclasses.replace(peer, roles=("client",))


def web_transport_quinn() -> Peer:
    """web-transport-quinn, by its binding from PyPI."""
    folder = programs.python_environment(programs.QUINN_PACKAGES, "-quinn", programs.QUINN_PYTHONS)
    name = "web-transport-quinn"
    python, version = programs.installed(folder, name, "web_transport")
    # What a wheel is made of.
    made = next(folder.glob("lib/*/site-packages/web_transport_quinn-*/sboms/*.json")).read_text()
    crates = {one["name"]: one["version"] for one in json.loads(made)["components"]}
    return program(name, python, f"{crates[name]} (binding {version})")


def wtransport() -> Peer:
    """A crate, built apart from the workspace."""
    return peers.crate("wtransport", CANNOT["wtransport"])


def webtransport_go() -> Peer:
    """A Go module."""
    binary = CACHE / "webtransport-go-peer"
    version = peers.built_go("webtransport", binary, "quic-go/webtransport-go")
    return Program("webtransport-go", (str(binary),), version)


def program(name: str, python: str, version: str) -> Peer:
    """A program in Python."""
    command = (python, str(PROGRAMS / f"{name.replace('-', '_')}_sessions.py"))
    return Program(name, command, version, cannot=CANNOT.get(name, {}))


PEERS: dict[str, Callable[[], Peer]] = {
    "peregrine-server": peregrine,
    "pywebtransport": pywebtransport,
    "aiopquic": aiopquic,
    "web-transport-quinn": web_transport_quinn,
    "webtransport-go": webtransport_go,
    "wtransport": wtransport,
}

_CLOSES_CONNECTION = "it closes the connection with the unmapped code instead of the session"

# What a peer lacks, by its role and the case.
CANNOT: dict[str, dict[tuple[str, str], str]] = {
    "peregrine-server": {
        **{
            ("server", case): "its application can neither send nor see stream codes"
            for case in ("reset", "server-reset", "stop", "server-stop")
        },
        (
            "server",
            "close",
        ): "it does not read the code and reason, and reports 0 to its application",
        ("server", "server-close"): "it ends the session's stream without its code and reason",
    },
    "pywebtransport": {
        ("client", "stop"): "0.21 sometimes sends no STOP_SENDING while the stream's data arrives",
    },
    "aiopquic": {
        (
            "client",
            "server-close",
        ): "it does not report it to its application, nor with web-transport-quinn's server",
    },
    "wtransport": {
        ("server", "protocol"): "it has none",
        ("client", "protocol"): "it has none",
        ("server", "server-close"): _CLOSES_CONNECTION,
        ("client", "close"): _CLOSES_CONNECTION,
    },
    "web-transport-quinn": {
        ("server", "reject"): "0.11 closes the connection before its response is sent",
        ("server", "protocol"): "its binding has none",
        ("client", "protocol"): "its binding has none",
    },
}
