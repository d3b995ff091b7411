"""Documentation that users see: stubs of native classes, statistics, configurations."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import ringloop
from ringloop import quic
from ringloop._native import h3, webtransport
from ringloop._native import quic as native
from ringloop.quic import _endpoint, configuration, events
from ringloop.quic.compat.aiopquic import configuration as compat

pytestmark = pytest.mark.sources

STUBS = Path(ringloop.__file__).with_name("_native")
MODULES = {"h3": h3, "quic": native, "webtransport": webtransport}
# The unit of a statistic.
UNITS = re.compile(
    r"seconds|bytes|times|packets|datagrams|messages|frames|connections|handshakes|clients|those",
    re.IGNORECASE,
)


def plain(text: str | None) -> str:
    return " ".join((text or "").split())


def members() -> dict[str, tuple[ast.ClassDef | ast.FunctionDef, Any]]:
    """Classes, methods and properties of the stubs, each with its object."""
    found: dict[str, tuple[ast.ClassDef | ast.FunctionDef, Any]] = {}
    for module, public in MODULES.items():
        for node in ast.parse((STUBS / f"{module}.pyi").read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            name, documented = f"{module}.{node.name}", getattr(public, node.name)
            found[name] = node, documented
            for member in getattr(node, "body", []) if inspect.isclass(documented) else []:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                    key = f"{name}.{member.name}"
                    found.setdefault(key, (member, vars(documented)[member.name]))
    return found


MEMBERS = members()


@pytest.mark.parametrize("name", MEMBERS)
def test_stubs_have_the_docstrings_of_the_classes(name: str) -> None:
    node, documented = MEMBERS[name]
    assert plain(ast.get_docstring(node)), f"{name} is not described"
    assert plain(ast.get_docstring(node)) == plain(documented.__doc__), "run tools/stub-docs"


@pytest.mark.parametrize("module", MODULES)
def test_stubs_cover_the_module(module: str) -> None:
    for name, public in vars(MODULES[module]).items():
        if name.startswith("_"):
            continue
        assert f"{module}.{name}" in MEMBERS
        if inspect.isclass(public):
            for member in vars(public):
                key = f"{module}.{name}.{member}"
                assert member.startswith("__") or member in HIDDEN or key in MEMBERS


# Used by asyncio's tasks only.
HIDDEN = {"_asyncio_future_blocking"}


@pytest.mark.parametrize("name", sorted(one for one in vars(quic.Stats) if not one.startswith("_")))
def test_figures_of_connections_have_units(name: str) -> None:
    assert UNITS.search(getattr(quic.Stats, name).__doc__)


def test_fields_of_the_handshake_name_their_source() -> None:
    for name in [one for one in vars(quic.Handshake) if not one.startswith("_")]:
        assert re.search(r"RFC \d{4}", getattr(quic.Handshake, name).__doc__)


@pytest.mark.parametrize("name", events.__all__)
def test_fields_of_events_are_described(name: str) -> None:
    event = getattr(events, name)
    for field in getattr(event, "__match_args__", ()):
        assert plain(getattr(event, field).__doc__).endswith("."), field


def fields(module: Any, name: str) -> dict[str, str]:
    """The description below each field of a class in its source."""
    tree = ast.parse(inspect.getsource(module))
    (kind,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    found = {}
    for field, below in zip(kind.body, [*kind.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            found[field.target.id] = plain(below.value.value) if is_text else ""  # type: ignore[union-attr, arg-type]
    return found


def test_figures_of_endpoints_are_described() -> None:
    told = fields(_endpoint, "EndpointStats")
    assert tuple(told) == quic.EndpointStats._fields
    for name, text in told.items():
        assert UNITS.search(text), name


@pytest.mark.parametrize("module", [configuration, compat])
def test_fields_of_configurations_are_described(module: Any) -> None:
    told = fields(module, "QuicConfiguration")
    assert told
    for name, text in told.items():
        assert text.endswith("."), name
