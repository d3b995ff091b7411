"""Child processes: the standard library's transport, reaped through a pidfd that the loop polls.

On Windows the system waits for the child's handle, and posts its end to the loop's completion port.

The child is spawned by `subprocess.Popen` with every keyword of the CPython version (decision 4 says
why not by anything faster). Its exit is detected by polling its pidfd: no thread, no SIGCHLD handler
(that signal is the user's), no polling at intervals. If pidfd_open(2) is refused, a thread waits for the
child instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading

from ringloop import _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringloop._loop import Loop

logger = logging.getLogger("asyncio")

# What asyncio reports for a child that somebody else has reaped.
UNKNOWN_EXIT_CODE = 255

# Seconds before a child that has ended and cannot be reaped yet is looked at again, doubled each time.
REAP_DELAY_MIN = 0.001
REAP_DELAY_MAX = 0.064


class SubprocessTransport(_system.ChildTransport):  # type: ignore[misc]
    """The standard library's transport; its child is watched from the start."""

    _pipes: dict[int, Any]
    # Its pipes could not be connected.
    _has_failed = False

    def _start(
        self,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        **kwargs: Any,
    ) -> None:
        self._proc = _system.spawning.Popen(
            args,
            shell=shell,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            universal_newlines=False,
            bufsize=bufsize,
            **kwargs,
        )
        try:
            _watch(self._loop, self, self._proc)
        except BaseException:
            # It would not be reaped, and its output not read.
            self._proc.kill()
            self._proc.wait()
            for pipe in filter(None, (self._proc.stdin, self._proc.stdout, self._proc.stderr)):
                pipe.close()
            raise

    def close(self) -> None:
        """Close the pipes and kill the child; on a closed loop only kill it, as CPython 3.14 does."""
        # None once all is closed.
        if self._loop is None or not self._loop.is_closed():
            super().close()
            return
        # Before 3.12.2 the first pipe would raise, and the child stay. They are closed when collected.
        pipes, self._pipes = self._pipes, {}
        try:
            super().close()
        finally:
            self._pipes = pipes

    def fail(self) -> None:
        """End the child and close the pipes that could not be connected, as CPython 3.14 does."""
        self._has_failed = True
        for fd, pipe in enumerate((self._proc.stdin, self._proc.stdout, self._proc.stderr)):
            if pipe is not None and self._pipes.get(fd) is None:
                pipe.close()
        self.close()

    def _try_finish(self) -> None:
        super()._try_finish()
        if self._has_failed and self._returncode is not None:
            # Before 3.14 they wait for the end of pipes that are not there.
            for waiter in self._exit_waiters or ():
                if not waiter.done():
                    waiter.set_result(self._returncode)


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
    transport = SubprocessTransport(
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
    try:
        await waiter
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        if waiter.done() and not waiter.cancelled() and waiter.exception() is not None:
            transport.fail()
        else:
            transport.close()
        await asyncio.shield(transport._wait())
        # The exception holds this frame, and the future holds the exception.
        del waiter
        raise
    return transport


def _watch(loop: Loop, transport: Any, process: Any) -> None:
    if _system.IS_WINDOWS:
        handle = int(process._handle)
        waiting = loop._proactor.wait_for_handle(handle)
        waiting.add_done_callback(functools.partial(_handle_signalled, loop, handle))
        loop._children[handle] = transport, process
        return
    try:
        pidfd = _system.pidfd_open(process.pid)
    except OSError as error:
        logger.debug("pidfd_open(%d) failed (%s); a thread waits for it", process.pid, error)
        threading.Thread(
            target=_wait_in_thread,
            args=(loop, transport, process),
            name=f"ringloop-wait-{process.pid}",
            daemon=True,
        ).start()
        return
    try:
        # Behind what its pipes bring in the same wait: the child wrote that before it ended.
        loop._add_child_reader(pidfd, _ended, loop, pidfd)
    except BaseException:
        os.close(pidfd)
        raise
    loop._children[pidfd] = transport, process


def _ended(loop: Loop, pidfd: int) -> None:
    loop._remove_reader(pidfd)
    transport, process = loop._children.pop(pidfd)
    os.close(pidfd)
    _publish(loop, transport, process)


def _handle_signalled(loop: Loop, handle: int, waiting: Any) -> None:
    # Cancelled by the end of the loop.
    if not waiting.cancelled():
        waiting.result()
        transport, process = loop._children.pop(handle)
        transport._process_exited(process.poll())


def _publish(loop: Loop, transport: Any, process: Any, delay: float = REAP_DELAY_MIN) -> None:
    """Reap the child and report its end in one step of the loop.

    Between the two its process id is free for somebody else, and `send_signal` must not reach them.
    A child that is traced has ended for its pidfd, and for waitpid(2) only once its tracer has seen it:
    no event of its own tells of that.
    """
    pid = process.pid
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        returncode = process.returncode
        if returncode is not None:
            # Popen's own `poll`, which some versions' `send_signal` calls, was first.
            transport._process_exited(returncode)
            return
        returncode = UNKNOWN_EXIT_CODE
        logger.warning(
            "child process pid %d exit status already read:  will report returncode %d",
            pid,
            returncode,
        )
    else:
        if not ended:
            later = min(delay * 2, REAP_DELAY_MAX)
            loop.call_later(delay, _publish, loop, transport, process, later)
            return
        returncode = os.waitstatus_to_exitcode(status)
    transport._process_exited(returncode)


def _wait_in_thread(loop: Loop, transport: Any, process: Any) -> None:
    # Waits and leaves the child to be reaped by the loop's thread.
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        loop._answer(_publish, loop, transport, process)
    except RuntimeError:
        # Nothing else reaps it.
        process.wait()
        logger.warning("Loop %r that handles pid %r is closed", loop, process.pid)


def close(loop: Loop) -> None:
    """Detach the children that are still running; they are not killed."""
    if _system.IS_WINDOWS:
        # The waits for them have ended with the loop's proactor.
        loop._children.clear()
        return
    for pidfd in list(loop._children):
        loop._remove_reader(pidfd)
        del loop._children[pidfd]
        os.close(pidfd)
