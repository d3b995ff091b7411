"""Profiles of running loops: where their threads spend the time, by task and function.

    with ringloop.profile("flame.svg"):
        asyncio.run(main())

`profile.start()`, `profile.stop()` and `profile.running()` are the same without a block, and
`python -m ringloop profile script.py` is the same for a whole program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ringloop.profiling import _formats, _running, _waiting
from ringloop.profiling._profile import Function, Profile, Share

if TYPE_CHECKING:
    import asyncio
    import os
    from collections.abc import Collection
    from types import TracebackType

__all__ = ["Format", "Function", "Mode", "Profile", "Share", "profile"]

Format: TypeAlias = Literal["svg", "speedscope", "gecko", "pstats"]
Mode: TypeAlias = Literal["running", "waiting"]

# The running profile, under the key "profile". There is no lock: a signal handler may start and stop
# profiles at any point of these functions, and each change is one operation of the dictionary.
_current: dict[str, tuple[_running.Sampler | _waiting.Sampler, profile]] = {}


class profile:  # noqa: N801 - a context manager that reads as a verb, as `contextlib.suppress` does
    """Profile the loops of this process while the block runs.

    `path` is the file that the profile is written to at the end; None: no file. Its format is
    `format`, or that of its extension: `.svg` a flame graph for a browser, `.speedscope.json` for
    https://www.speedscope.app, `.gecko.json` for https://profiler.firefox.com, `.pstats` for the
    standard library's `pstats`.

    `mode` is "running": samples the stacks of the loops' threads; or "waiting": samples the await
    chains of suspended tasks. `rate` is the number of samples per second, by default 100 for "running"
    and 10 for "waiting". `loops` are the loops to sample; by default all of ringloop's in this
    process, in any thread including those that start later, and the running one if it is of
    another type.

    As a context manager it yields the :class:`Profile`, which is filled at the end of the block. Only
    one profile runs at a time: a second one raises `RuntimeError`. An unknown format raises
    `ValueError`.

    Runs a thread that wakes up `rate` times a second (docs/profiling.md has figures); there is no cost
    before and after. While it runs, `sys.setswitchinterval` is at most 0.2 ms, so that short callbacks
    are seen.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        format: Format | None = None,  # noqa: A002 - what every tool calls it
        mode: Mode = "running",
        rate: float | None = None,
        loops: Collection[asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.path = path
        self.format = None if path is None else _formats.of(path, format)
        samplers: dict[str, type[_running.Sampler | _waiting.Sampler]] = {
            "running": _running.Sampler,
            "waiting": _waiting.Sampler,
        }
        if mode not in samplers:
            raise ValueError(f"mode must be 'running' or 'waiting', not {mode!r}")
        if rate is not None and not 0 < rate <= _running.RATE_MAX:
            raise ValueError(f"rate must be above 0 and at most {_running.RATE_MAX}, not {rate!r}")
        self._sampler = samplers[mode]
        self._rate = rate
        self._loops = loops

    def __enter__(self) -> Profile:
        already = "a profile is running in this process: ringloop.profile.stop() ends it"
        if running():
            raise RuntimeError(already)
        sampler = self._sampler(self._rate, self._loops)
        sampler.start()
        if _current.setdefault("profile", (sampler, self))[0] is not sampler:
            sampler.stop()
            raise RuntimeError(already)
        return sampler.profile

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # `stop()` may have ended it; and a forked child that leaves the block has none.
        current = _current.get("profile")
        if current is not None and current[1] is self and running():
            stop()

    @staticmethod
    def start(
        path: str | os.PathLike[str] | None = None,
        *,
        format: Format | None = None,  # noqa: A002 - as above
        mode: Mode = "running",
        rate: float | None = None,
        loops: Collection[asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        """Start a profile, as the block does; `stop()` ends it."""
        profile(path, format=format, mode=mode, rate=rate, loops=loops).__enter__()

    @staticmethod
    def stop() -> Profile:
        """End the running profile, write its file, and return it; RuntimeError if none runs."""
        return stop()

    @staticmethod
    def running() -> bool:
        """Return whether a profile is running in this process."""
        return running()


def stop() -> Profile:
    """End the running profile."""
    current = _current.pop("profile", None) if running() else None
    if current is None:
        raise RuntimeError("no profile is running: ringloop.profile.start() starts one")
    sampler, begun = current
    sampler.stop()
    if begun.path is not None and begun.format is not None:
        sampler.profile.save(begun.path, begun.format)
    return sampler.profile


def running() -> bool:
    """Return whether a profile is running; a forked child has none."""
    current = _current.get("profile")
    if current is not None and not current[0].is_alive():
        _current.clear()
        return False
    return current is not None
