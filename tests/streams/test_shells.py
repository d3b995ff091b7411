"""The classes of native streams: subclasses of asyncio's whose instances own a native core."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from typing import Any

import pytest

from ringloop import _native

CLASSES: tuple[Any, ...] = (
    _native.StreamReader,
    _native.StreamWriter,
    _native.StreamReaderProtocol,
)


class Closed:
    """A transport, for the finaliser of a writer."""

    def is_closing(self) -> bool:
        return True


def bare(shell: Any) -> Any:
    """Return an instance whose `__init__` has not run."""
    made = shell.__new__(shell)
    if isinstance(made, asyncio.StreamWriter):
        made._transport = Closed()  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("shell", CLASSES)
def test_slot_cannot_be_reached_from_python(shell: Any) -> None:
    made = bare(shell)
    with pytest.raises(AttributeError):
        shell._core  # noqa: B018
    made._core = "an attribute like any other"
    assert vars(made) == {"_core": "an attribute like any other"}


@pytest.mark.parametrize("shell", CLASSES)
def test_shell_without_init_has_a_core(shell: Any) -> None:
    made = bare(shell)
    names = [name for name, one in vars(shell).items() if inspect.isgetsetdescriptor(one)]
    assert names
    for name in names:
        getattr(made, name)
        if name in {"_buffer", "_limit"}:
            with pytest.raises(TypeError):
                delattr(made, name)
        else:
            delattr(made, name)
    if shell is _native.StreamReader:
        made.feed_data(b"x")
        assert bytes(made._buffer) == b"x"
    elif shell is _native.StreamWriter:
        made._transport = None
        with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'write'"):
            made.write(b"x")
        made._transport = Closed()
    else:
        made.data_received(b"dropped")


@pytest.mark.parametrize("shell", CLASSES)
def test_instance_of_another_class_with_such_a_slot(shell: Any) -> None:
    other: Any = type("Other", (shell.__base__,), {"__slots__": ("_core",)})
    made = other.__new__(other)
    made._core = "no core"
    try:
        made.__class__ = shell
    except TypeError:
        return  # This CPython sees the difference.
    with pytest.raises(TypeError, match="was not made by its own class"):
        made._paused if shell is not _native.StreamWriter else made._reader  # noqa: B018
    made.__class__ = other
    made._transport = Closed()


@pytest.mark.parametrize("shell", CLASSES)
def test_members_take_only_shells(shell: Any) -> None:
    base = shell.__base__
    for name, member in vars(shell).items():
        if inspect.ismethoddescriptor(member):
            with pytest.raises(TypeError):
                member(object(), b"")
        elif inspect.isgetsetdescriptor(member):
            with pytest.raises(TypeError):
                member.__get__(bare(base), base)
        assert name != "_core"


def test_classes_are_made_by_calling_them() -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        reader = _native.StreamReader(limit=10, loop=loop)
        protocol = _native.StreamReaderProtocol(reader, loop=loop)
        transport: Any = Closed()
        writer = _native.StreamWriter(transport, protocol, reader, loop)
        assert (reader._limit, reader._loop, writer._reader) == (10, loop, reader)
        assert protocol._stream_reader is reader  # type: ignore[attr-defined]
        gone = weakref.ref(reader)
        del reader, writer
        gc.collect()
        assert gone() is None
        assert protocol._stream_reader is None  # type: ignore[attr-defined]
        protocol.data_received(b"for no one")
    finally:
        loop.close()


@pytest.mark.parametrize("value", [b"bytes", "text", None, memoryview(b"x")])
def test_buffer_is_a_bytearray_only(value: object) -> None:
    reader = _native.StreamReader.__new__(_native.StreamReader)
    with pytest.raises(TypeError, match="the buffer of a stream is a bytearray"):
        reader._buffer = value  # type: ignore[assignment]


def test_limit_takes_any_number() -> None:
    reader: Any = _native.StreamReader.__new__(_native.StreamReader)
    for limit in (1, 2**80, -(2**80), -1, 0.5, 1e300, True):
        reader._limit = limit
        assert reader._limit is limit
    with pytest.raises(TypeError, match="limit must be a number, not str"):
        reader._limit = "10"
