"""`aiofiles.ospath`: `ringloop.fs`'s functions where it has them, else `os.path`'s in a pool."""

from __future__ import annotations

from os import path

from ringloop import fs
from ringloop.fs.compat.aiofiles.base import accepting, wrap

__all__ = [
    "abspath",
    "exists",
    "getatime",
    "getctime",
    "getmtime",
    "getsize",
    "isdir",
    "isfile",
    "islink",
    "ismount",
    "samefile",
    "sameopenfile",
]

abspath = wrap(path.abspath)
exists = accepting(fs.exists)
getatime = wrap(path.getatime)
getctime = wrap(path.getctime)
getmtime = wrap(path.getmtime)
getsize = accepting(fs.getsize)
isdir = accepting(fs.isdir)
isfile = accepting(fs.isfile)
islink = accepting(fs.islink)
ismount = wrap(path.ismount)
samefile = wrap(path.samefile)
sameopenfile = wrap(path.sameopenfile)
