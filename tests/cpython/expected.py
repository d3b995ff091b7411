"""Where this loop, or this machine, differs from what CPython's own tests expect, and why.

The table is strict: a test listed here that passes fails the run, so that a difference that is gone
leaves the table too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sys

BOTH = ("ringloop-uring", "ringloop-epoll")
ORACLE = ("asyncio",)


@dataclass(frozen=True)
class Difference:
    """A pattern of test names (module.Class.test) that do not pass, where, and why."""

    test: str
    reason: str
    loops: tuple[str, ...] = BOTH
    since: tuple[int, ...] = (3, 11)
    until: tuple[int, ...] = (3, 99)

    def concerns(self, loop: str, module: str, version: sys._version_info) -> bool:
        """Say whether this entry applies to a run of `module` on `loop` under CPython `version`."""
        return (
            loop in self.loops
            and self.test.startswith(module.rpartition(".")[2] + ".")
            and self.since <= version[: len(self.since)]
            and version[: len(self.until)] <= self.until
        )


PIPES = "connect_read_pipe and connect_write_pipe raise NotImplementedError: not there yet"
SUBPROCESSES = "subprocess_exec raises NotImplementedError: not there yet"
SIGNALS = (
    "white box: replaces asyncio.unix_events.signal, or reads _signal_handlers, _check_signal and"
    " _handle_signal, which are the selector loop's"
)
SELECTOR = "white box: reads _selector, the selector loop's"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "test_events.LoopUnderTest.test_timeout_rounding",
        "white box: counts calls of _run_once and reads _selector, which a native turn does not have",
    ),
    Difference(
        "test_events.TestPyGetEventLoop.test_get_event_loop_new_process",
        "white box: swaps asyncio.Task and the running-loop functions for their Python versions;"
        " create_task makes the C task, which looks for the running loop where C keeps it",
        since=(3, 14),
    ),
    Difference("test_events.LoopUnderTest.test_bidirectional_pty", PIPES),
    Difference("test_events.LoopUnderTest.test_read_pipe", PIPES),
    Difference("test_events.LoopUnderTest.test_read_pty_output", PIPES),
    Difference("test_events.LoopUnderTest.test_unclosed_pipe_transport", PIPES),
    Difference("test_events.LoopUnderTest.test_write_named_fifo_unread_data", PIPES),
    Difference("test_events.LoopUnderTest.test_write_pipe*", PIPES),
    Difference("test_events.LoopUnderTest.test_write_pty", PIPES),
    Difference("test_events.UnixPipeObjectSupportTests.*", PIPES),
    Difference("test_streams.StreamTests.test_read_all_from_pipe_reader", PIPES),
    *(
        Difference(f"test_unix_events.SelectorEventLoopSignalTests.{test}", SIGNALS)
        for test in (
            "test_add_signal_handler",
            "test_add_signal_handler_install_error*",
            "test_add_signal_handler_setup_error",
            "test_check_signal",
            "test_close*",
            "test_handle_signal_*",
            "test_remove_signal_handler",
            "test_remove_signal_handler_2",
            "test_remove_signal_handler_error*",
        )
    ),
    *(
        Difference(f"test_unix_events.SelectorEventLoopUnixSockSendfileTests.{test}", SELECTOR)
        for test in (
            "test_sock_sendfile_blocking_error",
            "test_sock_sendfile_cancel*",
            "test_sock_sendfile_exception",
            "test_sock_sendfile_os_error_*_call",
        )
    ),
    Difference("test_unix_events.TestFork.test_fork_asyncio_subprocess", SUBPROCESSES),
)
