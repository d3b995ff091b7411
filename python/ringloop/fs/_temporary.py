"""Temporary files and directories: `tempfile` as coroutines.

`async with fs.TemporaryFile() as f` or `f = await fs.TemporaryFile()`. `tempfile`'s work of opening
and removing runs in the pool; the files are `ringloop.fs`'s own.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING, Any, Final, Self

from ringloop.fs._backend import call, call_to_the_end
from ringloop.fs._open import Opening, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringloop.fs._binary import BinaryFile
    from ringloop.fs._text import TextFile


def TemporaryFile(  # noqa: N802 - the names of what they stand in for
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: Any = None,  # noqa: A002
    *,
    errors: str | None = None,
) -> Opening[Any]:
    """Open a file without a name, removed when closed. As `tempfile.TemporaryFile`."""
    options = {"encoding": encoding, "newline": newline, "errors": errors}
    return Opening(_temporary_file(mode, buffering, options, suffix, prefix, dir))


async def _temporary_file(
    mode: str,
    buffering: int,
    options: dict[str, Any],
    suffix: str | None,
    prefix: str | None,
    directory: Any,
) -> BinaryFile | TextFile:
    fd, name = await call_to_the_end(
        _nameless, suffix, prefix, directory, lost=lambda made: os.close(made[0])
    )
    try:
        return wrap(fd, name, mode, buffering=buffering, **options)
    except BaseException:
        os.close(fd)
        raise


def _nameless(suffix: str | None, prefix: str | None, directory: Any) -> tuple[int, Any]:
    """Open a file and remove its name; the standard library does, or opens one that had none."""
    with tempfile.TemporaryFile(buffering=0, suffix=suffix, prefix=prefix, dir=directory) as file:
        fd = os.dup(file.fileno())
    return fd, fd


def NamedTemporaryFile(  # noqa: N802
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: Any = None,  # noqa: A002
    delete: bool = True,
    *,
    errors: str | None = None,
    delete_on_close: bool = True,
) -> NamedOpening:
    """Open a file with a name, `f.name`, removed when closed.

    As `tempfile.NamedTemporaryFile`.
    """
    options = {"encoding": encoding, "newline": newline, "errors": errors}
    made = _named_file(mode, buffering, options, suffix, prefix, dir, delete, delete_on_close)
    return NamedOpening(made)


async def _named_file(
    mode: str,
    buffering: int,
    options: dict[str, Any],
    suffix: str | None,
    prefix: str | None,
    directory: Any,
    delete: bool,
    delete_on_close: bool,
) -> NamedFile:
    fd, name = await mkstemp(suffix, prefix, directory)
    try:
        file = wrap(fd, name, mode, buffering=buffering, **options)
    except BaseException:
        os.close(fd)
        await call(os.unlink, name)
        raise
    return NamedFile(file, name, delete=delete, delete_on_close=delete_on_close)


class NamedFile:
    """A file whose name is removed when it is closed; its attributes are the file's."""

    def __init__(
        self, file: BinaryFile | TextFile, name: Any, *, delete: bool, delete_on_close: bool
    ) -> None:
        self._opened = file
        self.name = name
        self.delete = delete
        self._delete_on_close = delete_on_close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def __aiter__(self) -> Any:
        return self._opened.__aiter__()

    async def close(self) -> None:
        """Close the file, and remove its name unless that is for the end of `async with`."""
        try:
            await self._opened.close()
        finally:
            if self.delete and self._delete_on_close:
                await self.remove()

    async def remove(self) -> None:
        """Remove the name, if it is to be removed."""
        if self.delete:
            self.delete = False
            await call_to_the_end(_unlink_if_there, self.name, lost=_nothing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        try:
            await self._opened.close()
        finally:
            await self.remove()


def _unlink_if_there(name: Any) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108 - the name may be of bytes


def _nothing(_lost: None) -> None:
    """Leave nothing to undo."""


class NamedOpening(Opening[Any]):
    """A named file to be opened: its name is removed at the end of `async with`."""

    __slots__ = ()

    def __aexit__(self, *exception: object) -> Any:
        file, self._obj = self._obj, None
        return super().__aexit__() if file is None else file.__aexit__(*exception)


class TemporaryDirectory:
    """A directory that is removed with its contents: `async with fs.TemporaryDirectory() as name`.

    `await` gives the object itself, with `name` and `cleanup()`. As `tempfile.TemporaryDirectory`.
    """

    def __init__(
        self,
        suffix: str | None = None,
        prefix: str | None = None,
        dir: Any = None,  # noqa: A002
        ignore_cleanup_errors: bool = False,
    ) -> None:
        self._arguments: Final = (suffix, prefix, dir, ignore_cleanup_errors)
        self._made: tempfile.TemporaryDirectory[Any] | None = None

    @property
    def name(self) -> Any:
        """The directory's path."""
        if self._made is None:
            raise RuntimeError("await the temporary directory first: it is not made yet")
        return self._made.name

    async def _make(self) -> Self:
        if self._made is None:
            self._made = await call(tempfile.TemporaryDirectory, *self._arguments)
        return self

    def __await__(self) -> Any:
        return self._make().__await__()

    async def __aenter__(self) -> Any:
        await self._make()
        return self.name

    async def __aexit__(self, *_exception: object) -> None:
        await self.cleanup()

    async def cleanup(self) -> None:
        """Remove it."""
        if self._made is not None:
            await call(self._made.cleanup)


class SpooledTemporaryFile:
    """A file in memory up to `max_size` bytes, or until `fileno` or `rollover`; then a temporary one.

    As `tempfile.SpooledTemporaryFile`: `async with fs.SpooledTemporaryFile(1_000_000) as f`.
    """

    def __init__(
        self,
        max_size: int = 0,
        mode: str = "w+b",
        buffering: int = -1,
        encoding: str | None = None,
        newline: str | None = None,
        suffix: str | None = None,
        prefix: str | None = None,
        dir: Any = None,  # noqa: A002
        *,
        errors: str | None = None,
    ) -> None:
        self._max_size = max_size
        self._spooled: Any = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - it is the caller's to close
            max_size, mode, buffering, encoding, newline, suffix, prefix, dir, errors=errors
        )

    def __await__(self) -> Any:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @property
    def _file(self) -> Any:
        # As `BinaryFile._file`.
        return self._spooled

    async def _run(self, name: str, *args: Any) -> Any:
        """Call at once what only touches memory, and in the pool what touches the file."""
        method = getattr(self._spooled, name)
        if self._spooled._rolled:
            return await call(method, *args)
        return method(*args)

    async def _write(self, name: str, size: int, *args: Any) -> Any:
        """Do the same for what may be too much for the memory."""
        place = self._spooled.tell() if not self._spooled._rolled else 0
        if self._max_size and place + size > self._max_size:
            return await call(getattr(self._spooled, name), *args)
        return await self._run(name, *args)

    @property
    def closed(self) -> Any:
        """Whether it was closed."""
        return self._spooled.closed

    @property
    def mode(self) -> Any:
        """The mode."""
        return self._spooled.mode

    @property
    def name(self) -> Any:
        """The descriptor once there is a file; None before."""
        return self._spooled.name

    @property
    def encoding(self) -> Any:
        """The encoding of text."""
        return self._spooled.encoding

    @property
    def errors(self) -> Any:
        """How errors of decoding and encoding are handled."""
        return self._spooled.errors

    @property
    def newlines(self) -> Any:
        """The kinds of line ends read so far."""
        return self._spooled.newlines

    async def fileno(self) -> Any:
        """Make it a file, and return its descriptor."""
        await self.rollover()
        return self._spooled.fileno()

    async def isatty(self) -> Any:
        """Return whether it is a terminal."""
        return self._spooled.isatty()

    async def read(self, size: int | None = -1, /) -> Any:
        """Read `size` bytes or characters at most; all for None or a negative size."""
        return await self._run("read", size)

    async def readline(self, size: int = -1, /) -> Any:
        """Read one line, of `size` bytes or characters at most unless that is negative."""
        return await self._run("readline", size)

    async def readlines(self, hint: int = -1, /) -> Any:
        """Read lines until they total `hint` bytes or characters; all unless that is positive."""
        return await self._run("readlines", hint)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        in_memory = not self._spooled._rolled
        if line := self._spooled.readline() if in_memory else await self.readline():
            return line
        raise StopAsyncIteration

    async def write(self, data: Any) -> Any:
        """Write; becomes a file once it exceeds `max_size`."""
        return await self._write("write", len(data), data)

    async def writelines(self, lines: Iterable[Any]) -> None:
        """Write each of some lines."""
        for line in lines:
            await self.write(line)

    async def seek(self, offset: int, whence: int = 0, /) -> Any:
        """Move to `offset` from the start, the position (1) or the end (2); return the new position."""
        await self._run("seek", offset, whence)
        return await self._run("tell")

    async def tell(self) -> Any:
        """Return the position."""
        return await self._run("tell")

    async def truncate(self, size: int | None = None, /) -> Any:
        """Truncate or extend it to `size` bytes; None for the position."""
        return await self._write("truncate", size or 0, size)

    async def flush(self) -> None:
        """Write buffered data."""
        await self._run("flush")

    async def rollover(self) -> None:
        """Make it a file."""
        if not self._spooled._rolled:
            await call(self._spooled.rollover)

    async def close(self) -> None:
        """Close it."""
        await self._run("close")


async def mkstemp(
    suffix: Any = None,
    prefix: Any = None,
    dir: Any = None,  # noqa: A002
    text: bool = False,
) -> tuple[int, Any]:
    """Make a temporary file; return its descriptor and path. As `tempfile.mkstemp`."""
    return await call_to_the_end(tempfile.mkstemp, suffix, prefix, dir, text, lost=_remove_file)


async def mkdtemp(suffix: Any = None, prefix: Any = None, dir: Any = None) -> Any:  # noqa: A002
    """Make a temporary directory; return its path. As `tempfile.mkdtemp`."""
    return await call_to_the_end(tempfile.mkdtemp, suffix, prefix, dir, lost=os.rmdir)


def _remove_file(made: tuple[int, Any]) -> None:
    os.close(made[0])
    _unlink_if_there(made[1])


gettempdir = tempfile.gettempdir
