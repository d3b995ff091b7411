"""A certificate for a run of a TLS workload.

Owns: the files, made by the `openssl` command and deleted after the run. Called by: `serving`, and the
servers for their context. Trusted only by the load generator of its run.
"""

import contextlib
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDER_VARIABLE = "RINGLOOP_BENCH_CERTIFICATE"
KEY = ("-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """Make a CA and a certificate for `localhost`; return the CA's file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority, authority_key = folder / "authority.pem", folder / "authority.key"
        request, extensions = folder / "server.csr", folder / "server.ext"
        extensions.write_text("subjectAltName=DNS:localhost\n")
        openssl(
            *("req", "-x509", "-days", "2", "-subj", "/CN=authority", *KEY),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", authority_key, "-out", authority),
        )
        openssl(
            *("req", "-new", "-subj", "/CN=localhost", *KEY),
            *("-keyout", folder / "server.key", "-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-CAcreateserial"),
            *("-CA", authority, "-CAkey", authority_key),
            *("-extfile", extensions, "-out", folder / "server.pem"),
        )
        os.environ[FOLDER_VARIABLE] = name
        yield authority


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def server_context() -> ssl.SSLContext:
    """Make the server's context from what `made` left in the environment."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context
