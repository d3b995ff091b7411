"""Public functions show their arguments to `help()`, editors and type checkers, and say what they do."""

from __future__ import annotations

import functools
import importlib
import inspect
import typing
from typing import TYPE_CHECKING, Any

import pytest

from tests.test_public_names import public_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

# Arguments of a callback, which are the callback's own; as asyncio has them.
CALLBACKS = {"callback", "func"}
# Why a signature ends with `*args` or `**` all the same.
REASONS = {
    "ringloop.Loop.create_task": "asyncio's own: what a task factory takes",
    "ringloop.open_connection": "asyncio's own: the keywords of the running loop's create_connection",
    "ringloop.open_unix_connection": "asyncio's own: those of create_unix_connection",
    "ringloop.start_server": "asyncio's own: those of create_server",
    "ringloop.start_unix_server": "asyncio's own: those of create_unix_server",
    "ringloop.fs.Path.copy": "pathlib's own, of each version",
    "ringloop.fs.Path.copy_into": "pathlib's own, of each version",
    "ringloop.fs.Path.joinpath": "pathlib's own, of each version",
    "ringloop.fs.compat.aiofiles.tempfile.NamedTemporaryFile": "aiofiles' own",
    "ringloop.fs.compat.aiofiles.tempfile.SpooledTemporaryFile": "aiofiles' own",
    "ringloop.fs.compat.aiofiles.tempfile.TemporaryDirectory": "aiofiles' own",
    "ringloop.fs.compat.aiofiles.tempfile.TemporaryFile": "aiofiles' own",
}


def is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("ringloop")


def methods(name: str, kind: type, known: set[int]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that our classes give the class, each once."""
    for owner in filter(is_ours, kind.__mro__):
        for attribute, value in vars(owner).items():
            if not attribute.startswith("_") and id(value) not in known:
                known.add(id(value))
                yield f"{name}.{attribute}", value


@functools.cache
def public() -> dict[str, Any]:
    """Everything public that is a function, a class, a method or a property, by its name."""
    found: dict[str, Any] = {}
    known: set[int] = set()
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.ismodule(thing) or not is_ours(thing) or id(thing) in known:
                continue
            known.add(id(thing))
            full = f"{module_name}.{name}"
            if inspect.isclass(thing):
                found[full] = thing
                found.update(methods(full, thing, known))
            elif callable(thing):
                found[full] = thing
    return found


def plain(thing: Any) -> Any:
    return thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing


def parameters(thing: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None


def callables() -> list[str]:
    """Functions, methods, and the classes whose objects a program makes by a call."""
    import enum

    def counts(thing: Any) -> bool:
        if inspect.isclass(thing):
            return not (typing.is_typeddict(thing) or issubclass(thing, BaseException | enum.Enum))
        return callable(plain(thing))

    return [name for name, thing in public().items() if counts(thing)]


def test_there_is_much_to_look_at() -> None:
    assert len(callables()) > 400
    assert {"ringloop.Loop.create_server", "ringloop.quic.connect", "ringloop.run"} <= {
        *callables()
    }


def test_keywords_are_visible() -> None:
    hidden = {}
    for name in callables():
        given = parameters(plain(public()[name]))
        if given is None:
            hidden[name] = "no signature"
            continue
        names = {parameter.name for parameter in given}
        for parameter in given:
            is_positional = parameter.kind is parameter.VAR_POSITIONAL
            # `*names` are values of one kind; `*args` may be anything but for a callback.
            if is_positional and (parameter.name != "args" or names & CALLBACKS):
                continue
            if is_positional or parameter.kind is parameter.VAR_KEYWORD:
                hidden[name] = str(parameter)
    assert hidden.keys() - REASONS.keys() == set(), hidden


def test_reasons_are_needed() -> None:
    """An entry whose function shows its arguments, or is gone, is to be removed."""
    for name in REASONS:
        thing = public().get(name)
        if thing is None:
            assert name.rpartition(".")[0] in public(), f"{name} is gone"
            continue
        kinds = {parameter.kind for parameter in parameters(thing) or ()}
        assert kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, name


def test_everything_has_a_docstring() -> None:
    silent = [
        name
        for name, thing in public().items()
        if not (inspect.getdoc(plain(thing)) or "").strip()
        and (inspect.isclass(thing) or callable(plain(thing)) or inspect.isdatadescriptor(thing))
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["driver", "writes"])
def test_choices_are_literals(name: str) -> None:
    """A string that is one of a few is a Literal, by an alias or written out."""
    for where in callables():
        thing = plain(public()[where])
        thing = thing.__init__ if inspect.isclass(thing) else thing
        annotation = str(getattr(thing, "__annotations__", {}).get(name, ""))
        assert "str" not in annotation, f"{where}({name}: {annotation})"
