"""The programs of examples/quic work as documented; the version report is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic import __main__, versions
from tests.support import PATIENCE_SECONDS, alone_on_this_machine, within

if TYPE_CHECKING:
    from tests.support.tls import Certificates

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "quic"


@pytest.mark.one_thread("it looks at what the process prints")
def test_version_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["versions"]) == 0
    printed = capsys.readouterr().out
    for name, value in versions.report():
        assert name in printed
        assert value in printed
    assert "quinn-proto 0." in printed
    assert __main__.main([]) == 2


def asked(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.one_thread("it has a fixed port")
@pytest.mark.timeout(600)  # the tests of other interpreters may use the port first
@pytest.mark.parametrize(
    ("name", "serve", "ask", "answer"),
    [
        ("echo", "serve", ["send", "CA", "some words"], "some words"),
        ("requests", "serve", ["ask", "CA"], "fastest"),
        ("transfer", "receive", ["send", "CA", __file__], "stored"),
        ("game", "serve", ["play", "CA"], "Stats("),
        ("early", "serve", ["ask", "CA"], "asked early"),
        ("workers", "serve", ["ask", "CA"], "4: resumed"),
    ],
)
def test_examples(
    certificates: Certificates, tmp_path: Path, name: str, serve: str, ask: list[str], answer: str
) -> None:
    program = [sys.executable, str(EXAMPLES / f"{name}.py")]
    certificate, key = map(str, certificates.issue())
    folder = [str(tmp_path)] if name == "transfer" else []
    with (
        alone_on_this_machine("quic-examples"),
        subprocess.Popen([*program, serve, certificate, key, *folder]) as server,
    ):
        try:
            words = [str(certificates.authority) if word == "CA" else word for word in ask]
            done = asked([*program, *words])
            # Not all of them print when they listen.
            while "Connection refused" in done.stderr and server.poll() is None:
                done = asked([*program, *words])
        finally:
            server.kill()
    assert done.returncode == 0, done.stderr
    assert answer in done.stdout
    if folder:
        assert (tmp_path / Path(__file__).name).read_bytes() == Path(__file__).read_bytes()


@pytest.fixture(scope="session")
def uvloop() -> Any:
    """Import the module, after it has opened the signal pipe that it keeps for the process."""
    module = pytest.importorskip("uvloop")
    module.new_event_loop().close()
    return module


@pytest.mark.one_thread("the module's pipe is the process's")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_uvloop_drives_an_endpoint(certificates: Certificates, uvloop: Any) -> None:
    from tests.quic.support import dialled, echo, served

    async def main() -> None:
        async with (
            served(certificates, stream_handler=echo) as server,
            dialled(certificates, server.address) as connection,
        ):
            async with await connection.open_stream() as stream:
                stream.write(bytes(1_000_000))
                stream.finish()
                assert len(await within(stream.read_to_end())) == 1_000_000

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
