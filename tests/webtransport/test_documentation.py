"""The blocks of docs/webtransport.md run, against a server of this machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, webtransport
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "webtransport.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
# Serves what the client's block asks for.
SERVER = BLOCKS[0]


async def executed(source: str, certificates: Certificates) -> dict[str, Any]:
    """Run a block that may await at its top level; returns its names."""
    certificate, key = certificates.issue()
    for text, real in {
        "localhost.pem": certificate,
        "localhost.key": key,
        "authority.pem": certificates.authority,
    }.items():
        source = source.replace(text, str(real))
    names: dict[str, Any] = {
        "certificate": {"certificate": certificate, "private_key": key},
        "h3": h3,
        "handler": print,
        "webtransport": webtransport,
    }
    code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    started = eval(code, names)
    if started is not None:
        await within(started)
    return names


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_run(run: Run, certificates: Certificates, block: str) -> None:
    async def main() -> None:
        serving = SERVER if "connect(" in block else block
        server = (await executed(serving.replace("4433", "0"), certificates))["server"]
        async with server:
            if serving is not block:
                await executed(block.replace("4433", str(server.address[1])), certificates)

    run(main())
