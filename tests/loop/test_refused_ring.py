"""If io_uring is refused, epoll is used, or an error names cause and remedy.

Each test runs in a child process: what refuses a ring cannot be undone.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.support import refuse

# The end of every child: reports what `ringloop` says, and whether a loop transfers bytes.
REPORT = """
import asyncio, json, os, ringloop

def attempt(**keywords):
    try:
        loop = ringloop.Loop(**keywords)
    except (OSError, ValueError) as error:
        errno = getattr(error, "errno", None)
        return {"error": type(error).__name__, "errno": errno, "words": str(error)}
    try:
        moved = loop.run_until_complete(echo())
        return {"driver": loop.driver, "reason": loop.driver_reason, "echo": moved}
    finally:
        loop.close()

async def echo():
    async def serve(reader, writer):
        writer.write(await reader.readexactly(5))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"bytes")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer.decode()
"""


def child(code: str, **environment: str) -> Any:
    """Run `code` followed by `REPORT` in a child; return what it printed as JSON."""
    variables = {name: value for name, value in os.environ.items() if name != "RINGLOOP_DRIVER"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REPORT + textwrap.dedent(code)],
        cwd=Path(__file__).parents[2],
        env=variables | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("word", ["EPERM", "ENOSYS", "EACCES"])
def test_seccomp_filter_leaves_epoll_with_the_reason(word: str) -> None:
    auto, uring, epoll = child(f"""
        from tests.support import refuse
        refuse.deny_io_uring({getattr(errno, word)})
        print(json.dumps([attempt(), attempt(driver="uring"), attempt(driver="epoll")]))
    """)
    assert auto["driver"] == "epoll"
    assert auto["echo"] == "bytes"
    assert auto["reason"].startswith("io_uring refused: ")
    assert auto["reason"].endswith("; using epoll")
    assert uring["error"] in {"OSError", "PermissionError"}
    for words in (auto["reason"], uring["words"]):
        # If the administrator has disabled it as well, that is reported first.
        if "kernel.io_uring_disabled" in words:
            continue
        assert "a seccomp filter" in words
        assert "allow io_uring_setup" in words
    assert epoll == {"driver": "epoll", "reason": "epoll, as asked for", "echo": "bytes"}


def test_refusal_is_logged_once_and_shown_in_the_repr() -> None:
    told, reason, shown = child("""
        import logging
        from tests.support import refuse
        refuse.deny_io_uring(1)
        told = []

        class Handler(logging.Handler):
            def emit(self, record):
                told.append([record.name, record.levelname, record.getMessage()])

        logging.getLogger("ringloop").addHandler(Handler())
        logging.getLogger("ringloop").setLevel("INFO")
        attempt(driver="epoll")
        loops = [ringloop.Loop() for _ in range(3)]
        print(json.dumps([told, loops[0].driver_reason, repr(loops[0])]))
        for loop in loops:
            loop.close()
    """)
    assert told == [["ringloop", "INFO", f"the driver is epoll: {reason}"]]
    assert shown.startswith("<ringloop.Loop driver=epoll running=False closed=False debug=False ")
    assert reason in shown


@pytest.mark.parametrize("word", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize("call", ["eventfd2", "epoll_create1", "epoll_ctl", "madvise"])
def test_refused_call_is_named_with_its_errno_and_the_remedy(call: str, word: str) -> None:
    if call not in refuse.NUMBERS:
        pytest.skip("the call's number is not known here")
    support.usable_loop("ringloop-uring")
    auto, uring, epoll = child(f"""
        from tests.support import refuse
        refuse.deny([refuse.NUMBERS["{call}"]], {getattr(errno, word)})
        print(json.dumps([attempt(), attempt(driver="uring"), attempt(driver="epoll")]))
    """)
    # Each driver needs its own calls, and a loop needs an eventfd.
    if call == "madvise":
        refused, fine = [uring], [auto, epoll]
        assert f"io_uring refused: {call} was refused" in auto["reason"]
    elif call == "eventfd2":
        refused, fine = [auto, uring, epoll], []
    else:
        refused, fine = [epoll], [auto, uring]
    for report in refused:
        assert report["error"] == ("PermissionError" if word == "EPERM" else "OSError")
        assert report["errno"] == getattr(errno, word)
        assert f"{call} was refused" in report["words"]
        assert f"allow {call} in the seccomp profile" in report["words"]
    assert [report["echo"] for report in fine] == ["bytes"] * len(fine)


def test_no_descriptor_for_a_ring_is_named_and_nothing_leaks() -> None:
    support.usable_loop("ringloop-uring")
    report = child("""
        from tests.support import refuse
        # One is the loop's own, to be woken by.
        fillers = refuse.leave_descriptors(1)
        refused = [attempt(driver="uring"), attempt(driver="epoll"), attempt()]
        for fd in fillers:
            os.close(fd)
        print(json.dumps([*refused, attempt(driver="uring"), attempt()]))
    """)
    uring, epoll, auto, later, later_auto = report
    assert uring["error"] == "OSError"
    assert "no file descriptor is free" in uring["words"]
    assert "ulimit -n" in uring["words"]
    assert "64" in uring["words"]
    # Epoll has no descriptor either.
    assert uring["errno"] == errno.EMFILE
    for refused in (epoll, auto):
        assert refused["error"] == "OSError"
        assert refused["errno"] == errno.EMFILE
    assert later["driver"] == later_auto["driver"] == "uring"
    assert later["echo"] == later_auto["echo"] == "bytes"


def test_refused_loops_leave_no_descriptor_behind() -> None:
    before, after = child("""
        from tests.support import refuse
        refuse.deny_io_uring(1)
        attempt()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            assert "error" in attempt(driver="uring")
        print(json.dumps([before, len(os.listdir("/proc/self/fd"))]))
    """)
    assert before == after


def test_no_locked_memory_is_named_or_needs_none() -> None:
    support.usable_loop("ringloop-uring")
    auto, uring = child("""
        from tests.support import refuse
        refuse.limit_locked_memory()
        print(json.dumps([attempt(), attempt(driver="uring")]))
    """)
    assert auto["echo"] == "bytes"
    if auto["driver"] == "uring":
        # Linux charges rings to the control group since 5.12.
        assert uring["echo"] == "bytes"
        return
    assert "RLIMIT_MEMLOCK" in auto["reason"]
    assert uring["error"] == "OSError"
    assert "RLIMIT_MEMLOCK" in uring["words"]


def test_unknown_driver_is_a_value_error_with_the_known_names() -> None:
    by_environment, by_keyword, overruled = child(
        """
        report = [attempt(), attempt(driver="kqueue"), attempt(driver="epoll")]
        print(json.dumps(report))
        """,
        RINGLOOP_DRIVER="nonsense",
    )
    for refused, word in ((by_environment, "nonsense"), (by_keyword, "kqueue")):
        assert refused["error"] == "ValueError"
        assert f'"{word}"' in refused["words"]
        assert "auto, uring (or io_uring), epoll" in refused["words"]
    assert by_environment["words"].startswith("RINGLOOP_DRIVER names an unknown driver")
    assert by_keyword["words"].startswith("argument 'driver': unknown driver")
    assert "RINGLOOP" not in by_keyword["words"]
    # The driver passed by the program overrides the environment.
    assert overruled["driver"] == "epoll"


def test_io_uring_names_the_ring_driver() -> None:
    support.usable_loop("ringloop-uring")
    chosen = child(
        "print(json.dumps([attempt(), attempt(driver='io_uring'), attempt(driver='uring')]))",
        RINGLOOP_DRIVER="io_uring",
    )
    assert [loop["driver"] for loop in chosen] == ["uring"] * 3


@pytest.mark.parametrize("word", ["", "auto", "epoll"])
def test_environment_chooses_the_driver(word: str) -> None:
    chosen = child("print(json.dumps(attempt()))", RINGLOOP_DRIVER=word)
    unset = child("print(json.dumps(attempt()))")
    assert chosen["driver"] == ("epoll" if word == "epoll" else unset["driver"])
    assert chosen["echo"] == "bytes"
