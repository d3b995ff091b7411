"""Metrics for others: a Unix socket for `python -m ringloop top`, HTTP for browsers and Prometheus.

Both run in separate threads, from `serve` or `serve_http` to the `close()` of their result: a blocked
loop could not answer, and that is when the metrics matter.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import http.server
import json
import os
import socket
import socketserver
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ringloop import __version__, _system
from ringloop.metrics._prometheus import prometheus
from ringloop.metrics._snapshot import snapshots

if TYPE_CHECKING:
    from types import TracebackType

# Clients at a time; more are turned away.
CLIENTS_MAX = 8
# A client that asks for nothing for this long is gone.
QUIET_SECONDS_MAX = 60.0
PAGE = Path(__file__).with_name("page.html")
PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def report() -> dict[str, Any]:
    """Return the metrics of this process, ready for JSON."""
    return {
        "pid": os.getpid(),
        "program": sys.argv[0] if sys.argv else "",
        "python": sys.version.partition(" ")[0],
        "ringloop": __version__,
        "time": time.time(),
        "loops": [loop.as_dict() for loop in snapshots()],
    }


def folder() -> Path:
    """Return this user's folder of sockets; it may not exist yet."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime, "ringloop")
    return Path(tempfile.gettempdir(), f"ringloop-{os.getuid()}")


def checked_folder() -> Path:
    """Make the folder if need be; OSError unless it is this user's and closed to all others."""
    path = folder()
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{path} is not a folder that only this user may enter: remove it, or set XDG_RUNTIME_DIR"
        )
    return path


class _Handler(socketserver.StreamRequestHandler):
    """A line of JSON for each line of the client, which is the user that runs the process, or root."""

    timeout = QUIET_SECONDS_MAX

    def handle(self) -> None:
        if _system.peer_uid(self.connection) not in {0, os.geteuid()}:
            return
        with contextlib.suppress(OSError):
            while self.rfile.readline(64):
                self.wfile.write(json.dumps(report()).encode() + b"\n")


class _Bounded(socketserver.ThreadingMixIn):
    """Serves each client in a thread, a few at a time."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(CLIENTS_MAX)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        server: Any = super()
        if not self._places.acquire(blocking=False):
            server.shutdown_request(request)
            return
        try:
            server.process_request(request, client_address)
        except BaseException:
            # No thread was begun, which would release it.
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        server: Any = super()
        try:
            server.process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: disconnecting clients are normal."""


# On Windows there are none, and `serve` refuses.
_UnixServers: Any = getattr(socketserver, "ThreadingUnixStreamServer", socketserver.TCPServer)


class _UnixServer(_Bounded, _UnixServers):  # type: ignore[misc]
    request_queue_size = CLIENTS_MAX


class _HTTPServer(_Bounded, http.server.HTTPServer):
    request_queue_size = CLIENTS_MAX

    def server_bind(self) -> None:
        # Without the look-up of the host's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]


class _HTTPHandler(http.server.BaseHTTPRequestHandler):
    """`/`, `/metrics` and `/metrics.json`."""

    timeout = QUIET_SECONDS_MAX
    server_version = f"ringloop/{__version__}"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer("text/html; charset=utf-8", PAGE.read_text("utf-8"))
        elif path == "/metrics":
            self._answer(PROMETHEUS_TYPE, prometheus())
        elif path == "/metrics.json":
            self._answer("application/json", json.dumps(report()))
        else:
            self.send_error(404, "there are /, /metrics and /metrics.json")

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


# The sockets of this process, by their paths.
_served: dict[str, Serving] = {}


class Serving:
    """What `serve` and `serve_http` return: an open server, until `close()` or the end of a block.

    `address` is the path of the socket, or host and port; `url` is the page's address, or None.
    """

    def __init__(self, server: Any, path: Path | None) -> None:
        # Emptied by the first `close()`: without a lock, because a signal handler may call it, too.
        self._open = [server]
        self._path = path
        self._process = os.getpid()
        self.address: Any = str(path) if path is not None else server.server_address[:2]
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.1,), name="ringloop metrics", daemon=True
        )
        contextvars.Context().run(self._thread.start)

    @property
    def url(self) -> str | None:
        """The address of the page with plots."""
        if self._path is not None:
            return None
        host, port = self.address
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def is_open(self) -> bool:
        """Whether it serves; a child of fork does not."""
        return bool(self._open) and self._process == os.getpid()

    def close(self) -> None:
        """Stop serving; returns once the thread has ended. Does nothing in a forked child."""
        atexit.unregister(self.close)
        try:
            server = self._open.pop()
        except IndexError:
            return
        if self._process != os.getpid():
            return
        server.shutdown()
        self._thread.join()
        server.server_close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def serve(path: str | os.PathLike[str] | None = None) -> Serving:
    """Offer the metrics of this process to `python -m ringloop top`, on a Unix socket.

    Without a path, it is one that `top` finds by the process's id, in a folder that only this user may
    enter. The socket has mode 0600 and answers this user and root. `RINGLOOP_TOP=1` in the environment
    does this with the first loop that is made. The socket is removed by `close()`, or at the end of the
    process. A second call returns the open server. OSError if the socket cannot be created;
    NotImplementedError on Windows, where `serve_http` works.
    """
    _system.require_unix("metrics on a Unix socket")
    place = checked_folder() / f"{os.getpid()}.sock" if path is None else Path(path)
    known = _served.get(str(place))
    if known is not None and known.is_open():
        return known
    if place.is_socket() and not _answers(place):
        # Left by a process that was killed.
        place.unlink()
    try:
        server = _UnixServer(str(place), _Handler)
    except OSError as error:
        error.filename = error.filename or str(place)
        raise
    # Until then the folder, or the handler, keeps others out.
    place.chmod(0o600)
    serving = _served[str(place)] = Serving(server, place)
    atexit.register(serving.close)
    return serving


def serve_http(host: str = "127.0.0.1", port: int = 0) -> Serving:
    """Serve a page with plots at `/`, text for Prometheus at `/metrics`, and `/metrics.json`.

    Anyone who can connect may read it: it contains names of threads and slow callbacks, no data. Port 0
    chooses a free one, shown in `url`. OSError if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = type("_Server", (_HTTPServer,), {"address_family": family})
    return Serving(kind((host, port), _HTTPHandler), None)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        return client.connect_ex(str(path)) == 0
