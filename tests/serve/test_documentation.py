"""The programs of docs/serve.md run."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.one_thread("it changes the working directory")
@pytest.mark.parametrize("source", BLOCKS)
def test_programs_of_the_guide_run(
    run: Run,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
) -> None:
    for file, name in zip(certificates.issue(), ("cert.pem", "key.pem"), strict=True):
        shutil.copy(file, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main() -> None:
        started: Any = eval(code, {})
        if started is not None:
            await within(started)

    run(main())
