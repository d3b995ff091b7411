"""The blocks of docs/http3.md run, and so does examples/http3, against a server of this machine."""

from __future__ import annotations

import ast
import asyncio
import re
import shutil
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3
from ringloop.h3 import _client
from tests.h3.support import echo, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "http3.md"


def blocks(language: str) -> list[Any]:
    """Return the blocks of code of the page, named after the line on which they begin."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        pytest.param(block[1], id=f"line {text.count(chr(10), 0, block.start()) + 2}")
        for block in found
    ]


async def executed(source: str) -> dict[str, Any]:
    """Run a program that may await at its top level; returns its names."""
    code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": "__main__"}
    started = eval(code, names)
    if started is not None:
        await started
    return names


@asynccontextmanager
async def example_org(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[h3.Server]:
    """Serve what the page calls example.org, with a certificate that clients trust."""
    certificate, key = certificates.issue("example.org", "DNS:example.org")
    server = await h3.serve(echo, "127.0.0.1", certificate=certificate, private_key=key)
    port = server.address[1]
    really_opened = _client.opened

    async def opened(host: str, _port: int, **keywords: Any) -> h3.Client:
        assert host == "example.org"
        keywords["server_name"] = host
        return await really_opened("127.0.0.1", port, **keywords)

    monkeypatch.setattr("ringloop.h3._client.opened", opened)
    monkeypatch.setattr("ringloop.h3._pool.opened", opened)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    try:
        yield server
    finally:
        server.close()
        await within(server.wait_closed())


def answered(request: Any) -> Any:
    """Answer for a fallback of httpx, which would ask the Internet."""
    import httpx

    return httpx.Response(200, request=request)


@pytest.mark.one_thread("it changes the environment and modules")
@pytest.mark.parametrize("source", blocks("python"))
def test_blocks_of_the_guide_run(
    run: Run,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
) -> None:
    import httpx

    for file, name in zip(certificates.issue(), ("cert.pem", "key.pem"), strict=True):
        shutil.copy(file, tmp_path / name)
    monkeypatch.chdir(tmp_path)

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", partial(httpx.MockTransport, answered))

    async def main() -> None:
        async with example_org(certificates, monkeypatch):
            await within(executed(source))

    run(main())


def test_example_fetches_urls(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, echo) as server:
            url = f"https://localhost:{server.address[1]}/"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(ROOT / "examples" / "http3" / "fetch.py")),
                *("--ca-file", str(certificates.authority), "--times", "20"),
                *(url, "https://localhost:1/"),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await within(process.communicate())
            assert process.returncode == 0
            assert output.count(f"{url}: status 200, 0 bytes".encode()) == 20
            assert output.count(b"https://localhost:1/: ") == 20
            assert server.stats().completed == 1

    run(main())
