"""`Path`: `pathlib.Path` whose methods that touch files are coroutines, in anyio's shape."""

from __future__ import annotations

import functools
import pathlib
import sys
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any, Final, Self

from ringloop.fs import _os, _whole
from ringloop.fs._backend import call
from ringloop.fs._open import open as open_file

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable

    from ringloop.fs._open import Opening


def _plain(value: Any) -> Any:
    return value._path if isinstance(value, Path) else value


def _ours(value: Any) -> Any:
    return Path(value) if isinstance(value, pathlib.PurePath) else value


def _pure(name: str) -> Any:
    def method(self: Path, *args: Any, **kwargs: Any) -> Any:
        plain = [_plain(arg) for arg in args]
        return _ours(getattr(self._path, name)(*plain, **kwargs))

    return functools.wraps(getattr(pathlib.Path, name))(method)


def _pooled(name: str) -> Any:
    async def method(self: Path, *args: Any, **kwargs: Any) -> Any:
        plain = [_plain(arg) for arg in args]
        return _ours(await call(getattr(self._path, name), *plain, **kwargs))

    return functools.wraps(getattr(pathlib.Path, name))(method)


@functools.total_ordering
class Path:
    """A path, with the methods of `pathlib.Path`; await the ones that touch files.

    `iterdir`, `glob`, `rglob` and `walk` are asynchronous iterators. `/` and comparison work with
    `pathlib`'s paths too, and `pathlib.Path(path)` converts back.
    """

    __slots__ = ("__weakref__", "_path")

    def __init__(self, *parts: str | os.PathLike[str]) -> None:
        self._path: Final = pathlib.Path(*parts)

    def __fspath__(self) -> str:
        return self._path.__fspath__()

    def __str__(self) -> str:
        return str(self._path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.as_posix()!r})"

    def __bytes__(self) -> bytes:
        return bytes(self._path)

    def __hash__(self) -> int:
        return hash(self._path)

    def __eq__(self, other: object) -> bool:
        return bool(self._path == _plain(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self._path < _plain(other))

    def __truediv__(self, other: Any) -> Path:
        return Path(self._path / _plain(other))

    def __rtruediv__(self, other: Any) -> Path:
        return Path(other / self._path)

    # As of `pathlib.Path`.
    as_posix: Any = _pure("as_posix")
    as_uri: Any = _pure("as_uri")
    is_absolute: Any = _pure("is_absolute")
    is_relative_to: Any = _pure("is_relative_to")
    joinpath: Any = _pure("joinpath")
    match: Any = _pure("match")
    relative_to: Any = _pure("relative_to")
    with_name: Any = _pure("with_name")
    with_stem: Any = _pure("with_stem")
    with_suffix: Any = _pure("with_suffix")
    absolute: Any = _pooled("absolute")
    chmod: Any = _pooled("chmod")
    expanduser: Any = _pooled("expanduser")
    group: Any = _pooled("group")
    is_block_device: Any = _pooled("is_block_device")
    is_char_device: Any = _pooled("is_char_device")
    is_fifo: Any = _pooled("is_fifo")
    is_mount: Any = _pooled("is_mount")
    is_socket: Any = _pooled("is_socket")
    lchmod: Any = _pooled("lchmod")
    owner: Any = _pooled("owner")
    readlink: Any = _pooled("readlink")
    resolve: Any = _pooled("resolve")
    samefile: Any = _pooled("samefile")
    touch: Any = _pooled("touch")
    if sys.version_info >= (3, 12):
        with_segments: Any = _pure("with_segments")
        is_junction: Any = _pooled("is_junction")
    if sys.version_info >= (3, 13):
        full_match: Any = _pure("full_match")
        parser: Any = pathlib.Path.parser
    if sys.version_info >= (3, 14):
        copy: Any = _pooled("copy")
        copy_into: Any = _pooled("copy_into")
        move: Any = _pooled("move")
        move_into: Any = _pooled("move_into")
    if sys.version_info < (3, 15):
        is_reserved: Any = _pure("is_reserved")

    @property
    def anchor(self) -> str:
        """As of `pathlib.Path`."""
        return self._path.anchor

    @property
    def drive(self) -> str:
        """As of `pathlib.Path`."""
        return self._path.drive

    @property
    def name(self) -> str:
        """As of `pathlib.Path`."""
        return self._path.name

    @property
    def parent(self) -> Path:
        """As of `pathlib.Path`."""
        return Path(self._path.parent)

    @property
    def parts(self) -> tuple[str, ...]:
        """As of `pathlib.Path`."""
        return self._path.parts

    @property
    def root(self) -> str:
        """As of `pathlib.Path`."""
        return self._path.root

    @property
    def stem(self) -> str:
        """As of `pathlib.Path`."""
        return self._path.stem

    @property
    def suffix(self) -> str:
        """As of `pathlib.Path`."""
        return self._path.suffix

    @property
    def suffixes(self) -> list[str]:
        """As of `pathlib.Path`."""
        return self._path.suffixes

    @property
    def parents(self) -> tuple[Path, ...]:
        """The directories above, the nearest first."""
        return tuple(Path(parent) for parent in self._path.parents)

    @classmethod
    async def cwd(cls) -> Self:
        """Return the working directory."""
        return cls(await call(pathlib.Path.cwd))

    @classmethod
    async def home(cls) -> Self:
        """Return the user's home directory."""
        return cls(await call(pathlib.Path.home))

    if sys.version_info >= (3, 13):

        @classmethod
        def from_uri(cls, uri: str) -> Self:
            """Return the path of a `file:` URI."""
            return cls(pathlib.Path.from_uri(uri))

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Opening[Any]:
        """Open the file, as `ringloop.fs.open` does."""
        return open_file(self._path, mode, buffering, encoding, errors, newline)

    async def read_bytes(self) -> bytes:
        """Read the file."""
        return await _whole.read_bytes(self._path)

    async def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """Read the file and decode it."""
        return await _whole.read_text(self._path, encoding, errors, newline)

    async def write_bytes(self, data: Any, *, durable: bool = False) -> int:
        """Create or replace the file's contents; return the count of bytes."""
        return await _whole.write_bytes(self._path, data, durable=durable)

    async def write_text(
        self,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        durable: bool = False,
    ) -> int:
        """Create or replace the file's contents with a text; return the count of characters."""
        return await _whole.write_text(self._path, data, encoding, errors, newline, durable=durable)

    async def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the metadata."""
        return await _os.stat(self._path, follow_symlinks=follow_symlinks)

    async def lstat(self) -> os.stat_result:
        """Return the metadata, without following a symbolic link."""
        return await _os.lstat(self._path)

    async def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the file exists."""
        return await (_os.exists if follow_symlinks else _os.lexists)(self._path)

    async def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory."""
        mode = await _os.mode_of(self._path, follow_symlinks=follow_symlinks)
        return S_ISDIR(mode)

    async def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a regular file."""
        mode = await _os.mode_of(self._path, follow_symlinks=follow_symlinks)
        return S_ISREG(mode)

    async def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return await _os.islink(self._path)

    async def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the directory; with `parents` also those above."""
        if parents:
            return await call(self._path.mkdir, mode, parents, exist_ok)
        try:
            return await _os.mkdir(self._path, mode)
        except OSError:
            if not exist_ok or not await self.is_dir():
                raise
        return None

    async def rmdir(self) -> None:
        """Remove the empty directory."""
        await _os.rmdir(self._path)

    async def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file's name."""
        try:
            await _os.unlink(self._path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    async def rename(self, target: Any) -> Path:
        """Rename the file; return its new path."""
        await _os.rename(self._path, _plain(target))
        return Path(target)

    async def replace(self, target: Any) -> Path:
        """Rename the file, replacing one of that name; return its new path."""
        await _os.replace(self._path, _plain(target))
        return Path(target)

    async def symlink_to(self, target: Any, target_is_directory: bool = False) -> None:
        """Make this a symbolic link to `target`."""
        await _os.symlink(_plain(target), self._path, target_is_directory)

    async def hardlink_to(self, target: Any) -> None:
        """Make this a hard link to `target`."""
        await _os.link(_plain(target), self._path)

    async def iterdir(self) -> AsyncIterator[Path]:
        """Iterate over the contents of the directory."""
        async with _os.scandir(self._path) as entries:
            async for entry in entries:
                yield self / entry.name

    async def glob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> AsyncIterator[Path]:
        """Iterate over the files below that match; see `pathlib.Path.glob`.

        `case_sensitive` (3.12): None for the system's behaviour. `recurse_symlinks` (3.13): `**` follows
        symbolic links.
        """
        options = _newer(case_sensitive, recurse_symlinks)
        async for path in _each(self._path.glob, _plain(pattern), **options):
            yield path

    async def rglob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> AsyncIterator[Path]:
        """Iterate over the files below, at any depth, that match; otherwise like `glob`."""
        options = _newer(case_sensitive, recurse_symlinks)
        async for path in _each(self._path.rglob, _plain(pattern), **options):
            yield path

    async def walk(
        self, top_down: bool = True, on_error: Any = None, follow_symlinks: bool = False
    ) -> AsyncIterator[tuple[Path, list[str], list[str]]]:
        """Iterate over the tree of directories; see `pathlib.Path.walk`."""
        async for root, directories, files in _os.walk(
            self._path, top_down, on_error, follow_symlinks
        ):
            yield Path(root), directories, files


def _newer(case_sensitive: bool | None, recurse_symlinks: bool) -> dict[str, Any]:
    """Return only the options that were given, since an older Python refuses the newer ones."""
    options: dict[str, Any] = {}
    if case_sensitive is not None:
        options["case_sensitive"] = case_sensitive
    if recurse_symlinks:
        options["recurse_symlinks"] = True
    return options


async def _each(search: Callable[..., Any], *args: Any, **options: Any) -> AsyncIterator[Path]:
    """Iterate in the pool, some results a call."""
    found = await call(lambda: iter(search(*args, **options)))
    while batch := await call(_os._some, found):
        for path in batch:
            yield Path(path)
