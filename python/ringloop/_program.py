"""Runs a program as `__main__`, as `python` does: FILE, `-m MODULE`, `-c COMMAND` or `-`.

Owns: hiding from a program that it was started by another one: `sys.argv`, `sys.path[0]`, the
module `__main__`, its traceback and exit status. Called by: commands of
`python -m ringloop`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import os
import pkgutil
import runpy
import sys
import textwrap
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# `python` itself: in the way of PYTHONSAFEPATH, -P and -I no folder is first.
_HAS_FOLDER_FIRST = not sys.flags.safe_path

_begun: list[bool] = []


def has_begun() -> bool:
    """Whether a program runs, or has run, in this process."""
    return bool(_begun)


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module, or a package's `__main__`, as `python -m` does."""
    sys.argv[:] = ["-m", *arguments]
    _fresh_main()
    main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
    _told_as_its_own(lambda: main(name))


def run_file(path: str, arguments: list[str]) -> None:
    """Run a script, or a folder or an archive that has a `__main__.py`, as `python` does."""
    sys.argv[:] = [path, *arguments]
    path = os.path.abspath(path)  # noqa: PTH100 - as the interpreter does, links stay
    if pkgutil.get_importer(path) is not None:
        if _HAS_FOLDER_FIRST:
            sys.path[0] = path
        else:
            sys.path.insert(0, path)
        _fresh_main()
        main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
        _told_as_its_own(lambda: main("__main__", alter_argv=False))
        return
    if _HAS_FOLDER_FIRST:
        sys.path[0] = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    namespace = vars(_fresh_main())
    namespace["__file__"] = path
    namespace["__loader__"] = SourceFileLoader("__main__", path)
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None
    _told_as_its_own(lambda: exec(_code_of(path), namespace))  # noqa: S102


def run_command(source: str, arguments: list[str]) -> None:
    """Run source text, as `python -c` does."""
    sys.argv[:] = ["-c", *arguments]
    _current_folder_first()
    if sys.version_info >= (3, 14):
        source = textwrap.dedent(source)
    namespace = _namespace_without_file()

    def run() -> None:
        code = compile(source, "<string>", "exec", dont_inherit=True)
        if sys.version_info >= (3, 13):
            # Tracebacks show its lines, which 3.13.0 finds by the name.
            of = code if hasattr(linecache, "_interactive_cache") else "<string>"
            linecache._register_code(of, source, "<string>")  # type: ignore[attr-defined]
        exec(code, namespace)  # noqa: S102

    _told_as_its_own(run)


def run_input(source: bytes | None, arguments: list[str]) -> None:
    """Run what standard input had, as `python -` does; None: it is a terminal."""
    sys.argv[:] = ["-", *arguments]
    _current_folder_first()
    namespace = _namespace_without_file()
    if source is None:
        _told_as_its_own(lambda: _interact(namespace))
        return
    namespace["__file__"] = "<stdin>"
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None
    _told_as_its_own(
        lambda: exec(compile(source, "<stdin>", "exec", dont_inherit=True), namespace)  # noqa: S102
    )


def _interact(namespace: dict[str, Any]) -> None:
    import code  # noqa: PLC0415 - of terminals alone

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415
    code.interact(local=namespace, exitmsg="")


def _current_folder_first() -> None:
    if _HAS_FOLDER_FIRST:
        sys.path[0] = ""


def _namespace_without_file() -> dict[str, Any]:
    namespace = vars(_fresh_main())
    namespace["__loader__"] = BuiltinImporter
    return namespace


def _fresh_main() -> ModuleType:
    """Put an empty `__main__` in place of ours."""
    made = ModuleType("__main__")
    made.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        made.__annotations__ = {}
    sys.modules["__main__"] = made
    return made


def _code_of(path: str) -> CodeType:
    with io.open_code(path) as file:
        content = file.read()
    if content.startswith(importlib.util.MAGIC_NUMBER):
        import marshal  # noqa: PLC0415 - of compiled programs

        # Behind 16 bytes of header (PEP 552).
        compiled: CodeType = marshal.loads(content[16:])  # noqa: S302 - python runs it, too
        return compiled
    return compile(content, path, "exec", dont_inherit=True)


def _told_as_its_own(run: Callable[[], Any]) -> None:
    """Run it; an exception that leaves it is reported without the frames of this module.

    It still goes on to the interpreter, so that exit status, SIGINT and `-i` are as they are there.
    """
    _begun.append(True)
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        sys.excepthook = _told_already
        raise


def _told_already(*_: object) -> None:
    """Print nothing: the exception was reported."""
