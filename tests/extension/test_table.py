"""An extension and a ringloop that do not fit: the `ImportError` has the versions and the remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.extension import FOLDER

# A table of ctypes' making in place of ours: the first three fields, which every version has.
OTHER_TABLE = """
import ctypes
import ringloop
class Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("size", ctypes.c_uint32), ("release", ctypes.c_char_p)]
table = Table({version}, {size}, b"0.0.9")
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name = b"ringloop._native.embed_v1"
ringloop._native.embed_v1 = ctypes.pythonapi.PyCapsule_New(ctypes.addressof(table), name, None)
"""
CASES = {
    "no ringloop": ("import sys; sys.modules['ringloop'] = None", "cannot import ringloop"),
    "ringloop without a table": (
        "import ringloop; del ringloop._native.embed_v1; ringloop.__version__ = '0.0.1'",
        "the installed ringloop 0.0.1 has no ringloop._native.embed_v1",
    ),
    "older table": (
        OTHER_TABLE.format(version=1, size=24),
        "the installed ringloop 0.0.9 has version 1, 24 bytes",
    ),
    "table of another version": (
        OTHER_TABLE.format(version=2, size=10_000),
        "the installed ringloop 0.0.9 has version 2, 10000 bytes",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_import_error_names_versions_and_remedy(case: str) -> None:
    before, says = CASES[case]
    program = f"{before}\nimport sys; sys.path.append({str(FOLDER)!r})\nimport ringloop_probe\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: " + says)
    assert "version 1 of its table" in last
    assert "pip install --upgrade 'ringloop>=" in last


def test_larger_table_of_the_same_version_is_taken() -> None:
    program = f"""
import ctypes, sys
import ringloop
address = ctypes.pythonapi.PyCapsule_GetPointer
address.restype = ctypes.c_void_p
address.argtypes = [ctypes.py_object, ctypes.c_char_p]
table = address(ringloop._native.embed_v1, b"ringloop._native.embed_v1")
size = ctypes.c_uint32.from_address(table + 4).value
copy = ctypes.create_string_buffer(ctypes.string_at(table, size) + bytes(64))
ctypes.c_uint32.from_buffer(copy, 4).value = size + 64
make = ctypes.pythonapi.PyCapsule_New
make.restype = ctypes.py_object
make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
ringloop._native.embed_v1 = make(ctypes.addressof(copy), b"ringloop._native.embed_v1", None)
sys.path.append({str(FOLDER)!r})
import ringloop_probe
async def main():
    return await ringloop_probe.start("sleep", 0.001)
assert ringloop.run(main()) == 0.001
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
