"""The participants: where they come from, how they serve, and how they run a case as clients.

Owns: command lines and unsupported cases. Called by: `__main__`. What is not available is left out
with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import debian, programs
from tests.interop.http3.commands import Curl, Ngtcp2
from tests.interop.http3.processes import Peer, Program, Started, free_port, started
from tests.interop.installing import CACHE, CHECKOUT, UnavailableError, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from tests.interop.http3.processes import Files

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
# A build of a peer from its sources.
BUILD_SECONDS_MAX = 900


def ours() -> Peer:
    """`ringloop.h3`, on the interpreter's own loop."""
    run([sys.executable, "-c", "import ringloop.h3"], cwd=CHECKOUT)
    return Program("ringloop.h3", (sys.executable, str(PROGRAMS / "ringloop_peer.py")))


def aioquic() -> Peer:
    """aioquic, from PyPI."""
    package = programs.package("aioquic")
    python = package.command[0]
    command = (python, str(PROGRAMS / "aioquic_peer.py"))
    return Program("aioquic", command, package.version, cannot=CANNOT["aioquic"])


def quic_go() -> Peer:
    """A Go module."""
    binary = CACHE / "quic-go-http3-peer"
    version = built_go("http3", binary, "quic-go/quic-go")
    return Program("quic-go", (str(binary),), version, cannot=CANNOT.get("quic-go", {}))


def built_go(program: str, binary: Path, module: str) -> str:
    """Build a program of the Go module beside; return the version of what it is a program of."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = HERE.parent / "quic-go"
    run(["go", "build", "-o", str(binary), f"./{program}"], cwd=folder)
    lines = (folder / "go.mod").read_text().splitlines()
    return next(line.split()[-1] for line in lines if f"{module} " in line)


def h3_quinn() -> Peer:
    """h3 on quinn."""
    return crate("h3-quinn", CANNOT["h3-quinn"])


def quiche() -> Peer:
    """quiche with its BoringSSL."""
    return crate("quiche", CANNOT.get("quiche", {}), boringssl_needs())


def crate(
    name: str, cannot: Mapping[tuple[str, str], str], needs: Mapping[str, str] | None = None
) -> Peer:
    """A crate, built apart from the workspace: minutes, the first time."""
    folder, target = HERE.parent / name, CACHE / name
    command = ["cargo", "build", "--quiet", "--locked", "--target-dir", str(target)]
    run(command, cwd=folder, seconds=BUILD_SECONDS_MAX, env={**os.environ, **(needs or {})})
    lock = (folder / "Cargo.lock").read_text()
    version = lock.split(f'name = "{name}"\nversion = "')[1].split('"')[0]
    binary = target / "debug" / f"{name}-peer"
    return Program(name, (str(binary),), version, cannot=cannot)


def boringssl_needs() -> dict[str, str]:
    """The environment of a build of BoringSSL: cmake and libclang, Debian's if need be."""
    needs: dict[str, str] = {}
    if shutil.which("cmake") is None:
        found = debian.unpacked("cmake", ("cmake",))
        path = f"{found.folder / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        needs |= {"PATH": path, **found.environment}
    if "LIBCLANG_PATH" not in os.environ:
        folder = debian.unpacked("libclang", ("libclang1",)).folder
        library = next(folder.glob("usr/lib/llvm-*/lib/libclang*.so*"))
        # It comes without the headers of its compiler; those of the machine's do.
        headers = run(["cc", "-print-file-name=include"]).strip()
        needs["LIBCLANG_PATH"] = str(library.parent)
        needs["BINDGEN_EXTRA_CLANG_ARGS"] = f"-isystem {headers}"
    return needs


def curl() -> Peer:
    """Debian's curl, as a client."""
    folder = debian.unpacked("curl", ("curl",), debian.RELEASE)
    command = folder.command("usr/bin/curl")
    told = run([*command, "--version"])
    if "HTTP3" not in told:
        raise UnavailableError("Debian's curl has no HTTP/3")
    return Curl("curl", command, told.split()[1], roles=("client",), cannot=CANNOT["curl"])


def ngtcp2() -> Peer:
    """The programs of Debian's ngtcp2 and nghttp3."""
    folder = debian.unpacked("ngtcp2-http3", NGTCP2_PACKAGES, debian.RELEASE)
    client = folder.command("usr/bin/gtlsclient")
    run([*client, "--help"])
    version = folder.version("ngtcp2-client")
    server = folder.command("usr/sbin/gtlsserver")
    return Ngtcp2("ngtcp2", client, version, cannot=CANNOT["ngtcp2"], server_command=server)


NGTCP2_PACKAGES = ("ngtcp2-client", "ngtcp2-server")


class Nginx(Peer):
    """nginx as a server, in front of an application on HTTP/1.1."""

    @contextlib.asynccontextmanager
    async def serving(self, files: Files, port: int) -> AsyncIterator[Started]:
        """Serve with a folder of its own."""
        folder = files.folder / f"nginx-{port}"
        folder.mkdir()
        inner = free_port()
        text = (HERE / "nginx.conf").read_text()
        for name, value in (
            ("FOLDER", str(folder)),
            ("PORT", str(port)),
            ("INNER", str(inner)),
            ("CERTIFICATE", files.certificate),
            ("KEY", files.key),
        ):
            text = text.replace(f"@{name}@", value)
        (folder / "nginx.conf").write_text(text)
        environment = {"PID": str(folder / "nginx.pid"), "SIGNAL": "SIGQUIT"}
        application = [
            sys.executable,
            "-m",
            "uvicorn",
            "application:site",
            "--app-dir",
            str(PROGRAMS),
        ]
        application += ["--port", str(inner), "--log-level", "critical", "--lifespan", "off"]
        command = [*self.command, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
        async with (
            started(application, environment, folder, is_tcp=True, port=inner),
            started(command, {}, folder, port=port) as process,
        ):
            yield process


def nginx() -> Peer:
    """Debian's nginx, as a server."""
    folder = debian.unpacked("nginx", ("nginx-light",), debian.RELEASE)
    command = folder.command("usr/sbin/nginx")
    version = folder.version("nginx")
    return Nginx("nginx", command, version, roles=("server",), cannot=CANNOT["nginx"])


class Hypercorn(Peer):
    """hypercorn as a server of an application."""

    @contextlib.asynccontextmanager
    async def serving(self, files: Files, port: int) -> AsyncIterator[Started]:
        """Serve on UDP; it wants an address of TCP, too."""
        command = [*self.command, "--bind", f"127.0.0.1:{free_port()}"]
        command += ["--quic-bind", f"127.0.0.1:{port}", "--log-level", "CRITICAL"]
        command += ["--certfile", files.certificate, "--keyfile", files.key]
        command += ["--graceful-timeout", "5", "application:site"]
        environment = {"PID": "0", "SIGNAL": "SIGTERM", "PYTHONPATH": str(PROGRAMS)}
        async with started(command, environment, files.folder, port=port) as process:
            yield process


def hypercorn() -> Peer:
    """hypercorn, from PyPI, as a server."""
    package = programs.package("hypercorn")
    command = (package.command[0], "-m", "hypercorn")
    return Hypercorn(
        "hypercorn", command, package.version, roles=("server",), cannot=CANNOT["hypercorn"]
    )


class Peregrine(Peer):
    """peregrine-server as a server of an application, with requests and sessions."""

    @contextlib.asynccontextmanager
    async def serving(self, files: Files, port: int) -> AsyncIterator[Started]:
        """Serve on UDP, and TCP too."""
        command = [*self.command, "--host", "127.0.0.1", "--port", str(port), "--http3"]
        command += ["--tls-cert", files.certificate, "--tls-key", files.key]
        command += ["--log-level", "error", "--python-path", str(PROGRAMS), "--no-lifespan"]
        command += ["application:site"]
        environment = {"PID": "0", "SIGNAL": "SIGTERM"}
        async with started(command, environment, files.folder, port=port) as process:
            yield process


def peregrine() -> Peer:
    """peregrine-server, from PyPI, as a server."""
    folder = programs.python_environment(programs.SESSION_PACKAGES, "-sessions")
    python, version = programs.installed(folder, "peregrine-server", "peregrine")
    command = (python, "-m", "peregrine")
    return Peregrine(
        "peregrine-server",
        command,
        version,
        roles=("server",),
        cannot=CANNOT["peregrine-server"],
    )


PEERS: dict[str, Callable[[], Peer]] = {
    "aioquic": aioquic,
    "quic-go": quic_go,
    "h3-quinn": h3_quinn,
    "quiche": quiche,
    "ngtcp2": ngtcp2,
    "curl": curl,
    "nginx": nginx,
    "hypercorn": hypercorn,
    "peregrine-server": peregrine,
}

_NO_INTERIM = "it has no interim responses"
_NO_GOAWAY = "it sends no GOAWAY"

# What a peer lacks, by its role and the case.
CANNOT: dict[str, dict[tuple[str, str], str]] = {
    "aioquic": {
        ("client", "head"): "it treats a response to HEAD with a length but no body as malformed",
        ("client", "interim"): _NO_INTERIM,
        ("server", "interim"): _NO_INTERIM,
        ("server", "goaway"): _NO_GOAWAY,
    },
    "h3-quinn": {
        ("client", "interim"): _NO_INTERIM,
        ("server", "interim"): _NO_INTERIM,
    },
    "curl": {
        ("client", "request-trailers"): "its program sends none",
        ("client", "trailers"): "its program shows none for HTTP/3",
    },
    "ngtcp2": {
        ("client", "headers"): "its program cannot send custom fields",
        ("client", "request-trailers"): "its program sends none",
        ("client", "priority"): "its program cannot send custom fields",
        ("client", "client-reset"): "its program does not cancel",
        **{
            ("server", case): "its program serves only files"
            for case in (
                *("post", "headers", "trailers", "request-trailers", "interim", "priority"),
                *("client-reset", "server-reset", "goaway"),
            )
        },
    },
    "nginx": {
        ("server", "trailers"): "1.26 forwards none from an upstream",
        ("server", "request-trailers"): "1.26 forwards none to an upstream",
        ("server", "interim"): "1.26 forwards none from an upstream",
    },
    "hypercorn": {
        ("server", "request-trailers"): "it does not report it to its application",
        ("server", "trailers"): "it does not end a response with trailers",
        ("server", "client-reset"): "it does not report it to its application",
        (
            "server",
            "server-reset",
        ): "it neither ends nor resets the response of a failed application",
        ("server", "goaway"): _NO_GOAWAY,
    },
    "peregrine-server": {
        ("server", "trailers"): "it sends none",
        ("server", "request-trailers"): "it does not report it to its application",
        ("server", "client-reset"): "it does not report it to its application",
        (
            "server",
            "server-reset",
        ): "it neither ends nor resets the response of a failed application",
        ("server", "goaway"): _NO_GOAWAY,
    },
}
