"""Signals: numbers arrive through a socket pair that the loop watches.

CPython's C handler writes each signal's number into the wake-up descriptor. There is one such
descriptor per process, so a loop takes it over while it runs in the main thread (Ctrl-C must end a wait
at once) and gives it back, except that a loop with handlers keeps it between its runs, as asyncio does.
What it reads meanwhile and has no handler for is passed on to the descriptor's previous owner: an outer
loop, or the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import logging
import signal
import socket
import sys
import threading
import warnings
from asyncio import events

from ringloop import _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ringloop._loop import Loop

logger = logging.getLogger("asyncio")

_READ_BYTES = 4096
_RETRY_SECONDS = 0.05


class SignalState:
    """The handlers of one loop, and its socket pair once it is needed."""

    def __init__(self) -> None:
        self.handlers: dict[int, asyncio.Handle] = {}
        self.reader: socket.socket | None = None
        self.writer: socket.socket | None = None
        self.watched = False
        # The next try to watch it.
        self.retry: asyncio.TimerHandle | None = None
        # Who had the wake-up descriptor before this run; -1 for none.
        self.previous = -1

    def close_sockets(self) -> None:
        """Close the socket pair, which the loop no longer watches."""
        if self.reader is not None and self.writer is not None:
            self.reader.close()
            self.writer.close()
            self.reader = self.writer = None


def _open(loop: Loop) -> int:
    """Return the descriptor that CPython should write to."""
    state = loop._signals
    if state.reader is None or state.writer is None:
        state.reader, state.writer = socket.socketpair()
        state.reader.setblocking(False)
        state.writer.setblocking(False)
    return state.writer.fileno()


def _watch(loop: Loop) -> None:
    state = loop._signals
    if not state.watched and state.reader is not None:
        loop._add_reader(state.reader.fileno(), _read, loop)
        state.watched = True


def _watch_soon(loop: Loop) -> None:
    """Watch; where the kernel lacks memory for that, a little later: the loop may free some."""
    try:
        _watch(loop)
    except OSError as error:
        if error.errno not in {errno.ENOMEM, errno.ENOSPC}:
            raise
        loop._signals.retry = loop.call_later(_RETRY_SECONDS, _watch_soon, loop)


def _unwatch(loop: Loop) -> None:
    state = loop._signals
    if state.retry is not None:
        state.retry.cancel()
        state.retry = None
    if state.watched and state.reader is not None:
        state.watched = False
        # A loop that is collected with its handlers may find the socket closed before it.
        if (number := state.reader.fileno()) != -1:
            loop._remove_reader(number)


def _read(loop: Loop) -> None:
    reader = loop._signals.reader
    while reader is not None:
        try:
            numbers = reader.recv(_READ_BYTES)
        except InterruptedError:
            continue
        except BlockingIOError:
            return
        if not numbers:
            return
        _pass_on(loop, bytes(number for number in numbers if not _arrived(loop, number)))


def _pass_on(loop: Loop, numbers: bytes) -> None:
    previous = loop._signals.previous
    if numbers and previous != -1:
        with contextlib.suppress(OSError):  # full, or closed by its owner: as for CPython's handler
            _system.write_to_wakeup(previous, numbers)


def _arrived(loop: Loop, number: int) -> bool:
    """Queue the number's handler; say whether there is one."""
    handle = loop._signals.handlers.get(number)
    if handle is None:
        return False  # one that Python handles, or that was removed a moment ago
    if handle.cancelled():
        remove(loop, number)
    else:
        loop._add_callback_signalsafe(handle)
    return True


@contextlib.contextmanager
def wake_up(loop: Loop) -> Iterator[None]:
    """Let signals end the waits of `loop` while it runs in the main thread."""
    # A child of a fork shares the socket pair with its parent.
    if loop._is_inherited() or threading.current_thread() is not threading.main_thread():
        yield
        return
    state = loop._signals
    own = _open(loop)
    _watch_soon(loop)
    try:
        previous = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
    except ValueError:  # another interpreter's main thread
        yield
        return
    state.previous = -1 if previous == own else previous
    try:
        yield
    finally:
        previous, state.previous = state.previous, -1
        if not state.handlers:
            _give_back(own, previous)
            # Nothing stays in flight, so that the loop may go on in another thread.
            _unwatch(loop)
            loop._settle()


def _give_back(own: int, previous: int) -> None:
    # In one step: a signal that finds no descriptor between two would be lost to its owner.
    try:
        current = signal.set_wakeup_fd(previous, warn_on_full_buffer=False)
    except (ValueError, OSError):  # its owner has closed it
        current = signal.set_wakeup_fd(-1)
    if current not in {own, previous, -1}:  # somebody took it over meanwhile, and keeps it
        with contextlib.suppress(ValueError, OSError):
            signal.set_wakeup_fd(current, warn_on_full_buffer=False)


def _forget_in_child() -> None:
    """Keep a child's signals to the child: it shares the parent's descriptors."""
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)


_system.after_fork_in_child(_forget_in_child)


def add(loop: Loop, number: int, callback: Any, args: tuple[Any, ...]) -> None:
    """Call `callback` in the loop when the signal arrives."""
    _system.require_unix("signal handlers")
    if asyncio.iscoroutine(callback) or inspect.iscoroutinefunction(callback):
        raise TypeError("coroutines cannot be used with add_signal_handler()")
    _check(number)
    loop._check_closed()
    state = loop._signals
    own = _open(loop)
    _watch(loop)
    try:
        # Refuses any thread but the main one.
        previous = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
    except (ValueError, OSError) as error:
        raise RuntimeError(str(error)) from None
    replaced = state.handlers.get(number)
    state.handlers[number] = events.Handle(callback, args, loop, None)
    try:
        # Python writes the number only for signals that have a Python handler.
        signal.signal(number, _ignore)
        signal.siginterrupt(number, False)
    except OSError as error:
        if replaced is None:
            del state.handlers[number]
        else:
            state.handlers[number] = replaced
        if not state.handlers and not loop.is_running():
            _give_back(own, previous)
        if error.errno == errno.EINVAL:
            raise RuntimeError(f"sig {number} cannot be caught") from None
        raise


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the number has been written, and that is what counts."""


def remove(loop: Loop, number: int) -> bool:
    """Forget the handler and restore the signal's default; return whether there was one."""
    _system.require_unix("signal handlers")
    _check(number)
    handlers = loop._signals.handlers
    if handlers.pop(number, None) is None:
        return False
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    try:
        signal.signal(number, default)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise RuntimeError(f"sig {number} cannot be caught") from None
        raise
    if not handlers and not loop.is_running():
        try:
            signal.set_wakeup_fd(-1)
        except (ValueError, OSError) as error:
            logger.info("set_wakeup_fd(-1) failed: %s", error)
    return True


def _check(number: int) -> None:
    if not isinstance(number, int):
        raise TypeError(f"sig must be an int, not {number!r}")
    if number not in signal.valid_signals():
        raise ValueError(f"invalid signal number {number}")


def close(loop: Loop) -> None:
    """Remove all handlers and close the socket pair.

    `ValueError` in any thread but the main one, which alone may remove handlers.
    """
    try:
        _remove_all(loop)
    finally:
        _unwatch(loop)
        loop._signals.close_sockets()


def _remove_all(loop: Loop) -> None:
    handlers = loop._signals.handlers
    if sys.is_finalizing():
        if handlers:
            warnings.warn(
                f"Closing the loop {loop!r} on interpreter shutdown stage, "
                "skipping signal handlers removal",
                ResourceWarning,
                source=loop,
                stacklevel=3,
            )
            handlers.clear()
    else:
        for number in list(handlers):
            remove(loop, number)
