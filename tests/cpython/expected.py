"""Where this loop, or this machine, differs from what CPython's own tests expect, and why.

The table is strict: a listed test that passes fails the run, so that entries that no longer apply are
removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sys

BOTH = ("ringloop-uring", "ringloop-epoll")
FAST = tuple(f"{loop}+fast" for loop in BOTH)
ORACLE = ("asyncio",)


@dataclass(frozen=True)
class Difference:
    """A pattern of test names (module.Class.test) that do not pass, where, and why."""

    test: str
    reason: str
    loops: tuple[str, ...] = BOTH
    since: tuple[int, ...] = (3, 11)
    until: tuple[int, ...] = (3, 99)
    # It would hang, so it is left out.
    hangs: bool = False
    # Added in a bug-fix release, so that earlier ones of the same version lack it.
    backported: bool = False

    def concerns(self, loop: str, module: str, version: sys._version_info) -> bool:
        """Say whether this entry applies to a run of `module` on `loop` under CPython `version`."""
        return (
            (loop in self.loops or loop.partition("+")[0] in self.loops)
            and self.test.startswith(module.rpartition(".")[2] + ".")
            and self.since <= version[: len(self.since)]
            and version[: len(self.until)] <= self.until
        )


SIGNALS = (
    "white box: replaces asyncio.unix_events.signal, or reads _signal_handlers, _check_signal and"
    " _handle_signal, which are the selector loop's"
)
WATCHER = "white box: reads _watcher or the policy's child watcher, which have no part in ours"
SELECTOR = "white box: reads _selector, the selector loop's"

MOCK = "white box: the socket is a mock, which has no descriptor that a driver could watch"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "test_base_events.BaseEventLoopWithSelectorTests.test_accept_connection_*",
        "white box: calls _accept_connection, the selector loop's",
    ),
    Difference(
        "test_base_events.BaseEventLoopTests.test_create_connection_happy_eyeballs*",
        MOCK,
        since=(3, 15),
    ),
    Difference(
        "test_base_events.BaseEventLoopWithSelectorTests.test_create_datagram_endpoint_ip_addr",
        MOCK,
    ),
    Difference(
        "test_base_events.BaseEventLoopWithSelectorTests.test_create_server_soreuseport_only_defined",
        MOCK,
    ),
    Difference(
        "test_events.LoopUnderTest.test_timeout_rounding",
        "white box: counts calls of _run_once and reads _selector, which a native turn does not have",
    ),
    Difference(
        "test_events.LoopUnderTest.test_unclosed_pipe_transport",
        "white box: assigns _pipe of the transports to quieten their finalisers",
    ),
    Difference(
        "test_ssl.TestSSL.test_remote_shutdown_receives_trailing_data_on_slow_socket",
        "white box: reads _read_ready_cb and swaps _sock of the selector transport",
        hangs=True,
        backported=True,
    ),
    *(
        Difference(f"test_unix_events.SelectorEventLoopSignalTests.{test}", SIGNALS)
        for test in (
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
    *(
        Difference(f"test_subprocess.{test}", WATCHER, backported=True)
        for test in (
            "Subprocess*WatcherTests.test_watcher_implementation",
            "SubprocessThreadedWatcherTests.test_pid_not_reaped_before_exit_published",
        )
    ),
    Difference(
        "test_subprocess.GenericWatcherTests.test_create_subprocess_fails_with_inactive_watcher",
        WATCHER,
        until=(3, 13),
    ),
)
