"""Files for asyncio: the kernel's operations on ringloop, a bounded pool on other loops and on Windows.

    async with fs.open("notes.txt") as f:
        async for line in f:
            print(line, end="")

The shape is aiofiles': `open` gives files whose methods are coroutines. There are also whole files in
one await (`read_bytes` …), the functions of `os`, a `Path`, temporary files, and `sendfile`.
See docs/files.md.
"""

from tempfile import gettempdir

from ringloop.fs._binary import BinaryFile
from ringloop.fs._open import open  # noqa: A004 - the name of what it stands in for
from ringloop.fs._os import (
    access,
    chmod,
    chown,
    copy,
    copy2,
    copyfile,
    copytree,
    disk_usage,
    exists,
    getcwd,
    getsize,
    isdir,
    isfile,
    islink,
    lexists,
    link,
    listdir,
    lstat,
    makedirs,
    mkdir,
    mkfifo,
    move,
    readlink,
    realpath,
    remove,
    removedirs,
    rename,
    renames,
    replace,
    rmdir,
    rmtree,
    scandir,
    stat,
    statvfs,
    symlink,
    truncate,
    unlink,
    utime,
    walk,
)
from ringloop.fs._path import Path
from ringloop.fs._sendfile import sendfile
from ringloop.fs._temporary import (
    NamedTemporaryFile,
    SpooledTemporaryFile,
    TemporaryDirectory,
    TemporaryFile,
    mkdtemp,
    mkstemp,
)
from ringloop.fs._text import TextFile
from ringloop.fs._whole import read_bytes, read_text, write_bytes, write_text

__all__ = [
    "BinaryFile",
    "NamedTemporaryFile",
    "Path",
    "SpooledTemporaryFile",
    "TemporaryDirectory",
    "TemporaryFile",
    "TextFile",
    "access",
    "chmod",
    "chown",
    "copy",
    "copy2",
    "copyfile",
    "copytree",
    "disk_usage",
    "exists",
    "getcwd",
    "getsize",
    "gettempdir",
    "isdir",
    "isfile",
    "islink",
    "lexists",
    "link",
    "listdir",
    "lstat",
    "makedirs",
    "mkdir",
    "mkdtemp",
    "mkfifo",
    "mkstemp",
    "move",
    "open",
    "read_bytes",
    "read_text",
    "readlink",
    "realpath",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "rmtree",
    "scandir",
    "sendfile",
    "stat",
    "statvfs",
    "symlink",
    "truncate",
    "unlink",
    "utime",
    "walk",
    "write_bytes",
    "write_text",
]
