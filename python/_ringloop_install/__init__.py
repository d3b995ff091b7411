"""`RINGLOOP_INSTALL`: makes ringloop the default loop of a program that does not name it.

Owns: what happens at an interpreter's start, the default loop that is made on request, and the
stand-in for the module `uvloop`. Called by: `ringloop_install.pth` where the variable is set,
`ringloop.install`, `python -m ringloop run`. Never does: import asyncio or ringloop before the program
needs a loop, or stop a program: what fails is one line on stderr, and the loop is asyncio's.
"""

from __future__ import annotations

import os
import sys

# As in `typing`, whose import would take longer than all else at an interpreter's start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

VARIABLE = "RINGLOOP_INSTALL"
DEFAULT = "1"
"""The value for the default loop."""
AS_UVLOOP = "uvloop"
"""The value for that, and the stand-in for uvloop."""
_OFF = ("", "0")
_said: list[str] = []
_UVLOOP_MODULES = ("uvloop", "uvloop.loop")


def start() -> None:
    """Do what the environment asks for; an interpreter's start calls it."""
    value = os.environ.get(VARIABLE, "")
    if value in _OFF:
        return
    if value not in {DEFAULT, AS_UVLOOP}:
        say(f"{VARIABLE}={value} is not known: set it to {DEFAULT} or {AS_UVLOOP}, or unset it")
        return
    if value == AS_UVLOOP:
        stand_in_for_uvloop()
    if "asyncio" in sys.modules:
        make_default()
    else:
        sys.meta_path.insert(0, _BehindAsyncio())


def say(what: str) -> None:
    """Write one line to stderr, if there is one; a process does so once."""
    if sys.stderr is not None and not _said:
        _said.append(what)
        sys.stderr.write(f"ringloop: {' '.join(what.split())}; asyncio's own loop is used\n")


# --- the default loop -----------------------------------------------------------------------------


def make_default() -> None:
    """Make ringloop's loop asyncio's default one; ringloop is imported when the first loop is made."""
    import asyncio  # noqa: PLC0415 - not before the program has it
    from asyncio import events  # noqa: PLC0415

    base: Any = _default_policy()
    if base is None:
        own = events.new_event_loop
        set_new_event_loop(lambda: _new_loop(own))
        return

    class EventLoopPolicy(base):  # type: ignore[misc]
        """The default policy, except that new loops are ringloop's."""

        def _loop_factory(self) -> asyncio.AbstractEventLoop:
            loop: asyncio.AbstractEventLoop = _new_loop(asyncio.SelectorEventLoop)
            return loop

    set_policy(EventLoopPolicy())


def _default_policy() -> Any:
    """Return the class of asyncio's default policy; None where asyncio has no policies."""
    if sys.platform == "win32":
        from asyncio import windows_events as of_system  # noqa: PLC0415

        names = ["WindowsSelectorEventLoopPolicy", "_WindowsSelectorEventLoopPolicy"]
    else:
        from asyncio import unix_events as of_system  # noqa: PLC0415

        names = ["_UnixDefaultEventLoopPolicy"]
    return next((getattr(of_system, name) for name in names if hasattr(of_system, name)), None)


def set_policy(policy: Any) -> None:
    """Set asyncio's policy, without the warning that 3.14 and 3.15 have for programs that do so."""
    from asyncio import events  # noqa: PLC0415

    quiet: Any = getattr(events, "_set_event_loop_policy", events.set_event_loop_policy)
    quiet(policy)


def set_new_event_loop(new_loop: Callable[[], Any]) -> None:
    """Replace `asyncio.new_event_loop`, where asyncio has no policies: from 3.16 on."""
    import asyncio  # noqa: PLC0415
    from asyncio import events  # noqa: PLC0415

    def new_event_loop() -> asyncio.AbstractEventLoop:
        """Make a loop of ringloop."""
        loop: asyncio.AbstractEventLoop = new_loop()
        return loop

    asyncio.new_event_loop = events.new_event_loop = new_event_loop


def _new_loop(own: Any) -> Any:
    try:
        from ringloop._loop import Loop  # noqa: PLC0415
    except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
        if "sub-interpreter" not in str(error):
            say(f"{type(error).__name__}: {error}")
        return own()
    return Loop()


class _BehindAsyncio:
    """A finder that makes ringloop's loop the default one once the program has imported asyncio."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "asyncio":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Then(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Then:
    """The loader of asyncio, and what follows."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            make_default()
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            say(f"{type(error).__name__}: {error}")


# --- the stand-in for uvloop ----------------------------------------------------------------------


def stand_in_for_uvloop() -> None:
    """Have `import uvloop` give ringloop's loop by uvloop's names.

    RuntimeError: the program has imported uvloop itself by now.
    """
    there = sys.modules.get("uvloop")
    if there is not None and not isinstance(getattr(there, "__loader__", None), _UvloopLoader):
        raise RuntimeError(
            "uvloop is imported already: call ringloop.install(as_uvloop=True) before the import, "
            f"or start the program with {VARIABLE}={AS_UVLOOP} or python -m ringloop run --as-uvloop"
        )
    if not any(isinstance(finder, _UvloopFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _UvloopFinder())


class _UvloopFinder:
    """Finds the stand-in in place of uvloop, installed or not."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name not in _UVLOOP_MODULES:
            return None
        from importlib.machinery import ModuleSpec  # noqa: PLC0415

        loader: Any = _UvloopLoader()
        return ModuleSpec(name, loader, origin="ringloop", is_package=name == "uvloop")


class _UvloopLoader:
    """Fills the stand-in; `ImportError` where ringloop cannot be imported."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the import system make a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        from ringloop import _uvloop  # noqa: PLC0415

        _uvloop.fill(module)
