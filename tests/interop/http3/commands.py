"""Clients that are controlled by options: curl and ngtcp2's. Called by: `peers`."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.http3.processes import PARALLEL, SMALL, Peer, Started, finished, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.interop.http3.processes import Files

LARGE = "x" * 12_000
PRIORITY = "u=1, i"


class WrongError(Exception):
    """What came is not what the contract says."""


def need(found: object, what: str) -> None:
    """Fail a case."""
    if not found:
        raise WrongError(what)


class Curl(Peer):
    """curl."""

    async def run(self, case: str, port: int, files: Files) -> str:
        """Run a case; return why it failed, or nothing."""
        with tempfile.TemporaryDirectory(dir=files.folder) as folder:
            try:
                await CurlRun(self, port, files, Path(folder)).case(case)
            except (WrongError, TimeoutError) as reason:
                return f"{type(reason).__name__}: {reason}"
        return ""


@dataclass
class CurlRun:
    """One case."""

    peer: Peer
    port: int
    files: Files
    folder: Path

    async def get(self, path: str, *options: str) -> tuple[bytes, str]:
        """Fetch; return the body and the fields of all responses and trailers."""
        await self.curl(*options, "--output", "body", "--dump-header", "fields", self.url(path))
        return (self.folder / "body").read_bytes(), (self.folder / "fields").read_text()

    def url(self, path: str) -> str:
        return f"https://localhost:{self.port}{path}"

    def common(self) -> list[str]:
        """The options of each transfer."""
        resolved = f"localhost:{self.port}:127.0.0.1"
        return [
            *("--http3-only", "--silent", "--show-error", "--max-time", "20"),
            *("--cacert", self.files.authority, "--resolve", resolved),
            *("--write-out", r"%{exitcode} %{http_version} %{num_connects}\n"),
        ]

    async def curl(self, *words: str) -> list[str]:
        """Run curl; return what it says of each transfer."""
        code, output = await finished([*self.peer.command, *self.common(), *words], self.folder)
        need(code == 0, f"curl has ended with {code}: {output[-200:]}")
        lines = [line for line in output.splitlines() if line.count(" ") == 2]
        need(all(line.startswith("0 3 ") for line in lines), f"not HTTP/3: {output[-200:]}")
        return lines

    async def case(self, case: str) -> None:
        """Run the case of that name."""
        match case:
            case "get":
                body, _ = await self.get("/small")
                need(body == SMALL, "other bytes came")
            case "head":
                body, fields = await self.get("/small", "--head")
                need(f"content-length: {len(SMALL)}" in fields, f"no length came: {fields}")
            case "post":
                body, _ = await self.get("/echo", "--data-binary", f"@{self.files.data}")
                need(body == self.files.data.read_bytes(), "other bytes came")
            case "parallel":
                await self.parallel()
            case "headers":
                _, fields = await self.get("/headers", "--header", f"x-large: {LARGE}")
                need(f"x-large: {LARGE}" in fields, "the field did not come back")
            case "trailers":
                body, fields = await self.get("/trailers")
                need(body == SMALL and "x-checksum: 42" in fields, f"no trailers: {fields}")
            case "interim":
                body, fields = await self.get("/interim")
                need(body == SMALL and fields.startswith("HTTP/3 103"), f"no 103: {fields}")
            case "priority":
                body, _ = await self.get("/priority", "--header", f"priority: {PRIORITY}")
                need(body == PRIORITY.encode(), f"{body!r} came")
            case "client-reset":
                await self.twice("/endless", "63", "--max-filesize", "50000")
            case "server-reset":
                await self.twice("/reset", "")
            case "goaway":
                body, _ = await self.get("/goaway")
                need(body == self.files.data.read_bytes(), "other bytes came")

    async def parallel(self) -> None:
        """Fetch many at once."""
        url = self.url(f"/number/[0-{PARALLEL - 1}]")
        await self.curl("--parallel", "--parallel-max", "100", "--output", "#1", url)
        for number in range(PARALLEL):
            need((self.folder / str(number)).read_text() == str(number), "other bytes came")

    async def twice(self, path: str, status: str, *options: str) -> None:
        """Have a transfer fail, and another one work on the same connection."""
        next_one = ["--next", *self.common(), "--output", "second", self.url("/small")]
        words = [*self.common(), *options, "--output", "first", self.url(path), *next_one]
        _, output = await finished([*self.peer.command, *words], self.folder)
        lines = [line for line in output.splitlines() if line.count(" ") == 2]
        need(len(lines) == 2 and not lines[0].startswith("0 "), f"no error: {output[-200:]}")
        need(not status or lines[0].startswith(status), f"another error: {output[-200:]}")
        need(lines[1] == "0 3 0", f"the connection did not go on: {output[-200:]}")
        need((self.folder / "second").read_bytes() == SMALL, "other bytes came")


@dataclass(frozen=True)
class Ngtcp2(Peer):
    """The programs of ngtcp2."""

    server_command: tuple[str, ...] = ()

    @contextlib.asynccontextmanager
    async def serving(self, files: Files, port: int) -> AsyncIterator[Started]:
        """Serve files."""
        words = [*self.server_command, "--quiet", "-d", str(files.htdocs), "127.0.0.1", str(port)]
        words += [files.key, files.certificate]
        async with started(words, {}, files.folder, port=port) as process:
            yield process

    async def run(self, case: str, port: int, files: Files) -> str:
        """Run a case; return why it failed, or nothing."""
        with tempfile.TemporaryDirectory(dir=files.folder) as folder:
            try:
                await self.case(case, port, files, Path(folder))
            except (WrongError, TimeoutError) as reason:
                return f"{type(reason).__name__}: {reason}"
        return ""

    async def case(self, case: str, port: int, files: Files, folder: Path) -> None:
        """Run the case of that name."""

        async def fetch(*paths: str, options: tuple[str, ...] = ()) -> str:
            urls = [f"https://localhost:{port}{path}" for path in paths]
            words = ["--exit-on-all-streams-close", "--no-quic-dump", "--no-http-dump"]
            words += ["--timeout=10s", "--download=.", *options, "127.0.0.1", str(port), *urls]
            code, output = await finished([*self.command, *words], folder)
            need(code == 0, f"it has ended with {code}: {output[-200:]}")
            return output

        def came(name: str, wanted: bytes) -> None:
            file = folder / name
            need(file.exists() and file.read_bytes() == wanted, "other bytes came")

        match case:
            case "get":
                await fetch("/small")
                came("small", SMALL)
            case "head":
                output = await fetch("/small", options=("--http-method=HEAD",))
                need(f"[content-length: {len(SMALL)}]" in output, "no length came")
            case "post":
                options = ("--http-method=POST", f"--data={files.data}")
                await fetch("/echo", options=options)
                came("echo", files.data.read_bytes())
            case "parallel":
                await fetch(*(f"/number/{number}" for number in range(PARALLEL)))
                for number in range(PARALLEL):
                    came(str(number), str(number).encode())
            case "trailers":
                need("[x-checksum: 42]" in await fetch("/trailers"), "no trailers came")
            case "interim":
                need("[:status: 103]" in await fetch("/interim"), "no interim response came")
            case "server-reset":
                output = await fetch("/reset", "/small")
                need("258" in output or "0x102" in output, f"no reset came: {output[-300:]}")
                came("small", SMALL)
            case "goaway":
                await fetch("/goaway")
                came("goaway", files.data.read_bytes())
