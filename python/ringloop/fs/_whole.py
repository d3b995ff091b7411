"""Whole files, each in one await."""

from __future__ import annotations

import io
import os
from typing import Any

from ringloop._arguments import check_bools
from ringloop.fs._backend import backend
from ringloop.fs._names import encoded, named
from ringloop.fs._open import NEW_FILE_MODE

Name = str | bytes | os.PathLike[Any]


async def read_bytes(path: Name) -> bytes:
    """Read a file.

    Raises the `OSError` of open(2) or read(2).
    """
    with named(path):
        return await backend().read_file(encoded(path))


async def read_text(
    path: Name,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> str:
    """Read a file and decode it, as `open(path, encoding=…, errors=…, newline=…).read()` does.

    Raises the `OSError` of open(2) or read(2), and `UnicodeDecodeError`.
    """
    encoding = io.text_encoding(encoding)
    data = await read_bytes(path)
    with io.TextIOWrapper(io.BytesIO(data), encoding, errors, newline) as text:
        return text.read()


async def write_bytes(path: Name, data: Any, *, durable: bool = False) -> int:
    """Create or replace a file's contents with a bytes-like object; return the count of bytes.

    With `durable` it returns when they are on disk; on the ring write and fsync(2) are one linked
    operation. A new file's name is not on disk until its directory is synchronised, too.

    If cancelled, some of the bytes may have been written.
    """
    check_bools(durable=durable)
    with memoryview(data) as view:
        count = view.nbytes
        if type(data) is not bytes:
            data = view.tobytes()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with named(path):
        await backend().write_file(encoded(path), data, flags, NEW_FILE_MODE, durable)
    return count


async def write_text(
    path: Name,
    text: str,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    durable: bool = False,
) -> int:
    """Create or replace a file's contents with a text; return its length. See `write_bytes`."""
    if not isinstance(text, str):
        raise TypeError(f"data must be str, not {type(text).__name__}")
    check_bools(durable=durable)
    encoding = io.text_encoding(encoding)
    raw = io.BytesIO()
    writer = io.TextIOWrapper(raw, encoding, errors, newline)
    writer.write(text)
    writer.flush()
    await write_bytes(path, raw.getvalue(), durable=durable)
    return len(text)
