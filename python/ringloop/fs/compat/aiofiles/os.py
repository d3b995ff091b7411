"""`aiofiles.os`: `ringloop.fs`'s functions where it has them, else `os`'s in a pool."""

from __future__ import annotations

import os

from ringloop import fs
from ringloop.fs.compat.aiofiles import ospath as path
from ringloop.fs.compat.aiofiles.base import accepting, wrap

__all__ = [
    "access",
    "getcwd",
    "link",
    "listdir",
    "makedirs",
    "mkdir",
    "path",
    "readlink",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "scandir",
    "stat",
    "symlink",
    "unlink",
    "wrap",
]

access = wrap(os.access)
getcwd = wrap(os.getcwd)
link = accepting(fs.link)
listdir = wrap(os.listdir)
makedirs = wrap(os.makedirs)
mkdir = accepting(fs.mkdir)
readlink = wrap(os.readlink)
remove = accepting(fs.remove)
removedirs = wrap(os.removedirs)
rename = accepting(fs.rename)
renames = wrap(os.renames)
replace = accepting(fs.replace)
rmdir = accepting(fs.rmdir)
# Unlike `fs.scandir` it gives the plain iterator, by one await.
scandir = wrap(os.scandir)
stat = accepting(fs.stat)
symlink = accepting(fs.symlink)
unlink = accepting(fs.unlink)
# aiofiles has them where `os` does.
if hasattr(os, "sendfile"):
    sendfile = wrap(os.sendfile)
    statvfs = wrap(os.statvfs)
    __all__ += ["sendfile", "statvfs"]
