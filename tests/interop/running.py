"""One pair: a server, a client, the relay between them, case by case.

Owns: the processes. Called by: `__main__`. What a case proves is decided by `cases`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.interop.cases import CASES, Case, Outcome
from tests.interop.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.programs import Program

START_SECONDS_MAX = 20
CASE_SECONDS_MAX = 25
# A server reports a closed connection once it notices.
EVENT_SECONDS_MAX = 3
BYTES = 1 << 20
# A client may report the age of a ticket in whole seconds, as rustls does; GnuTLS refuses early
# data if the reported age of the ticket exceeds its own measurement.
GNUTLS_ATTEMPTS = 5
# Results of a case in which ours updates keys by itself, which servers and clients do after a
# random number of packets: qh3 then refuses its own next update, and in version 2 qh3 and quic-go
# derive the new keys with version 1's label (docs/interop.md), so that the client waits in vain.
OURS_WAITS = ("TimeoutError", "nothing happened")
KEY_FAULTS = {
    ("client", "qh3", "key-update"): ("invalid key phase",),
    ("client", "qh3", "v2"): ("TimeoutError",),
    ("client", "quic-go", "v2"): ("deadline exceeded",),
    ("server", "qh3", "v2"): OURS_WAITS,
    ("server", "quic-go", "v2"): OURS_WAITS,
}
KEY_ATTEMPTS = 4


@dataclass(frozen=True)
class Cell:
    """The result of one case."""

    # "pass", "fail" or "cannot"
    outcome: str
    detail: str = ""


@dataclass(frozen=True)
class Files:
    """The files of a run."""

    folder: Path

    def certificate(self, name: str) -> str:
        """The path of ca, cert or key."""
        return str(self.folder / f"{name}.pem")

    @property
    def htdocs(self) -> Path:
        """What ngtcp2's server serves."""
        return self.folder / "htdocs"

    def write(self) -> None:
        """Write the file that is fetched."""
        self.htdocs.mkdir()
        data = bytes((at ^ (at >> 8) ^ (at >> 16)) & 0xFF for at in range(BYTES))
        (self.htdocs / "data").write_bytes(data)


async def pair(server: Program, client: Program, files: Files) -> dict[str, Cell]:
    """Run every case with this server and this client."""
    cells: dict[str, Cell] = {}
    if (server.is_ngtcp2 and not client.has_h3) or (client.is_ngtcp2 and not server.has_h3):
        return {
            case.name: Cell("cannot", "it speaks HTTP/3; of ours, only the crate's example does")
            for case in CASES
        }
    async with contextlib.AsyncExitStack() as stack:
        servers: dict[bool, Server] = {}
        run = make_client(server, client, files)
        await stack.enter_async_context(run)
        for case in CASES:
            reason = client.cannot.get(("client", case.name)) or server.cannot.get(
                ("server", case.name)
            )
            if reason:
                cells[case.name] = Cell("cannot", reason)
                continue
            if case.retry not in servers:
                made = Server(server, files, retry=case.retry)
                servers[case.retry] = await stack.enter_async_context(made)
            try:
                for _ in range(attempts(case, server, client)):
                    async with asyncio.timeout(CASE_SECONDS_MAX):
                        reason = await one(case, servers[case.retry], run)
                    if reason is None or not is_known(reason, case, server, client):
                        break
            except TimeoutError:
                reason = "nothing happened"
            except OSError as error:
                reason = f"{type(error).__name__}: {error}"
            cells[case.name] = Cell("fail", reason) if reason else Cell("pass")
    return cells


def attempts(case: Case, server: Program, client: Program) -> int:
    """Return how often a case is tried if the other program is known to fail sometimes."""
    if may_be_refused(case, server):
        return GNUTLS_ATTEMPTS
    return KEY_ATTEMPTS if faults(case, server, client) else 1


def may_be_refused(case: Case, server: Program) -> bool:
    """Whether a server may refuse early data without a fault of the client."""
    return server.is_ngtcp2 and case.name == "early-data"


def is_known(reason: str, case: Case, server: Program, client: Program) -> bool:
    """Whether a case may have failed by known behaviour of the other program."""
    known = any(words in reason for words in faults(case, server, client))
    return known or may_be_refused(case, server)


def faults(case: Case, server: Program, client: Program) -> tuple[str, ...]:
    """How a case may end because ours has updated keys."""
    of_client = KEY_FAULTS.get(("client", client.name, case.name), ())
    return of_client + KEY_FAULTS.get(("server", server.name, case.name), ())


async def one(case: Case, server: Server, client: Client) -> str | None:
    """Run one case; return why it failed."""
    server.events.clear()
    relay = Relay(server.port, case.rebind_after, holds_answers=case.holds_answers)
    async with relay as port:
        told = await client.run(case, port)
        if not told.get("ok"):
            return str(told.get("reason"))
        ends = (server.program, client.program)
        has_codes = not any(one.is_ngtcp2 for one in ends)
        has_reasons = all(one.has_reasons for one in ends)
        outcome = Outcome(
            told, server.events, relay.seen, has_codes, has_reasons, client.program.tells_early
        )
        reason = case.proof(outcome)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVENT_SECONDS_MAX):
                while reason and case.name == "close-codes":
                    await server.heard.wait()
                    server.heard.clear()
                    reason = case.proof(outcome)
        return reason


# --- the server -----------------------------------------------------------------------------------


class Server:
    """A server that runs until the block ends."""

    def __init__(self, program: Program, files: Files, *, retry: bool) -> None:
        self.program = program
        self.files = files
        self.retry = retry
        self.port = free_port()
        self.events: list[dict[str, Any]] = []
        self.heard = asyncio.Event()
        self.ready = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.process = await start(self.command(), self.program)
        self.reading = asyncio.ensure_future(self.read())
        if self.program.is_ngtcp2:
            # It prints nothing when it is ready; a client's first packets are repeated.
            return self
        try:
            await asyncio.wait_for(self.ready.wait(), START_SECONDS_MAX)
        except TimeoutError:
            await self.__aexit__()
            raise OSError(f"{self.program.name}: the server does not start") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self.process)
        await self.reading

    def command(self) -> list[str]:
        """Its command line."""
        cert, key = self.files.certificate("cert"), self.files.certificate("key")
        if self.program.is_ngtcp2:
            words = [
                f"{self.program.command[0]}/sbin/gtlsserver",
                "--no-quic-dump",
                "--no-http-dump",
            ]
            words += ["-d", str(self.files.htdocs), *(["-V"] if self.retry else [])]
            return [*words, "127.0.0.1", str(self.port), key, cert]
        words = [*self.program.command, "server", f"127.0.0.1:{self.port}", cert, key]
        return words + (["retry"] if self.retry else [])

    async def read(self) -> None:
        """Read its output."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            for event in self.heard_in(line.decode(errors="replace")):
                self.events.append(event)
                self.heard.set()
                if event["event"] == "ready":
                    self.ready.set()
        # Do not wait for a server that died.
        self.ready.set()

    def heard_in(self, line: str) -> Iterator[dict[str, Any]]:
        """An event of ours, or ngtcp2's log line of a closing frame."""
        if line.startswith("{"):
            yield json.loads(line)
        found = re.search(
            r"frm rx .*CLOSE\(0x1d\) error_code=.*\((0x\w+)\) .*reason=\[(.*)\]", line
        )
        if found:
            yield {"event": "closed", "code": int(found[1], 16), "reason": found[2]}


# --- the client -----------------------------------------------------------------------------------


class Client:
    """A client that runs case after case."""

    def __init__(self, program: Program, files: Files, *, is_h3: bool) -> None:
        self.program = program
        self.files = files
        self.is_h3 = is_h3

    async def __aenter__(self) -> Self:
        command = [*self.program.command, "client", self.files.certificate("ca")]
        self.process = await start(command, self.program)
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self.process)

    async def run(self, case: Case, port: int) -> dict[str, Any]:
        """Run one case; return the client's report."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        more = ""
        if self.is_h3:
            file = self.files.folder / f"fetched-{os.urandom(4).hex()}" / "data"
            file.parent.mkdir()
            more = f" h3 {file}"
        self.process.stdin.write(f"{case.name} {port}{more}\n".encode())
        await self.process.stdin.drain()
        while line := await self.process.stdout.readline():
            if line.startswith(b"{"):
                told: dict[str, Any] = json.loads(line)
                return told
        raise OSError("the client has died")


class Ngtcp2Client(Client):
    """ngtcp2's client: one process per connection, controlled by options."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def run(self, case: Case, port: int) -> dict[str, Any]:
        """Fetch once, or twice if the second resumes the first."""
        with tempfile.TemporaryDirectory() as folder:
            options = [f"--session-file={folder}/session"]
            if case.name == "early-data":
                options.append(f"--tp-file={folder}/parameters")
            if case.name == "key-update":
                options += ["--key-update=30ms", "--delay-stream=60ms"]
            told = await self.fetch(folder, port, options)
            if case.name == "key-update" and "key update confirmed" not in told["output"]:
                return {"ok": False, "reason": "no key update was confirmed"}
            if case.name not in ("resumption", "early-data") or not told["ok"]:
                return told
            if not Path(folder, "session").exists():
                return {"ok": False, "reason": "no ticket came"}
            told = await self.fetch(folder, port, options)
            # The handshake of a resumed session has no certificate to verify.
            told["resumed"] = "-----BEGIN" not in told["output"]
            told["early"] = "Early data was rejected" not in told["output"]
            return told

    async def fetch(self, folder: str, port: int, options: list[str]) -> dict[str, Any]:
        """Fetch the file and compare it."""
        command = [
            f"{self.program.command[0]}/bin/gtlsclient",
            *("--exit-on-all-streams-close", "--no-quic-dump", "--no-http-dump", "--timeout=10s"),
            *(f"--download={folder}", *options),
            *("127.0.0.1", str(port), f"https://localhost:{port}/data"),
        ]
        process = await start(command, self.program)
        try:
            out, _ = await process.communicate()
        finally:
            await end(process)
        output = out.decode(errors="replace")
        fetched = Path(folder, "data")
        same = (
            fetched.exists() and fetched.read_bytes() == (self.files.htdocs / "data").read_bytes()
        )
        reason = "" if same else "other bytes came"
        return {"ok": process.returncode == 0 and same, "reason": reason, "output": output}


def make_client(server: Program, client: Program, files: Files) -> Client:
    """The client's side of a pair."""
    if client.is_ngtcp2:
        return Ngtcp2Client(client, files, is_h3=True)
    return Client(client, files, is_h3=server.is_ngtcp2)


# --- processes ------------------------------------------------------------------------------------


async def start(command: list[str], program: Program) -> asyncio.subprocess.Process:
    """Start a process with its outputs combined."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | dict(program.environment),
        start_new_session=True,
        limit=1 << 20,
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill it, with the processes it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def free_port() -> int:
    """Find a free UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
