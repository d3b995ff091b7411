"""aiopquic's own tests of asyncio, flow control and WebTransport, on `ringloop.quic.compat.aiopquic`.

They are in the sources of its release 0.6.1, in a folder named by `AIOPQUIC_SOURCES`. Its tests of its
rings and of its C library do not apply here; `LEFT_OUT` are those in the same files that do not.
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
SUITES = (
    "test_asyncio.py",
    "test_close_3c.py",
    "test_flow_control_quic.py",
    "test_flow_control_wt.py",
    "test_max_connections.py",
    "test_negotiation.py",
    "test_peer_address.py",
    "test_tls_verify.py",
    "test_webtransport.py",
    "test_wt_error_codes.py",
)
# Why each does not apply, by a word that its name alone has (docs/quic-migration.md).
LEFT_OUT = {
    "stop_after_vanished_peer": "looks into the rings between threads",
    "stop_sending_on_own_uni": "counts in the C library (our own tests have it)",
    "reset_stream_by_direction": "counts in the C library (our own tests have it)",
    "stream_destroy_releases": "takes an event of the ring by hand",
    "stream_tx_ctxs": "looks for pointers of the C library",
    "sender_side_sc": "counts in the C library",
    "priority_reaches_picoquic": "counts in the C library",
    "registry_does_not_leak": "looks into the dispatcher of the rings",
    "close_credits_unsent": "counts in the C library",
    "poisoned_frees": "is for memory of the C library",
    "vanished_peer_does_not_stall": "counts in the C library, with a transport to share",
    "resets_and_stops_by_direction": "reads picoquic's qlog",
    "control_stream_freed": "counts in the C library",
    "reset_releases_queued": "its server says nothing when it closes, and it counts in the C library",
    "both_codepoints": "reads picoquic's log",
    "codes_mapped_on_the_wire": "reads picoquic's qlog (our own tests have the codes)",
    "exit_fins_connect": "reads picoquic's qlog",
    "answers_a_server_close": "reads picoquic's qlog",
    "sessions_leave_the_dispatcher": "looks into the dispatcher of the rings",
    "full_tx_ring": "stands in for the C library's session",
    "raw_opt_out_connects": "reads a member of the QuicConnection (our own tests have it)",
    "raw_trusted_root_connects": "reads a member of the QuicConnection (our own tests have it)",
    "empty_root_file": "wants ssl.SSLError, where it is a ConfigurationError",
    "dispatch_wt": "serve_dispatch is not there",
    "protocol_offer_formats": "replaces a function of the module that writes the offer",
    "raw_quic_peer_address": "peer_address of a QuicConnection is not there",
    "not_connected_is_none": "peer_address of a QuicConnection is not there",
    "format_sockaddr": "is for the C library",
}
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
    authority = trustme.CA()
    authority.cert_pem.write_to_path(certificates / "test-ca.crt")
    certificate = authority.issue_cert("test.example.com")
    certificate.private_key_pem.write_to_path(certificates / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(certificates / "cert.pem")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "conftest.py").write_text(CONFTEST)
    (theirs / "__init__.py").touch()
    for name in (*SUITES, "_ports.py"):
        shutil.copy(Path(SOURCES) / "tests" / name, theirs / name)
    left_out = " or ".join(LEFT_OUT)
    arguments = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--timeout=100"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "-k", f"not ({left_out})", str(theirs)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'python'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
