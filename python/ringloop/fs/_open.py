"""`open`: opens a file as the built-in does, without blocking the loop."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, overload

from ringloop import _system
from ringloop.fs._backend import backend, call_to_the_end
from ringloop.fs._binary import BinaryFile
from ringloop.fs._mode import Mode, parse
from ringloop.fs._names import encoded, named
from ringloop.fs._text import TextFile

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

Source = str | bytes | os.PathLike[Any] | int
File = TypeVar("File", BinaryFile, TextFile, "BinaryFile | TextFile")

# Permissions of a new file, before the umask.
NEW_FILE_MODE: Final = 0o666


class Opening(Generic[File]):
    """A file to be opened: `await` it, or use it with `async with`, which also closes the file."""

    __slots__ = ("_coroutine", "_obj")

    def __init__(self, coroutine: Coroutine[Any, Any, File]) -> None:
        self._coroutine: Coroutine[Any, Any, File] = coroutine
        self._obj: File | None = None

    def __await__(self) -> Generator[Any, Any, File]:
        if self._obj is None:
            self._obj = yield from self._coroutine.__await__()
        return self._obj

    def __aenter__(self) -> Self:
        # What is awaited there is this, without a coroutine around it.
        return self

    def __aexit__(self, *_exception: object) -> Coroutine[Any, Any, None]:
        file, self._obj = self._obj, None
        return _nothing() if file is None else file.close()


async def _nothing() -> None:
    """Close a file that was not opened."""


@overload
def open(  # noqa: A001 - the name of what it stands in for
    file: Source,
    mode: Literal[
        "rb",
        "wb",
        "ab",
        "xb",
        "rb+",
        "wb+",
        "ab+",
        "xb+",
        "r+b",
        "w+b",
        "a+b",
        "x+b",
        "br",
        "bw",
        "ba",
        "bx",
    ],
    buffering: int = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> Opening[BinaryFile]: ...


@overload
def open(  # noqa: A001
    file: Source,
    mode: Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt", "wt", "at", "xt"] = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> Opening[TextFile]: ...


@overload
def open(  # noqa: A001
    file: Source,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> Opening[Any]: ...


def open(  # noqa: A001
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Opening[Any]:
    """Open a file: `async with fs.open(path) as f`, or `f = await fs.open(path)`.

    The arguments are those of the built-in `open`. Returns a `TextFile`, or in binary mode a
    `BinaryFile`. `buffering` is the size of the buffer in bytes (by default 64 KiB, and 512 KiB for
    pieces of 64 KiB and more for a file with positions), 0 for none in binary mode, 1 to flush at the
    end of each line in text mode. `opener(path, flags)` is called in a thread of the pool.

    When awaited, raises the same as `open`: `OSError` with errno and file name, and
    `TypeError` and `ValueError` for invalid arguments.
    """
    return Opening(_open(file, mode, buffering, encoding, errors, newline, closefd, opener))


async def _open(
    file: Any,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    closefd: bool,
    opener: Any,
) -> BinaryFile | TextFile:
    parsed = parse(mode)
    _check(parsed, buffering, encoding, errors, newline)
    if not isinstance(file, int):
        file = os.fspath(file)
        if not closefd:
            raise ValueError("Cannot use closefd=False with file name")
    elif file < 0:
        raise ValueError("negative file descriptor")
    found = None
    if isinstance(file, int):
        fd = file
    elif opener is not None:
        fd = await _call_opener(file, parsed.flags, opener)
    else:
        with named(file):
            fd, kind, length = await backend().open(encoded(file), parsed.flags, NEW_FILE_MODE)
        found = (kind, length)
    try:
        return wrap(
            fd,
            file,
            mode,
            buffering=buffering,
            encoding=encoding,
            errors=errors,
            newline=newline,
            closefd=closefd,
            found=found,
        )
    except BaseException:
        if not isinstance(file, int):
            os.close(fd)
        raise


async def _call_opener(path: Any, flags: int, opener: Any) -> int:
    """Open a path by the caller's function; the descriptor, which no child inherits."""
    fd = await call_to_the_end(opener, path, flags | _system.OPEN_FLAGS, lost=_close_opened)
    if not isinstance(fd, int):
        raise TypeError("expected integer from opener")
    if fd < 0:
        raise ValueError(f"opener returned {fd}")
    os.set_inheritable(fd, False)
    return fd


def _close_opened(fd: Any) -> None:
    if isinstance(fd, int) and fd >= 0:
        os.close(fd)


def wrap(
    fd: int,
    name: Any,
    mode: str,
    *,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    found: tuple[int, int] | None = None,
) -> BinaryFile | TextFile:
    """Make the file of an open descriptor; `found` as for `BinaryFile`."""
    parsed = parse(mode)
    size = buffering if buffering > 1 or (buffering == 0 and not parsed.text) else None
    binary = BinaryFile(fd, name, parsed, buffer_size=size, closefd=closefd, found=found)
    if not parsed.text:
        return binary
    try:
        lines = buffering == 1 or (buffering < 0 and os.isatty(fd))
        return TextFile(
            binary, mode, encoding=encoding, errors=errors, newline=newline, line_buffering=lines
        )
    except BaseException:
        # The descriptor is the caller's to close.
        binary._fd = -1
        raise


def _check(
    mode: Mode, buffering: int, encoding: str | None, errors: str | None, newline: str | None
) -> None:
    """Refuse what `open` refuses."""
    if not isinstance(buffering, int):
        raise TypeError(f"an integer is required (got type {type(buffering).__name__})")
    if mode.text:
        if buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        if newline is not None and not isinstance(newline, str):
            raise TypeError(f"newline must be str or None, not {type(newline).__name__}")
        if newline not in {None, "", "\n", "\r", "\r\n"}:
            raise ValueError(f"illegal newline value: {newline!r}")
        return
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if value is not None:
            article = "an" if name != "newline" else "a"
            raise ValueError(f"binary mode doesn't take {article} {name} argument")
    if buffering == 1:
        warnings.warn(
            "line buffering (buffering=1) isn't supported in binary mode, the default buffer size "
            "will be used",
            RuntimeWarning,
            stacklevel=4,
        )
