"""Every name that a public module says to have is there."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import ringloop


def public_modules() -> list[str]:
    walked = pkgutil.walk_packages(ringloop.__path__, "ringloop.")
    names = ["ringloop", *(module.name for module in walked)]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


@pytest.mark.parametrize("name", public_modules())
def test_names_are_there(name: str) -> None:
    module = importlib.import_module(name)

    assert [
        public for public in getattr(module, "__all__", ()) if not hasattr(module, public)
    ] == []
