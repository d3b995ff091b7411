"""The event loop class: native for what runs once per callback, the standard library's elsewhere."""

from __future__ import annotations

import contextlib
import functools
import sys
from asyncio import base_events
from weakref import WeakValueDictionary

from ringloop import (
    _absent,
    _busy_polling,
    _connect,
    _dns,
    _driver,
    _end,
    _forever,
    _listen,
    _loops,
    _native,
    _own_io,
    _server,
    _signals,
    _sock,
    _subprocess,
    _system,
    _tls,
    _writes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor
    from os import PathLike
    from ssl import SSLContext
    from typing import Any, TypeVar, TypeVarTuple, Unpack

    from _typeshed import FileDescriptorLike, ReadableBuffer, WriteableBuffer

    from ringloop._driver import Driver
    from ringloop._slow import SlowHook, SlowLog
    from ringloop._writes import Writes
    from ringloop.metrics import LoopMetrics

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
    Ts = TypeVarTuple("Ts")

# What makes the transports of pipes.
_pipes: Any = _native
if _system.IS_WINDOWS:
    from ringloop import _proactor as _pipes


class Loop(_native.LoopCore, base_events.BaseEventLoop):
    """An event loop on io_uring or epoll.

    `driver` is "auto", "uring" (or "io_uring") or "epoll"; None leaves it to the environment's
    `RINGLOOP_DRIVER`, and that to "auto". A driver that this machine refuses raises `OSError` with the
    cause and the remedy. The attributes `driver` and `driver_reason` say which driver the loop uses and
    why; if "auto" cannot use io_uring, that is also logged, once per process, on the logger "ringloop"
    (INFO).

    `inbox_messages` is how many calls from other threads (`call_soon_threadsafe`) may wait for the
    running loop, 16,777,216 by default; one more raises `RuntimeError`. Every accepted call runs.

    `writes` is "gathered" or "eager": whether small writes of one turn may be sent together at its
    end, if the program cannot tell the difference, or each is sent at once. None leaves it to the
    environment's `RINGLOOP_WRITES`, and that to "gathered".

    `busy_polling` is how many seconds, at most 0.01, the loop polls for events before it sleeps: 0.00005
    saves a connection with one request in flight the wake-up time. It takes that time from other threads
    of the processor; a loop whose waits are longer soon stops polling. None leaves it
    to the environment's `RINGLOOP_BUSY_POLLING`, and that to 0: the loop sleeps at once.

    A subclass that defines `time()` gives the loop's timers their clock, as in asyncio. So does `time`
    set on the loop itself. One set on the class of a running loop takes effect with the next run.
    """

    def __init__(
        self,
        *,
        driver: Driver | None = None,
        inbox_messages: int | None = None,
        writes: Writes | None = None,
        busy_polling: float | None = None,
    ) -> None:
        eager, look_ns = _writes.are_eager(writes), _busy_polling.span_ns(busy_polling)
        if self._open(driver, type(self) is Loop, inbox_messages, eager, look_ns):
            _driver.tell_refusal(self)
        super().__init__()
        # The queues are native. An empty list that others read, or put callbacks into, would lie.
        del self._ready, self._scheduled
        self._signals = _signals.SignalState()
        # Its name in asyncio, which prompt_toolkit reads to put a handler back.
        self._signal_handlers = self._signals.handlers
        # By the object: its owner may have closed it.
        self._listeners: dict[socket.socket, Any] = {}
        self._children: dict[int, Any] = {}
        # Unix sockets to remove when their server stops, with their inode numbers.
        self._unix_server_sockets: dict[Any, int] = {}
        # Transports of sockets that do their own I/O, by descriptor; asyncio's classes write it.
        self._transports: WeakValueDictionary[int, Any] = WeakValueDictionary()
        # Descriptors of transports that hold still for `sendfile`, with its future once it waits.
        self._lent_descriptors: dict[int, Any] = {}
        # Sockets that a user has brought for endpoints in the making, by `id`.
        self._lent_sockets: set[int] = set()
        self._resolver = _dns.Resolver()
        self._executor_is_given = False
        # A program has replaced a part of the making of connections.
        self._has_own_parts = type(self) is not Loop and _connect.has_own_parts(type(self))
        _loops.add(self)

    # The first slow callback makes it.
    _slow_log: SlowLog | None = None
    _ready: Any = _absent.NativeQueue()
    _scheduled: Any = _absent.ScheduledTimers()
    _selector: Any = _absent.NativeQueue()
    _nest_patched: Any = _absent.NestPatched()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "_nest_patched"]

    def __repr__(self) -> str:
        return _driver.describe(self)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        base: Any = super()
        try:
            base.__del__()
        except (AttributeError, TypeError):
            # The interpreter has cleared the package's modules: the program's end, with this loop
            # still in the policy or in a module that was imported earlier. Uses none of their names.
            if not is_finalizing():
                raise
            self._close()
            self._signals.close_sockets()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in {"time", "call_at"}:
            self._look_for_clock()
        elif name in _connect.PARTS:
            self._has_own_parts = True

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in {"time", "call_at"}:
            self._look_for_clock()

    def run_forever(self) -> None:
        """Run until `stop()` is called."""
        _forever.run_forever(self)

    def close(self) -> None:
        """Close everything; the loop must not run."""
        _end.close(self)

    def metrics(self) -> LoopMetrics:
        """Return the loop's current metrics: lag, utilisation, queues, bytes, operations.

        Callable from any thread; docs/metrics.md describes each. asyncio has no such method.
        """
        from ringloop.metrics import _snapshot  # noqa: PLC0415 - not before it is wanted

        return _snapshot.snapshot(self)

    def set_slow_callback_hook(self, threshold: float, hook: SlowHook | None) -> None:
        """Call `hook(what, seconds)` after each callback that took at least `threshold` seconds.

        `what` is the task whose step it was, the handle, or the transport whose protocol was called.
        None removes the hook. Needs no debug mode; asyncio has no such method. Costs two reads of the
        clock per callback while a hook is set, and nothing otherwise. The hook runs in the
        loop's thread; its exceptions go to the loop's exception handler.
        """
        from ringloop import _slow  # noqa: PLC0415 - not before it is wanted

        _slow.set_hook(self, threshold, hook)

    def add_reader(
        self, fd: FileDescriptorLike, callback: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> None:
        """Call `callback(*args)` whenever `fd` is readable; replaces an earlier callback.

        `fd` is a descriptor, or an object with `fileno()`. Callable from any thread. RuntimeError: a
        transport of this loop uses it. OSError: the kernel cannot watch it, for example a regular file.
        """
        self._ensure_fd_no_transport(fd)
        self._add_reader(fd, callback, *args)

    def remove_reader(self, fd: FileDescriptorLike) -> bool:
        """Stop watching `fd` for reading; return whether it was watched."""
        self._ensure_fd_no_transport(fd)
        return self._remove_reader(fd)

    def add_writer(
        self, fd: FileDescriptorLike, callback: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> None:
        """Call `callback(*args)` whenever `fd` is writable; otherwise like `add_reader`."""
        self._ensure_fd_no_transport(fd)
        self._add_writer(fd, callback, *args)

    def remove_writer(self, fd: FileDescriptorLike) -> bool:
        """Stop watching `fd` for writing; return whether it was watched."""
        self._ensure_fd_no_transport(fd)
        return self._remove_writer(fd)

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> None:
        """Call `callback(*args)` in the loop when the signal arrives; replaces an earlier callback.

        Main thread only: elsewhere RuntimeError or ValueError, as on asyncio. RuntimeError for a
        signal that cannot be caught.
        """
        _signals.add(self, sig, callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the signal's handler; return whether there was one."""
        return _signals.remove(self, sig)

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:  # type: ignore[override]
        """Use `executor` for `run_in_executor(None, ...)`, and for name lookups.

        TypeError: it is not a `ThreadPoolExecutor`.
        """
        super().set_default_executor(executor)
        self._executor_is_given = True

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio's name for it
        proto: int = 0,
        flags: int = 0,
    ) -> list[tuple[Any, Any, int, str, Any]]:
        """Look up a host like `socket.getaddrinfo`, in the default executor; an address needs no thread.

        Returns `(family, type, proto, canonname, sockaddr)` for each address. socket.gaierror: the name
        is not known.
        """
        found: list[tuple[Any, Any, int, str, Any]] = await _dns.getaddrinfo(
            self, host, port, family, type, proto, flags
        )
        return found

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int = 0
    ) -> tuple[str, str]:
        """Look up an address like `socket.getnameinfo`; return the host and the service."""
        found: tuple[str, str] = await _dns.getnameinfo(self, sockaddr, flags)
        return found

    def _make_socket_transport(
        self,
        sock: Any,
        protocol: Any,
        waiter: Any = None,
        *,
        extra: Any = None,
        server: Any = None,
        context: Any = None,
    ) -> Any:
        del context
        _listen.refuse_second_transport(self, sock)
        if _own_io.does_its_own_io(sock):
            return _own_io.make_socket_transport(self, sock, protocol, waiter, extra, server)
        own = not self._is_lent(sock)
        return _native.make_socket_transport(self, sock, protocol, waiter, extra, server, own)

    def _make_ssl_transport(
        self, rawsock: Any, protocol: Any, sslcontext: Any, *args: Any, **kwargs: Any
    ) -> Any:
        _listen.refuse_second_transport(self, rawsock)
        kwargs.pop("call_connection_made", None)
        kwargs.pop("context", None)
        return _tls.make_ssl_transport(self, rawsock, protocol, sslcontext, *args, **kwargs)

    @contextlib.contextmanager
    def _lending(self, sock: Any) -> Iterator[None]:
        """Know `sock` for the user's while a transport of it is made; None for no transport."""
        self._lent_sockets.add(id(sock))
        try:
            yield
        finally:
            self._lent_sockets.discard(id(sock))

    def _is_lent(self, sock: Any) -> bool:
        return id(sock) in self._lent_sockets

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], ProtocolT],
        host: str | None = None,
        port: int | str | None = None,
        *,
        ssl: bool | SSLContext | None = None,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        sock: socket.socket | None = None,
        local_addr: tuple[str, int] | None = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        happy_eyeballs_delay: float | None = None,
        interleave: int | None = None,
        all_errors: bool = False,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Connect to a TCP server, or use `sock`, a connected stream socket.

        Returns the transport and `protocol_factory()`. `ssl`: True for a default context, which verifies
        `server_hostname` (`host` unless given); time limits are seconds, 60 and 30 by default.
        `happy_eyeballs_delay`: seconds before the next address is tried alongside one that does not
        answer (RFC 8305); None tries them one after another. `interleave`: how many addresses of the
        first family go before those of the other. `all_errors` (3.12): an ExceptionGroup of every
        failure.

        OSError: no address could be reached. ssl.SSLError: the handshake failed. See
        `asyncio.loop.create_connection`.
        """
        is_plain = (
            sock is None
            and not (ssl or family or proto or flags or local_addr or interleave or all_errors)
            and happy_eyeballs_delay is None
            and server_hostname is None
            and ssl_handshake_timeout is None
            and ssl_shutdown_timeout is None
        )
        if is_plain and (found := _connect.address_of(self, host, port)):
            return await _connect.create_connection(self, protocol_factory, *found)
        base: Any = super()
        newer = {"all_errors": True} if all_errors else {}
        with self._lending(sock):
            made: tuple[asyncio.Transport, ProtocolT] = await base.create_connection(
                protocol_factory,
                host,
                port,
                ssl=ssl,
                family=family,
                proto=proto,
                flags=flags,
                sock=sock,
                local_addr=local_addr,
                server_hostname=server_hostname,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
                happy_eyeballs_delay=happy_eyeballs_delay,
                interleave=interleave,
                **newer,
            )
            return made

    async def create_unix_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], ProtocolT],
        path: str | bytes | PathLike[str] | None = None,
        *,
        ssl: bool | SSLContext | None = None,
        sock: socket.socket | None = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Connect to the Unix socket `path`, or use `sock`; otherwise like `create_connection`.

        A `path` that begins with a null byte is an abstract name. `ssl` needs a `server_hostname`.
        """
        with self._lending(sock):
            made: tuple[asyncio.Transport, ProtocolT] = await self._create_unix_connection(
                protocol_factory,
                path,
                ssl=ssl,
                sock=sock,
                server_hostname=server_hostname,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
            return made

    async def connect_accepted_socket(
        self,
        protocol_factory: Callable[[], ProtocolT],
        sock: socket.socket,
        *,
        ssl: bool | SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Serve `sock`, a connection accepted elsewhere; `ssl` is a server's context.

        Time limits are seconds, 60 and 30 by default. ValueError: it is not a stream socket.
        """
        with self._lending(sock):
            return await super().connect_accepted_socket(
                protocol_factory,
                sock,
                ssl=ssl,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], ProtocolT],
        local_addr: tuple[str, int] | str | None = None,
        remote_addr: tuple[str, int] | str | None = None,
        *,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        reuse_port: bool | None = None,
        allow_broadcast: bool | None = None,
        sock: socket.socket | None = None,
    ) -> tuple[asyncio.DatagramTransport, ProtocolT]:
        """Make a datagram socket, or use `sock`, whose options are left as they are.

        It is bound to `local_addr` and connected to `remote_addr`: pairs, or paths with
        `family=socket.AF_UNIX`. `reuse_port`: others may also bind the address (SO_REUSEPORT).
        `allow_broadcast`: it may send to broadcast addresses (SO_BROADCAST).

        OSError: an address cannot be found, bound or connected. ValueError: `sock` and others.
        See `asyncio.loop.create_datagram_endpoint`.
        """
        with self._lending(sock):
            return await super().create_datagram_endpoint(
                protocol_factory,
                local_addr,
                remote_addr,
                family=family,
                proto=proto,
                flags=flags,
                reuse_port=reuse_port,
                allow_broadcast=allow_broadcast,
                sock=sock,
            )

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        sslcontext: SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> asyncio.Transport:
        """Upgrade `transport` to TLS; return the new transport of `protocol`.

        Time limits are seconds, 60 and 30 by default. TypeError: the transport cannot be upgraded.
        ssl.SSLError, ConnectionError, TimeoutError: the handshake failed, and the transport is closed.
        """
        upgraded: asyncio.Transport = await _tls.start_tls(
            self,
            transport,
            protocol,
            sslcontext,
            server_side=server_side,
            server_hostname=server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        return upgraded

    def _make_datagram_transport(
        self, sock: Any, protocol: Any, address: Any = None, waiter: Any = None, extra: Any = None
    ) -> Any:
        _listen.refuse_second_transport(self, sock)
        if _own_io.does_its_own_io(sock):
            return _own_io.make_datagram_transport(self, sock, protocol, address, waiter, extra)
        own = not self._is_lent(sock)
        return _native.make_datagram_transport(self, sock, protocol, address, waiter, extra, own)

    def _make_read_pipe_transport(
        self, pipe: Any, protocol: Any, waiter: Any = None, extra: Any = None
    ) -> Any:
        return _pipes.make_read_pipe_transport(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self, pipe: Any, protocol: Any, waiter: Any = None, extra: Any = None
    ) -> Any:
        return _pipes.make_write_pipe_transport(self, pipe, protocol, waiter, extra)

    async def _make_subprocess_transport(self, *args: Any, **kwargs: Any) -> Any:
        return await _subprocess.make_transport(self, *args, **kwargs)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        family: int = 0,
        flags: int = 1,  # socket.AI_PASSIVE
        sock: socket.socket | None = None,
        backlog: int = 100,
        ssl: SSLContext | None = None,
        reuse_address: bool | None = None,
        reuse_port: bool | None = None,
        keep_alive: bool | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
        max_connections: int | None = None,
    ) -> _server.Server:
        """Make a TCP server on one or several hosts, or on the bound socket `sock`.

        `host`: None or "" for all addresses; `port`: 0 for a free one. `backlog`: how many connections
        the kernel queues until they are accepted (listen(2)). `reuse_address`: None means true, as on
        every Unix. `reuse_port`: others may also bind the address. `keep_alive` (3.13): SO_KEEPALIVE of
        connections. TLS time limits are seconds, 60 and 30 by default.

        `max_connections`: how many may be open at once; others wait in the kernel's backlog. None for
        no limit. `asyncio.start_server` passes it on.

        OSError: an address cannot be bound. See `asyncio.loop.create_server`.
        """
        options: dict[str, Any] = {
            "family": family,
            "flags": flags,
            "sock": sock,
            "backlog": backlog,
            "ssl": ssl,
            "reuse_address": reuse_address,
            "reuse_port": reuse_port,
            "ssl_handshake_timeout": ssl_handshake_timeout,
            "ssl_shutdown_timeout": ssl_shutdown_timeout,
        }
        if keep_alive is not None:
            options["keep_alive"] = keep_alive
        make = functools.partial(super().create_server, protocol_factory, host, port)
        limits: Any = {"max_connections": max_connections, "start_serving": start_serving}
        return await _server.create(make, options, **limits)

    async def create_unix_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        path: str | bytes | PathLike[str] | None = None,
        *,
        sock: socket.socket | None = None,
        backlog: int = 100,
        ssl: SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
        cleanup_socket: bool = True,
        max_connections: int | None = None,
    ) -> _server.Server:
        """Make a server on the Unix socket `path`, or on `sock`; otherwise like `create_server`.

        A `path` that begins with a null byte is an abstract name; an existing socket is replaced.
        `cleanup_socket` (3.13): the file is removed when the server is closed.
        """
        options: dict[str, Any] = {
            "sock": sock,
            "backlog": backlog,
            "ssl": ssl,
            "ssl_handshake_timeout": ssl_handshake_timeout,
            "ssl_shutdown_timeout": ssl_shutdown_timeout,
        }
        if not cleanup_socket:
            options["cleanup_socket"] = False
        make = functools.partial(self._create_unix_server, protocol_factory, path)
        limits: Any = {"max_connections": max_connections, "start_serving": start_serving}
        return await _server.create(make, options, **limits)

    def _start_serving(self, *args: Any, **kwargs: Any) -> None:
        _listen.start_serving(self, *args, **kwargs)

    def _stop_serving(self, sock: Any) -> None:
        _listen.stop_serving(self, sock)

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        _listen.ensure_no_transport(self, fd)

    async def sock_recv(self, sock: socket.socket, nbytes: int) -> bytes:
        """Receive at most `nbytes` bytes; `b""` is the end. If cancelled, it has consumed nothing."""
        data: bytes = await _sock.finish(self._begin_recv(sock, nbytes))
        return data

    async def sock_recv_into(self, sock: socket.socket, buf: WriteableBuffer) -> int:
        """Receive into `buf`; return the number of bytes, 0 at the end."""
        count: int = await _sock.finish(self._begin_recv_into(sock, buf))
        return count

    async def sock_recvfrom(self, sock: socket.socket, bufsize: int) -> tuple[bytes, Any]:
        """Receive a datagram of at most `bufsize` bytes; return it and its sender's address."""
        datagram: tuple[bytes, Any] = await _sock.finish(
            self._begin_call(sock, "recvfrom", (bufsize,), False)
        )
        return datagram

    async def sock_recvfrom_into(
        self, sock: socket.socket, buf: WriteableBuffer, nbytes: int = 0
    ) -> tuple[int, Any]:
        """Receive a datagram into `buf`; return its size and its sender's address.

        `nbytes`: the maximum number of bytes; 0 for the size of `buf`.
        """
        answer = self._begin_call(sock, "recvfrom_into", (buf, nbytes or len(buf)), False)  # type: ignore[arg-type]
        size: tuple[int, Any] = await _sock.finish(answer)
        return size

    async def sock_sendall(self, sock: socket.socket, data: ReadableBuffer) -> None:
        """Send all of `data`; if it is cancelled or fails, how much was sent is unknown."""
        await _sock.finish(self._begin_sendall(sock, data))

    async def sock_sendto(self, sock: socket.socket, data: ReadableBuffer, address: Any) -> int:
        """Send a datagram to `address`; return the number of bytes sent."""
        count: int = await _sock.finish(self._begin_call(sock, "sendto", (data, address), True))
        return count

    async def sock_recvmsg(
        self, sock: socket.socket, bufsize: int, ancbufsize: int = 0, flags: int = 0
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """Receive a message; returns the same as `socket.recvmsg`, descriptors included.

        asyncio has no such method. A cancelled call has consumed no message and no descriptor.
        """
        answer = self._begin_call(sock, "recvmsg", (bufsize, ancbufsize, flags), False)
        message: tuple[bytes, list[tuple[int, int, bytes]], int, Any] = await _sock.finish(answer)
        return message

    async def sock_sendmsg(
        self,
        sock: socket.socket,
        buffers: Iterable[ReadableBuffer],
        ancdata: Iterable[tuple[int, int, ReadableBuffer]] = (),
        flags: int = 0,
        address: Any = None,
    ) -> int:
        """Send a message like `socket.sendmsg`; return the number of bytes sent.

        asyncio has no such method. The ancillary data goes with the first byte; if a stream socket
        takes only part of the buffers, send the rest with `sock_sendall`.
        """
        # Tried again after a wait: an iterator would be empty by then.
        answer = self._begin_call(
            sock, "sendmsg", (tuple(buffers), tuple(ancdata), flags, address), True
        )
        count: int = await _sock.finish(answer)
        return count

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect to `address`; a host name is resolved first. OSError: it cannot be reached."""
        await _sock.connect(self, sock, address)

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        """Accept a connection; return its socket and its peer's address."""
        accepted: tuple[socket.socket, Any] = await _sock.finish(self._begin_accept(sock))
        return accepted

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int) -> int:
        return await _sock.sendfile_native(self, transp, file, offset, count)

    def _sock_sendfile_native_impl(self, done: Any, *state: Any) -> None:
        _sock.sendfile_step(self, done, *state)

    # The standard library's own, each version's, on our sockets, watchers and transports.
    _unix: Any = _system.UnixLoop
    _create_unix_connection = _unix.create_unix_connection
    _create_unix_server = _unix.create_unix_server
    _sock_sendfile_native = _unix._sock_sendfile_native
    if _system.IS_WINDOWS:
        # Made for the first pipe or child.
        _proactor = functools.cached_property(_pipes.Proactor)
        _make_duplex_pipe_transport = _pipes.ProactorLoop._make_duplex_pipe_transport
        create_pipe_connection = _pipes.ProactorLoop.create_pipe_connection
        start_serving_pipe = _pipes.ProactorLoop.start_serving_pipe
    else:
        _sock_sendfile_update_filepos = _unix._sock_sendfile_update_filepos
        _sock_add_cancellation_callback = _unix._sock_add_cancellation_callback
    del _unix
