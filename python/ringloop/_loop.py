"""The event loop class: native where it runs once a callback, the standard library's elsewhere."""

from __future__ import annotations

import contextlib
from asyncio import base_events, unix_events
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack
from weakref import WeakValueDictionary

from ringloop import (
    _absent,
    _dns,
    _driver,
    _end,
    _forever,
    _listen,
    _native,
    _own_io,
    _signals,
    _sock,
    _subprocess,
    _tls,
    _writes,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator

Ts = TypeVarTuple("Ts")


class Loop(_native.LoopCore, base_events.BaseEventLoop):
    """An event loop on io_uring or epoll.

    `driver` is "auto", "uring" (or "io_uring") or "epoll"; None leaves it to the environment's
    `RINGLOOP_DRIVER`, and that to "auto". A driver that this machine refuses raises `OSError` with the
    cause and the remedy. What the loop has, and why, is in `driver` and `driver_reason`; that "auto" had
    to do without io_uring is also logged, once a process, on the logger "ringloop" (INFO).

    `inbox_messages` is how many calls of other threads (`call_soon_threadsafe`) may wait for the
    running loop, 16,777,216 by default: one more raises `RuntimeError`, and every call that was taken
    runs.

    `writes` is "gathered" or "eager": whether small writes of one turn may leave together at its
    end, where nothing shows it, or each leaves at once. None leaves it to the environment's
    `RINGLOOP_WRITES`, and that to "gathered".

    A subclass that defines `time()` gives the loop's timers their clock, as in asyncio. So does `time`
    set on the loop itself. One that is set on the class of a running loop counts from the next run on.
    """

    def __init__(
        self,
        *,
        driver: str | None = None,
        inbox_messages: int | None = None,
        writes: str | None = None,
    ) -> None:
        eager = _writes.are_eager(writes)
        if self._open(driver, type(self) is Loop, inbox_messages, eager):
            _driver.tell_refusal(self)
        super().__init__()
        # The queues are native. An empty list that others read, or put callbacks into, would lie.
        del self._ready, self._scheduled
        self._signals = _signals.SignalState()
        # By the object: its owner may have closed it.
        self._listeners: dict[socket.socket, Any] = {}
        self._children: dict[int, Any] = {}
        # Unix sockets to remove when their server stops, with their inode numbers.
        self._unix_server_sockets: dict[Any, int] = {}
        # Transports of sockets that do their own I/O, by descriptor; asyncio's classes write it.
        self._transports: WeakValueDictionary[int, Any] = WeakValueDictionary()
        # Descriptors of transports that hold still for `sendfile`.
        self._lent_descriptors: set[int] = set()
        # Sockets that a user has brought for endpoints in the making.
        self._lent_sockets: list[Any] = []
        self._resolver = _dns.Resolver()
        self._executor_is_given = False

    _ready: Any = _absent.NativeQueue()
    _scheduled: Any = _absent.NativeQueue()
    _selector: Any = _absent.NativeQueue()
    _nest_patched: Any = _absent.NestPatched()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "_nest_patched"]

    def __repr__(self) -> str:
        return _driver.describe(self)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "time":
            self._look_for_clock()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "time":
            self._look_for_clock()

    def run_forever(self) -> None:
        """Run until `stop()` is called."""
        _forever.run_forever(self)

    def close(self) -> None:
        """Close everything; the loop must not run."""
        _end.close(self)

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call `callback` whenever `fd` has data."""
        self._ensure_fd_no_transport(fd)
        self._add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        """Stop watching `fd` for data; say whether it was watched."""
        self._ensure_fd_no_transport(fd)
        return self._remove_reader(fd)

    def add_writer(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call `callback` whenever `fd` has room."""
        self._ensure_fd_no_transport(fd)
        self._add_writer(fd, callback, *args)

    def remove_writer(self, fd: Any) -> bool:
        """Stop watching `fd` for room; say whether it was watched."""
        self._ensure_fd_no_transport(fd)
        return self._remove_writer(fd)

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> None:
        """Call `callback` in the loop when the signal arrives; main thread only."""
        _signals.add(self, sig, callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Forget the signal's handler; say whether there was one."""
        return _signals.remove(self, sig)

    def set_default_executor(self, executor: Any) -> None:
        """Use `executor` for `run_in_executor(None, ...)`, and for name lookups."""
        super().set_default_executor(executor)
        self._executor_is_given = True

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio's name for it
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """Look a host up, as `socket.getaddrinfo`; an address needs no thread."""
        return await _dns.getaddrinfo(self, host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        """Look an address up, as `socket.getnameinfo`."""
        return await _dns.getnameinfo(self, sockaddr, flags)

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
        self._lent_sockets.append(sock)
        try:
            yield
        finally:
            self._lent_sockets.remove(sock)

    def _is_lent(self, sock: Any) -> bool:
        return any(sock is lent for lent in self._lent_sockets)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        """Connect to a TCP server; see `asyncio.loop.create_connection`."""
        with self._lending(sock):
            return await super().create_connection(
                protocol_factory, host, port, sock=sock, **options
            )

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Any, path: Any = None, *, sock: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """Connect to a Unix server; see `asyncio.loop.create_unix_connection`."""
        with self._lending(sock):
            made: tuple[Any, Any] = await self._create_unix_connection(
                protocol_factory, path, sock=sock, **options
            )
            return made

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Any, sock: Any, **options: Any
    ) -> tuple[Any, Any]:
        """Handle a connection accepted elsewhere; see `asyncio.loop.connect_accepted_socket`."""
        with self._lending(sock):
            return await super().connect_accepted_socket(protocol_factory, sock, **options)

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Any,
        local_addr: Any = None,
        remote_addr: Any = None,
        *,
        sock: Any = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        """Create a datagram connection; see `asyncio.loop.create_datagram_endpoint`."""
        # The options of the user's socket stay as they are.
        with self._lending(sock):
            return await super().create_datagram_endpoint(
                protocol_factory, local_addr, remote_addr, sock=sock, **options
            )

    async def start_tls(self, transport: Any, protocol: Any, sslcontext: Any, **kwargs: Any) -> Any:
        """Upgrade `transport` to TLS; return the new transport of `protocol`."""
        return await _tls.start_tls(self, transport, protocol, sslcontext, **kwargs)

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
        return _native.make_read_pipe_transport(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self, pipe: Any, protocol: Any, waiter: Any = None, extra: Any = None
    ) -> Any:
        return _native.make_write_pipe_transport(self, pipe, protocol, waiter, extra)

    async def _make_subprocess_transport(self, *args: Any, **kwargs: Any) -> Any:
        return await _subprocess.make_transport(self, *args, **kwargs)

    def _start_serving(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("context", None)
        _listen.start_serving(self, *args, **kwargs)

    def _stop_serving(self, sock: Any) -> None:
        _listen.stop_serving(self, sock)

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        _listen.ensure_no_transport(self, fd)

    async def sock_recv(self, sock: Any, nbytes: int) -> bytes:
        """Receive at most `nbytes` bytes."""
        data: bytes = await _sock.finish(self._begin_recv(sock, nbytes))
        return data

    async def sock_recv_into(self, sock: Any, buf: Any) -> int:
        """Receive into `buf`; return how many bytes came."""
        count: int = await _sock.finish(self._begin_recv_into(sock, buf))
        return count

    async def sock_recvfrom(self, sock: Any, bufsize: int) -> tuple[bytes, Any]:
        """Receive a datagram of at most `bufsize` bytes; return it and its sender's address."""
        datagram: tuple[bytes, Any] = await _sock.finish(
            self._begin_call(sock, "recvfrom", (bufsize,), False)
        )
        return datagram

    async def sock_recvfrom_into(self, sock: Any, buf: Any, nbytes: int = 0) -> tuple[int, Any]:
        """Receive a datagram into `buf`; return its size and its sender's address."""
        answer = self._begin_call(sock, "recvfrom_into", (buf, nbytes or len(buf)), False)
        size: tuple[int, Any] = await _sock.finish(answer)
        return size

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        """Send all of `data`."""
        await _sock.finish(self._begin_sendall(sock, data))

    async def sock_sendto(self, sock: Any, data: Any, address: Any) -> int:
        """Send a datagram to `address`; return how many bytes went."""
        count: int = await _sock.finish(self._begin_call(sock, "sendto", (data, address), True))
        return count

    async def sock_recvmsg(
        self, sock: Any, bufsize: int, ancbufsize: int = 0, flags: int = 0
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """Receive a message; return what `socket.recvmsg` does, descriptors included.

        asyncio has no such method. One that is cancelled has taken no message and no descriptor.
        """
        answer = self._begin_call(sock, "recvmsg", (bufsize, ancbufsize, flags), False)
        message: tuple[bytes, list[tuple[int, int, bytes]], int, Any] = await _sock.finish(answer)
        return message

    async def sock_sendmsg(
        self,
        sock: Any,
        buffers: Iterable[Any],
        ancdata: Iterable[tuple[int, int, Any]] = (),
        flags: int = 0,
        address: Any = None,
    ) -> int:
        """Send a message as `socket.sendmsg` does; return how many bytes went.

        asyncio has no such method. The ancillary data goes with the first byte; where a stream socket
        took a part of the buffers, the rest is for `sock_sendall`.
        """
        # Tried again after a wait: an iterator would be empty by then.
        answer = self._begin_call(
            sock, "sendmsg", (tuple(buffers), tuple(ancdata), flags, address), True
        )
        count: int = await _sock.finish(answer)
        return count

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect to `address`; a host name is resolved first."""
        await _sock.connect(self, sock, address)

    async def sock_accept(self, sock: Any) -> tuple[Any, Any]:
        """Accept a connection; return its socket and its peer's address."""
        accepted: tuple[Any, Any] = await _sock.finish(self._begin_accept(sock))
        return accepted

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int) -> int:
        return await _sock.sendfile_native(self, transp, file, offset, count)

    # The standard library's own, each version's, on our sockets, watchers and transports.
    _unix: Any = unix_events._UnixSelectorEventLoop
    _create_unix_connection = _unix.create_unix_connection
    create_unix_server = _unix.create_unix_server
    _sock_sendfile_native = _unix._sock_sendfile_native
    _sock_sendfile_native_impl = _unix._sock_sendfile_native_impl
    _sock_sendfile_update_filepos = _unix._sock_sendfile_update_filepos
    _sock_add_cancellation_callback = _unix._sock_add_cancellation_callback
    del _unix
