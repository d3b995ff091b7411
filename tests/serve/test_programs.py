"""`python -m ringloop serve` as a process: arguments, signals, workers; on every loop."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3
from tests import support
from tests.serve.support import fetched
from tests.support import wait_until, wait_until_blocking, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

ROOT = Path(__file__).parents[2]


class Program:
    """A server in a process of its own."""

    def __init__(self, loop_name: str, arguments: tuple[str, ...], log: Path) -> None:
        if loop_name == support.ORACLE:
            loop = ("--loop", "asyncio")
        else:
            loop = ("--driver", loop_name.removeprefix("ringloop-"))
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ringloop", "serve", *loop, *arguments],
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )

    def text(self) -> str:
        return self.log.read_text()

    def until(self, pattern: str, count: int = 1) -> list[str]:
        """Wait until the log has a pattern so often."""
        wait_until_blocking(
            lambda: (
                len(re.findall(pattern, self.text())) >= count or self.process.poll() is not None
            ),
            pattern,
        )
        found: list[str] = re.findall(pattern, self.text())
        assert len(found) >= count, self.text()
        return found

    @property
    def quic_port(self) -> int:
        return int(self.until(r"HTTP/3 at \S+:(\d+)")[0])

    def ends(self) -> int:
        return self.process.wait(support.PATIENCE_SECONDS)


@contextmanager
def program(certificates: Certificates, loop_name: str, *arguments: str) -> Iterator[Program]:
    certificate, key = certificates.issue()
    files = ("--cert", str(certificate), "--key", str(key))
    addresses = ("--bind", "127.0.0.1:0", "--quic-bind", "127.0.0.1:0")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        started = Program(loop_name, (*files, *addresses, *arguments), log)
        try:
            yield started
        finally:
            if started.process.poll() is None:
                started.process.kill()
                started.process.wait()


async def asked(certificates: Certificates, port: int, path: str = "/") -> bytes:
    opening = h3.open_client(
        "127.0.0.1", port, ca_file=certificates.authority, server_name="localhost"
    )
    async with await within(opening) as client:
        return (await fetched(client, "GET", path))[1]


APP = "tests.serve.programs:application"


def test_signals_end_and_reload(run: Run, certificates: Certificates, loop_name: str) -> None:
    with program(certificates, loop_name, APP) as server:
        assert run(asked(certificates, server.quic_port)).startswith(b"3 ")
        server.process.send_signal(signal.SIGHUP)
        server.until("certificates were replaced")
        server.process.send_signal(signal.SIGTERM)
        assert server.ends() == 0
        assert "HTTP/3" in server.text()


def test_dev_makes_a_certificate_that_identifies_itself(
    run: Run, loop_name: str, tmp_path: Path
) -> None:
    arguments = ("--dev", "--bind", "127.0.0.1:0", "--quic-bind", "127.0.0.1:0", APP)
    server = Program(loop_name, arguments, tmp_path / "log")
    try:
        port = server.quic_port

        async def main() -> bytes:
            opening = h3.open_client("127.0.0.1", port, server_name="localhost", verify=False)
            async with await within(opening) as client:
                assert (await fetched(client, "GET", "/"))[0] == 200
                return client.connection.peer_certificates()[0]

        der = run(main())
        numbers = re.findall(r"Uint8Array\(\[([\d,]+)\]\)", server.text())[0]
        assert bytes(map(int, numbers.split(","))) == hashlib.sha256(der).digest()
        key = subprocess.run(
            ["openssl", "x509", "-inform", "DER", "-pubkey", "-noout"],
            input=der,
            capture_output=True,
            check=True,
        ).stdout.decode()
        spki = base64.b64decode("".join(key.splitlines()[1:-1]))
        pin = base64.b64encode(hashlib.sha256(spki).digest()).decode()
        assert f"--ignore-certificate-errors-spki-list={pin} " in server.text()
        assert f"--origin-to-force-quic-on=localhost:{port} " in server.text()
        server.process.send_signal(signal.SIGTERM)
        assert server.ends() == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def test_fastapi_application_runs_unchanged(
    run: Run, certificates: Certificates, loop_name: str
) -> None:
    with program(certificates, loop_name, "examples.service:app") as server:
        about = json.loads(run(asked(certificates, server.quic_port)))
        assert about["loop"]
        server.process.send_signal(signal.SIGTERM)
        assert server.ends() == 0


@pytest.mark.parametrize("workers", [(), ("2", "process"), ("2", "thread")])
def test_second_signal_ends_at_once(
    run: Run, certificates: Certificates, loop_name: str, workers: tuple[str, ...]
) -> None:
    arguments = ("--workers", workers[0], "--workers-as", workers[1]) if workers else ()
    with program(certificates, loop_name, APP, *arguments) as server:

        async def main() -> None:
            opening = h3.open_client(
                "127.0.0.1",
                server.quic_port,
                ca_file=certificates.authority,
                server_name="localhost",
            )
            async with await within(opening) as client:
                asking = asyncio.ensure_future(client.request("GET", "/endless"))
                await wait_until(lambda: "endless request" in server.text())
                server.process.send_signal(signal.SIGINT)
                await wait_until(lambda: client.is_going_away)
                server.process.send_signal(signal.SIGINT)
                with pytest.raises(ConnectionError):
                    await within(asking)

        run(main())
        assert server.ends() == 1


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_workers_share_the_addresses(
    run: Run, certificates: Certificates, loop_name: str, kind: str
) -> None:
    arguments = ("--workers", "2", "--workers-as", kind)
    with program(certificates, loop_name, APP, *arguments) as server:
        server.until("HTTP/3 at", 2)
        port = server.quic_port

        async def main() -> None:
            seen: set[bytes] = set()
            for _ in range(100):
                seen.add(await asked(certificates, port))
                if len(seen) == 2:
                    return
            pytest.fail(f"one worker had all connections: {seen}")

        run(main())
        server.process.send_signal(signal.SIGHUP)
        server.until("certificates were replaced", 2)
        server.process.send_signal(signal.SIGTERM)
        assert server.ends() == 0


def test_worker_that_crashes_is_started_again(
    run: Run, certificates: Certificates, loop_name: str
) -> None:
    arguments = ("--workers", "2", "--workers-as", "process")
    with program(certificates, loop_name, APP, *arguments) as server:
        server.until("HTTP/3 at", 2)
        victim = int(server.until(r"\(process (\d+)\)")[0])
        os.kill(victim, signal.SIGKILL)
        server.until("restarting in")
        server.until("HTTP/3 at", 3)
        for _ in range(10):
            assert run(asked(certificates, server.quic_port)).startswith(b"3 ")
        server.process.send_signal(signal.SIGTERM)
        assert server.ends() == 0


def test_signal_to_all_processes_lets_requests_end(
    run: Run, certificates: Certificates, loop_name: str
) -> None:
    """A service manager signals each process, and the first one passes its own on, too."""
    arguments = ("--workers", "2", "--workers-as", "process")
    with program(certificates, loop_name, APP, *arguments) as server:
        workers = [int(pid) for pid in server.until(r"\(process (\d+)\)", 2)]
        server.until("HTTP/3 at", 2)

        async def main() -> None:
            asking = asyncio.ensure_future(asked(certificates, server.quic_port, "/slow"))
            await wait_until(lambda: "slow request" in server.text())
            for process in (*workers, server.process.pid, *workers):
                os.kill(process, signal.SIGTERM)
            assert (await within(asking)).startswith(b"3 ")

        run(main())
        assert server.ends() == 0


def test_workers_end_with_the_first_process(certificates: Certificates, loop_name: str) -> None:
    arguments = ("--workers", "2", "--workers-as", "process")
    with program(certificates, loop_name, APP, *arguments) as server:
        workers = [int(pid) for pid in server.until(r"\(process (\d+)\)", 2)]
        server.until("HTTP/3 at", 2)
        server.process.kill()
        server.process.wait()
        left = [Path(f"/proc/{pid}/exe") for pid in workers]
        wait_until_blocking(lambda: not any(path.exists() for path in left))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_application_that_is_not_there_is_status_3(
    certificates: Certificates, workers: str
) -> None:
    arguments = ("--workers", workers, "tests.serve.programs:none")
    with program(certificates, support.ORACLE, *arguments) as server:
        assert server.ends() == 3
        assert 'Attribute "none" not found' in server.text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "MODULE:ATTRIBUTE"),
        (["app:app"], "--cert FILE and --key FILE"),
        (["app:app", "--dev", "--cert", "c"], "--dev makes the certificate"),
        (["app:app", "--bind", "::1:443"], "brackets"),
        (["app:app", "--cert", "c", "--key", "k", "--workers", "0"], "workers is 0: 1 to 256"),
        (["app:app", "--cert", "c", "--key", "k", "--no-tcp"], "quic_bind"),
    ],
)
def test_command_lines_that_cannot_be(arguments: list[str], text: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ringloop", "serve", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 2
    assert text in ended.stderr


def test_certificate_that_is_not_there_is_status_1() -> None:
    files = ("--cert", "/none", "--key", "/none")
    ended = subprocess.run(
        [sys.executable, "-m", "ringloop", "serve", "app:app", "--bind", "127.0.0.1:0", *files],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 1
    assert "/none" in ended.stderr


@pytest.mark.parametrize("package", ["uvicorn", "websockets"])
def test_missing_package_is_named_with_its_remedy(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import ringloop.serve"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert ended.returncode == 1
    assert f"ringloop.serve needs {package}" in ended.stderr
    assert "pip install 'ringloop[serve]'" in ended.stderr
