"""Objects that the garbage collector has to take."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

from tests import support

if TYPE_CHECKING:
    import weakref


def is_collected(seen: weakref.ref[Any]) -> bool:
    gc.collect()
    return seen() is None


async def warnings_until_collected(seen: weakref.ref[Any]) -> list[str]:
    """Wait until the object is gone; return the texts of the warnings meanwhile.

    Recorded warnings are dropped at once: they hold their source, and since 3.15 weak references see
    an object that its finalizer has brought back.
    """
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)

        def is_gone() -> bool:
            gc.collect()
            texts.extend(str(warning.message) for warning in caught)
            caught.clear()
            return seen() is None

        await support.wait_until(is_gone, "the object to be collected")
    return texts
