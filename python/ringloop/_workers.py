"""Workers: the same program on several loops, in threads or processes, on shared listening sockets.

Owns: what one worker does from its start to its end, and `run_workers`. Called by: programs, and
`python -m ringloop run --workers`. `_supervisor` starts workers, watches them and passes signals on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import operator
import os
import signal
import socket
import stat
import threading

from ringloop import _loop, _native, _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from typing import Any, Literal

    from ringloop._driver import Driver

logger = logging.getLogger("ringloop.workers")

# How a worker ends.
ENDED = 0
"""It returned, or ended when asked to."""
CRASHED = 1
"""It raised an exception."""
CUT_OFF = 3
"""It did not end in time after being asked to."""

_PR_SET_PDEATHSIG = 1
_BACKLOG = 2048
_WORKERS_MAX = 1024
_PORT_MAX = 65535


class Worker:
    """The argument of each call of the coroutine function of `run_workers`."""

    def __init__(self, number: int, count: int, sockets: tuple[socket.socket, ...]) -> None:
        self.number = number
        """Its number, from 0; a restarted worker keeps it."""
        self.count = count
        """The number of workers."""
        self.sockets = sockets
        """The listening sockets of `listen=`, in that order: for `sock=` of a server."""
        self._stop = asyncio.Event()
        self._is_asked_for = False

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is to end."""
        self._is_asked_for = True
        return self._stop.is_set()

    async def stopping(self) -> None:
        """Wait until the worker is to end: after SIGTERM or SIGINT, or the end of its supervisor.

        A coroutine that never checks, by this or by `is_stopping`, is cancelled then.
        """
        self._is_asked_for = True
        await self._stop.wait()


def run_workers(
    main: Callable[[Worker], Coroutine[Any, Any, object]],
    count: int,
    *,
    kind: Literal["thread", "process"] | None = None,
    listen: Iterable[str | tuple[str, int] | socket.socket] = (),
    grace: float = 30.0,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    driver: Driver | None = None,
) -> int:
    """Run `main(worker)` on `count` loops until all have returned or a signal ends them.

    For the main thread, outside of any loop. Returns an exit status: 0, or 1 where a worker was cut
    off or did not start.

    `kind`: "thread" or "process" (forked); None for threads on a free-threaded Python, otherwise
    processes. `listen`: addresses that all workers serve, as "HOST:PORT", "[IPV6]:PORT", ":PORT" for
    all, "unix:PATH", a pair, or a bound socket; each worker has its own descriptors in
    `worker.sockets`, and takes connections that the others have no time for.

    A worker whose coroutine raises, or whose process dies, is reported on the logger
    "ringloop.workers" and restarted, after 0.1 s, growing to 10 s if it fails within five seconds of its
    start; the tenth such failure in a row ends all workers. A worker that returns has ended.

    SIGTERM or SIGINT asks workers to end (`worker.stopping()`); after `grace` seconds, or at a
    second signal, they are cancelled; workers that have not ended two seconds later are killed or, if
    threads, abandoned.
    """
    if not callable(main):
        raise TypeError(f"main is {main!r}: give a coroutine function that takes a Worker")
    count = _checked_count(count)
    if not grace >= 0:
        raise ValueError(f"grace is {grace!r}: give seconds, 0 or more")
    if driver is not None and loop_factory is not None:
        raise ValueError(
            "driver and loop_factory exclude each other: let the factory choose the driver"
        )
    check_caller("run_workers()")
    from ringloop import _supervisor  # noqa: PLC0415 - it imports multiprocessing

    factory = loop_factory or functools.partial(_loop.Loop, driver=driver)
    chosen = _supervisor.kind_of(kind)
    with bound(listen) as sockets:
        bodies = [Body(main, number, count, sockets, factory, grace) for number in range(count)]
        return _supervisor.Supervisor([chosen(body) for body in bodies], grace).run()


def run_programs(run: Callable[[], None], count: int, *, grace: float) -> int:
    """Run a program in `count` processes, as `run_workers` does a coroutine; for the command line.

    Each has its number in the environment's `RINGLOOP_WORKER`, and gets the signals itself.
    """
    count = _checked_count(count)
    check_caller("run --workers")
    from ringloop import _supervisor  # noqa: PLC0415 - it imports multiprocessing

    units = [_supervisor.ProcessUnit(Program(run, number)) for number in range(count)]
    return _supervisor.Supervisor(units, grace).run()


class Program:
    """A worker that is a whole program, in a process of its own."""

    def __init__(self, run: Callable[[], None], number: int) -> None:
        self.number = number
        self._run = run

    def begin(self) -> None:
        """Prepare for a start."""

    def run(self, *, in_process: bool = False, lifeline: int | None = None) -> int:
        """Run it to its end."""
        del in_process, lifeline
        os.environ["RINGLOOP_WORKER"] = str(self.number)
        _end_with_parent()
        try:
            self._run()
        except SystemExit:
            raise
        except BaseException:  # noqa: BLE001 - it was reported
            return CRASHED
        return ENDED

    def tell(self, number: int) -> None:
        """Nothing: its process gets the signal."""

    def cut_off(self) -> None:
        """Nothing: its process is killed."""


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent is gone (prctl(2))."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 - of programs as workers alone

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def is_cut_off(lifeline: int) -> bool:
    """Return whether a readable lifeline tells workers to end at once; see `_supervisor.Unit`.

    False: the supervisor is gone.
    """
    import fcntl  # noqa: PLC0415 - of workers that end alone, and Unix's, as the next
    import termios  # noqa: PLC0415

    # The number of bytes that wait, an int (ioctl_tty(2)).
    return any(fcntl.ioctl(lifeline, termios.FIONREAD, bytes(4)))


def check_caller(what: str) -> None:
    """Raise RuntimeError if signals cannot be handled here."""
    _system.require_unix("workers")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(f"{what} handles signals: call it from the main thread")
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(f"{what} runs its own loops: call it outside a running loop")


def _checked_count(count: Any) -> int:
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        raise TypeError(f"count is {count!r}: give a whole number, 1 to {_WORKERS_MAX}")
    number = operator.index(count)
    if not 1 <= number <= _WORKERS_MAX:
        raise ValueError(f"count is {number}: 1 to {_WORKERS_MAX} workers")
    return number


@contextlib.contextmanager
def bound(
    addresses: Iterable[str | tuple[str, int] | socket.socket],
) -> Iterator[list[socket.socket]]:
    """Listen on each address; close what was made here at the end.

    OSError: an address that cannot be bound, with its text. ValueError: not an address.
    """
    if isinstance(addresses, str | socket.socket):
        addresses = (addresses,)
    with contextlib.ExitStack() as made:
        sockets = []
        for address in addresses:
            if isinstance(address, socket.socket):
                address.listen(_BACKLOG)
                address.setblocking(False)
                sockets.append(address)
            else:
                sockets.append(_listening(address, made))
        yield sockets


def _listening(address: str | tuple[str, int], made: contextlib.ExitStack) -> socket.socket:
    """Listen; `made` closes the socket, and removes its file."""
    if isinstance(address, str) and address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path:
            raise _no_address(address)
        sock = made.enter_context(socket.socket(socket.AF_UNIX))
        try:
            _bind_unix(sock, path, made)
            sock.listen(_BACKLOG)
        except OSError as error:
            raise _told(error, address) from error
    else:
        host, port = parse_address(address)
        try:
            sock = _tcp(host, port)
        except OSError as error:
            raise _told(error, f"{host or '*'}:{port}") from error
        made.enter_context(sock)
    sock.setblocking(False)
    return sock


def _bind_unix(sock: socket.socket, path: str, made: contextlib.ExitStack) -> None:
    """Bind as `asyncio.loop.create_unix_server`: a socket that is there is replaced."""
    if path.startswith("\0"):
        sock.bind(path)
        return
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - as the next, of a given text
            os.unlink(path)  # noqa: PTH108
    sock.bind(path)
    # The current folder may be another one at the end.
    whole = os.path.abspath(path)  # noqa: PTH100 - links stay
    made.callback(_remove_unix, whole, os.stat(whole).st_ino)  # noqa: PTH116


def _remove_unix(path: str, inode: int) -> None:
    # By then it may be another program's, or gone.
    with contextlib.suppress(OSError):
        _native.remove_socket_file(os.fsencode(path), inode)


def _tcp(host: str, port: int) -> socket.socket:
    if not host:
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    flags = socket.AI_PASSIVE
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[
        0
    ]
    return socket.create_server(address, family=family, backlog=_BACKLOG)  # type: ignore[arg-type]


def parse_address(address: str | tuple[str, int]) -> tuple[str, int]:
    """Return host and port of "HOST:PORT", "[IPV6]:PORT", ":PORT", or a pair; ValueError."""
    if not isinstance(address, str):
        return _parse_pair(address)
    host, colon, digits = address.rpartition(":")
    if not colon or not digits.isdecimal() or int(digits) > _PORT_MAX:
        raise _no_address(address)
    return host.removeprefix("[").removesuffix("]"), int(digits)


def _parse_pair(address: Any) -> tuple[str, int]:
    try:
        host, port = address
        number = operator.index(port)
    except (TypeError, ValueError):
        raise _no_address(address) from None
    # getaddrinfo(3) takes the lower 16 bits of a longer one.
    if not isinstance(host, str | None) or not 0 <= number <= _PORT_MAX:
        raise _no_address(address)
    return host or "", number


def _no_address(address: object) -> ValueError:
    return ValueError(
        f"{address!r} is not an address: give HOST:PORT, [IPV6]:PORT, :PORT for all, or unix:PATH"
    )


def _told(error: OSError, where: str) -> OSError:
    """Return the error with the address that it is about."""
    return type(error)(error.errno, f"{error.strerror or error} ({where})")


class Body:
    """One worker from its start to its end, in any thread or in a process of its own."""

    def __init__(
        self,
        main: Callable[[Worker], Coroutine[Any, Any, object]],
        number: int,
        count: int,
        sockets: list[socket.socket],
        loop_factory: Callable[[], asyncio.AbstractEventLoop],
        grace: float,
    ) -> None:
        self.number = number
        self._main = main
        self._count = count
        self._sockets = sockets
        self._loop_factory = loop_factory
        self._grace = grace
        self._lock = threading.Lock()
        self._start_anew()

    def _start_anew(self) -> None:
        self._asked = False
        self._cut_off = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._task: asyncio.Task[Any] | None = None

    def run(self, *, in_process: bool = False, lifeline: int | None = None) -> int:
        """Run to the end; return how. Reports what is raised.

        `lifeline`: a descriptor that becomes readable when the supervisor is gone.
        """
        own = [sock.dup() for sock in self._sockets]
        for sock in own:
            sock.setblocking(False)
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._run(tuple(own), in_process=in_process, lifeline=lifeline))
        except SystemExit as error:
            return ENDED if not error.code else CRASHED
        except asyncio.CancelledError:
            if not self._asked:
                logger.exception("worker %d was cancelled unexpectedly", self.number)
                return CRASHED
        except BaseException:  # whatever it is, the others go on
            logger.exception("worker %d failed", self.number)
            return CRASHED
        finally:
            with self._lock:
                self._loop = None
            for sock in own:
                sock.close()
        return CUT_OFF if self._cut_off else ENDED

    async def _run(
        self, sockets: tuple[socket.socket, ...], *, in_process: bool, lifeline: int | None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._worker = worker = Worker(self.number, self._count, sockets)
        self._task = task = loop.create_task(_called(self._main, worker))
        if in_process:
            loop.add_signal_handler(signal.SIGTERM, self._stop)
        if lifeline is not None:
            loop.add_reader(lifeline, self._pulled, loop, lifeline)
        with self._lock:
            self._loop = loop
            asked = self._asked
        if asked:
            self._stop()
        try:
            await task
        finally:
            if lifeline is not None:
                loop.remove_reader(lifeline)

    def _pulled(self, loop: asyncio.AbstractEventLoop, lifeline: int) -> None:
        """End: the supervisor is gone, or has had its second signal."""
        loop.remove_reader(lifeline)
        self._stop()
        if is_cut_off(lifeline):
            self._cancel()

    def begin(self) -> None:
        """Prepare for a start, the first or another."""
        self._start_anew()

    def tell(self, number: int) -> None:
        """Ask it to end, from any thread."""
        del number  # SIGTERM
        self._send(self._stop)

    def cut_off(self) -> None:
        """Cancel it, from any thread."""
        self._send(self._cancel)

    def _send(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._asked = True
            loop = self._loop
        if loop is not None:
            # Closed meanwhile: it has ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(callback)

    def _stop(self) -> None:
        """In the loop: end by the coroutine's own doing, or by cancelling it."""
        self._asked = True
        worker, task = self._worker, self._task
        if worker is None or task is None or worker._stop.is_set():
            return
        worker._stop.set()
        if worker._is_asked_for:
            asyncio.get_running_loop().call_later(self._grace, self._cancel)
        else:
            task.cancel()

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            logger.error("worker %d did not end in time and is cut off", self.number)
            self._cut_off = True
            self._task.cancel()


async def _called(main: Callable[[Worker], Coroutine[Any, Any, object]], worker: Worker) -> None:
    made: Any = main(worker)
    if not inspect.isawaitable(made):
        raise TypeError(
            f"{main!r} returned {made!r}: give a coroutine function that takes a Worker"
        )
    await made
