"""examples/http3 runs, against a server of this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.h3.support import echo, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

ROOT = Path(__file__).resolve().parents[2]


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
