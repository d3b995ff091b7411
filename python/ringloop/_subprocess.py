"""Child processes: the standard library's transport, reaped by a pidfd in the loop's poll set.

The child is spawned by `subprocess.Popen` with every keyword that the CPython version has. Its end is
seen by a poll of its pidfd: no thread, no SIGCHLD handler (that signal is the user's), no polling at
intervals. Where pidfd_open(2) is refused, a thread waits for the child instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from asyncio import unix_events
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringloop._loop import Loop

logger = logging.getLogger("asyncio")

# What asyncio reports for a child that somebody else has reaped.
UNKNOWN_EXIT_CODE = 255


async def make_transport(
    loop: Loop,
    protocol: Any,
    args: Any,
    shell: bool,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    bufsize: int,
    extra: Any = None,
    **kwargs: Any,
) -> Any:
    """Spawn a child and return its transport once the pipes are connected."""
    waiter = loop.create_future()
    transport = unix_events._UnixSubprocessTransport(  # type: ignore[attr-defined]
        loop,
        protocol,
        args,
        shell,
        stdin,
        stdout,
        stderr,
        bufsize,
        waiter=waiter,
        extra=extra,
        **kwargs,
    )
    _watch(loop, transport)
    try:
        await waiter
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        transport.close()
        await asyncio.shield(transport._wait())
        raise
    return transport


def _watch(loop: Loop, transport: Any) -> None:
    pid = transport.get_pid()
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        logger.debug("pidfd_open(%d) failed (%s); a thread waits for the child", pid, error)
        threading.Thread(
            target=_wait_in_thread, args=(loop, transport), name=f"ringloop-wait-{pid}", daemon=True
        ).start()
        return
    loop._children[pidfd] = transport
    loop._add_reader(pidfd, _ended, loop, pidfd, transport)


def _ended(loop: Loop, pidfd: int, transport: Any) -> None:
    loop._remove_reader(pidfd)
    del loop._children[pidfd]
    os.close(pidfd)
    _publish(transport)


def _publish(transport: Any) -> None:
    """Reap the child and report its end in one step of the loop.

    Between the two its process id is free for somebody else, and `send_signal` must not reach them.
    """
    pid = transport.get_pid()
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        returncode = UNKNOWN_EXIT_CODE
        logger.warning(
            "child process pid %d exit status already read:  will report returncode %d",
            pid,
            returncode,
        )
    else:
        returncode = os.waitstatus_to_exitcode(status)
    transport._process_exited(returncode)


def _wait_in_thread(loop: Loop, transport: Any) -> None:
    # Waits and leaves the child to be reaped by the loop's thread.
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT)
    try:
        loop.call_soon_threadsafe(_publish, transport)
    except RuntimeError:
        logger.warning("the loop that watched child %d is closed", transport.get_pid())


def close(loop: Loop) -> None:
    """Let go of the children that still run; they are not killed."""
    for pidfd in list(loop._children):
        loop._remove_reader(pidfd)
        del loop._children[pidfd]
        os.close(pidfd)
