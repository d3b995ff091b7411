"""Where our loop differs from asyncio's proactor loop in CPython's tests on Windows, and why."""

from __future__ import annotations

# Left out on both loops: they would hang on asyncio's, under Wine 8.0.
HANGS: dict[str, str] = {
    "test_sock_lowlevel.ProactorEventLoopTests.test_datagram_send_to_non_listening_address_*": (
        "Wine does not report that the port of a datagram is closed"
    ),
}

# Left out on ours, where they would hang.
HANGS_ON_OURS: dict[str, str] = {
    "test_windows_events.ProactorTests.test_close": (
        "the socket of sock_recv is blocking: the first try waits, as on asyncio's SelectorEventLoop"
    ),
}

SENDFILE = "files are read and sent, as on asyncio's SelectorEventLoop: the error has its words"

DIFFERENCES: dict[str, str] = {
    "test_events.ProactorEventLoopTests.test_timeout_rounding": (
        "white box: counts calls of _run_once and reads _selector, which a native turn does not have"
    ),
    **{
        f"test_proactor_events.ProactorEventLoopUnixSockSendfileTests.{test}": SENDFILE
        for test in (
            "test_sock_sendfile_iobuffer",
            "test_sock_sendfile_not_a_file",
            "test_sock_sendfile_not_regular_file",
        )
    },
    "test_windows_events.ProactorTests.test_client_pipe_stat": (
        "connects without connect_pipe's retry, and a turn runs callbacks several times before the"
        " next look at the completion port, which brings the pipe's next instance"
    ),
}
