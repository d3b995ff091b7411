"""aiopquic's own tests of asyncio and of flow control, on `ringloop.quic.compat.aiopquic`.

They are in a checkout of the project, named by `AIOPQUIC_SOURCES`. Its tests of WebTransport, of its
rings and of its C library do not apply here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

ROOT = Path(__file__).resolve().parents[3]
SOURCES = os.environ.get("AIOPQUIC_SOURCES")
SUITES = ("test_asyncio.py", "test_flow_control_quic.py")
CONFTEST = """
from tests.ecosystem.quic.shim import stand_in_for_aiopquic

stand_in_for_aiopquic()
"""


@pytest.mark.skipif(not SOURCES, reason="AIOPQUIC_SOURCES names no checkout of aiopquic")
def test_aiopquics_own_suite(tmp_path: Path) -> None:
    assert SOURCES is not None
    # Where they look for the contents of their submodule.
    certificates = tmp_path / "third_party" / "picoquic" / "certs"
    certificates.mkdir(parents=True)
    certificate = trustme.CA().issue_cert("test.example.com")
    certificate.private_key_pem.write_to_path(certificates / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(certificates / "cert.pem")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "conftest.py").write_text(CONFTEST)
    for name in SUITES:
        shutil.copy(Path(SOURCES) / "tests" / name, theirs / name)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(theirs)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'python'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
