"""The event loop class: native where it runs once a callback, the standard library's elsewhere."""

from __future__ import annotations

from asyncio import base_events, selector_events
from typing import TYPE_CHECKING, Any

from ringloop import _forever, _listen, _missing, _native, _signals, _tls

if TYPE_CHECKING:
    from collections.abc import Callable


@_missing.add_to
class Loop(_native.LoopCore, base_events.BaseEventLoop):
    """An event loop on io_uring or epoll.

    `driver` is "auto", "uring" or "epoll"; None leaves it to the environment's `RINGLOOP_DRIVER`, and
    that to "auto". A driver that this machine refuses raises `OSError` with the cause and the remedy.
    """

    def __init__(self, *, driver: str | None = None) -> None:
        self._open(driver, type(self) is Loop)
        super().__init__()
        self._signals = _signals.SignalState()
        self._listeners: dict[int, Any] = {}

    def run_forever(self) -> None:
        """Run until `stop()` is called."""
        _forever.run_forever(self)

    def close(self) -> None:
        """Let go of everything; the loop must not run."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if not self.is_closed():
            _signals.close(self)
            super().close()
            self._close()

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` whenever `fd` has data."""
        self._ensure_fd_no_transport(fd)
        self._add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        """Stop watching `fd` for data; say whether it was watched."""
        self._ensure_fd_no_transport(fd)
        return self._remove_reader(fd)

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` whenever `fd` has room."""
        self._ensure_fd_no_transport(fd)
        self._add_writer(fd, callback, *args)

    def remove_writer(self, fd: Any) -> bool:
        """Stop watching `fd` for room; say whether it was watched."""
        self._ensure_fd_no_transport(fd)
        return self._remove_writer(fd)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` in the loop when the signal arrives; main thread only."""
        _signals.add(self, sig, callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Forget the signal's handler; say whether there was one."""
        return _signals.remove(self, sig)

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
        return _native.make_socket_transport(self, sock, protocol, waiter, extra, server)

    def _make_ssl_transport(self, rawsock: Any, protocol: Any, sslcontext: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("call_connection_made", None)
        kwargs.pop("context", None)
        return _tls.make_ssl_transport(self, rawsock, protocol, sslcontext, *args, **kwargs)

    def _start_serving(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("context", None)
        _listen.start_serving(self, *args, **kwargs)

    def _stop_serving(self, sock: Any) -> None:
        _listen.stop_serving(self, sock)

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        _listen.ensure_no_transport(self, fd)

    # The standard library's own, on our `_add_writer`.
    sock_connect = selector_events.BaseSelectorEventLoop.sock_connect
    _sock_connect = selector_events.BaseSelectorEventLoop._sock_connect
    _sock_connect_cb = selector_events.BaseSelectorEventLoop._sock_connect_cb
    _sock_write_done = selector_events.BaseSelectorEventLoop._sock_write_done


