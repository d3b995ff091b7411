"""dnspython, hypercorn, urllib3-future and WebTransport as aioquic's and aiopquic's programs have it, on
the package they were written for and on `ringloop.quic`.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with a server's certificate and its CA."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    return folder


ORACLES = {"aiopquic_webtransport": "aiopquic", "urllib3": "qh3"}
PROGRAMS = [
    (program, package)
    for program in ("aiopquic_webtransport", "dnspython", "hypercorn", "urllib3", "webtransport")
    for package in ("oracle", "ringloop")
]


@pytest.mark.parametrize(
    ("program", "package"),
    [*PROGRAMS, ("hypercorn", "ringloop-http3"), ("webtransport", "ringloop-http3")],
)
def test_program_works(program: str, package: str, folder: Path) -> None:
    if package == "oracle":
        package = ORACLES.get(program, "aioquic")
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} does not install on this interpreter")
    module = f"tests.ecosystem.quic.{program}_program"
    done = subprocess.run(
        [sys.executable, "-m", module, package, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
