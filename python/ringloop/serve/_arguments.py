"""The command line: `python -m ringloop serve`."""

from __future__ import annotations

import argparse
import functools
import logging.config
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from uvicorn.config import LOG_LEVELS, LOGGING_CONFIG

import ringloop
from ringloop._output import tell
from ringloop.serve._dev import DevCertificate, hint
from ringloop.serve._listen import bound
from ringloop.serve._runner import CUT_OFF
from ringloop.serve._settings import Settings, checked_workers, parse_address
from ringloop.serve._workers import run

if TYPE_CHECKING:
    from ringloop.serve._runner import LoopFactory

__all__ = ["add_arguments", "serve"]

_EPILOG = """\
The first SIGTERM or SIGINT ends the server once open requests have ended, the second one at once; SIGHUP
reloads the certificates.

Exit status: 0 after a signal; 1 if requests were cut off, or an address or a certificate cannot be used;
2 for a usage error; 3 if the application did not start.
"""


def add_arguments(commands: Any) -> None:
    """Add the command to those of `python -m ringloop`."""
    parser = commands.add_parser(
        "serve",
        help="serve an ASGI application over HTTP/3 and HTTP/1.1",
        description="Serve an ASGI application: HTTP/3 with WebSocket and WebTransport;"
        " HTTP/1.1 and WebSocket through uvicorn.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=functools.partial(serve, parser))
    add = parser.add_argument
    add("app", metavar="MODULE:ATTRIBUTE", help="the application, for example app:app")
    add(
        "--factory",
        action="store_true",
        help="the attribute is a function that returns the application",
    )
    add(
        "--app-dir",
        default=".",
        metavar="DIR",
        help="where to look for the module first (%(default)s)",
    )
    _add_addresses(parser)
    _add_certificates(parser)
    _add_workers(parser)
    _add_limits(parser)


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("addresses", "HOST:PORT, [IPV6]:PORT, or :PORT for all")
    add = group.add_argument
    add(
        "--bind",
        type=_address,
        default=("127.0.0.1", 8443),
        metavar="ADDRESS",
        help="HTTP/1.1, over TLS (127.0.0.1:8443)",
    )
    add("--quic-bind", type=_address, metavar="ADDRESS", help="HTTP/3 (default: as --bind)")
    add("--no-tcp", action="store_true", help="serve HTTP/3 only; needs --quic-bind")
    add("--root-path", default="", metavar="PATH", help="the path prefix that a proxy strips")


def _add_certificates(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("certificates", "PEM files: RSA, ECDSA or Ed25519")
    add = group.add_argument
    add(
        "--dev",
        action="store_true",
        help="make one for local development, and say how to have a browser accept it",
    )
    add("--cert", metavar="FILE", help="the certificate and its chain")
    add("--key", metavar="FILE", help="its key, without a password")
    add(
        "--sni",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "CERT", "KEY"),
        help="another certificate, for clients that ask for this name; may be repeated",
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workers")
    add = group.add_argument
    add(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of workers that share the addresses (1)",
    )
    add(
        "--workers-as",
        choices=["process", "thread"],
        help="kind of worker (threads if Python is free-threaded, otherwise processes)",
    )
    add(
        "--loop",
        choices=["ringloop", "asyncio"],
        default="ringloop",
        help="which loop to use (%(default)s)",
    )
    add("--driver", choices=["auto", "uring", "epoll"], help="the driver of ringloop's loop")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("behaviour")
    add = group.add_argument
    add(
        "--lifespan",
        choices=["auto", "on", "off"],
        default="auto",
        help="whether to send the application lifespan events (%(default)s)",
    )
    add(
        "--graceful-seconds",
        type=int,
        default=30,
        metavar="N",
        help="time that open requests have at shutdown (%(default)s)",
    )
    add(
        "--alt-svc-seconds",
        type=int,
        default=86400,
        metavar="N",
        help="how long HTTP/1.1 clients remember HTTP/3; 0: not advertised (%(default)s)",
    )
    add(
        "--alt-svc-port",
        type=int,
        default=0,
        metavar="N",
        help="the port of HTTP/3 that clients see, if a router or a container translates it",
    )
    add(
        "--websocket-bytes-max",
        type=int,
        default=16 << 20,
        metavar="N",
        help="largest WebSocket message (%(default)s)",
    )
    add("--max-connections", type=int, metavar="N", help="HTTP/3 connections per worker (65536)")
    add(
        "--retry",
        choices=["never", "always", "auto"],
        default="auto",
        help="whether HTTP/3 clients must prove their address first (%(default)s)",
    )
    add("--log-level", choices=list(LOG_LEVELS), default="info", help="(%(default)s)")
    add("--no-access-log", action="store_true", help="do not log requests")


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def serve(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> int:
    """Serve as the command line asks; return the exit status."""
    has_files = asked.cert is not None and asked.key is not None
    if asked.dev and (asked.cert or asked.key or asked.sni):
        parser.error("--dev makes the certificate: leave out --cert, --key and --sni")
    if not asked.dev and not has_files:
        parser.error("HTTP/3 needs a certificate: give --cert FILE and --key FILE, or --dev")
    if asked.driver is not None and asked.loop != "ringloop":
        parser.error("--driver applies to ringloop's loop: leave out --loop asyncio")
    with ExitStack() as stack:
        try:
            made = _made(asked, stack) if asked.dev else None
            settings = _settings(asked)
            checked_workers(asked.workers)
        except ValueError as error:
            parser.error(str(error))
        _set_logs(asked.log_level)
        sys.path.insert(0, str(Path(asked.app_dir).resolve()))
        try:
            listeners = bound(settings, asked.workers)
        except OSError as error:
            tell(f"{parser.prog}: {error}\n")
            return CUT_OFF
        if made is not None:
            tcp, quic = listeners[0].tcp, listeners[0].quic
            where = None if tcp is None else tcp.getsockname()
            tell(hint(made, where, quic.getsockname()))
        return run(
            asked.app,
            settings,
            workers=asked.workers,
            workers_as=asked.workers_as,
            is_factory=asked.factory,
            loop_factory=_loop_factory(asked),
            listeners=listeners,
        )


def _made(asked: argparse.Namespace, stack: ExitStack) -> DevCertificate:
    """Make a certificate, and have the settings name its files."""
    folder = stack.enter_context(TemporaryDirectory(prefix="ringloop-dev-"))
    hosts = {address[0] for address in (asked.bind, asked.quic_bind) if address is not None}
    made = DevCertificate.made(folder, hosts)
    asked.cert, asked.key = made.certificate, made.private_key
    return made


def _set_logs(level: str) -> None:
    logging.config.dictConfig(LOGGING_CONFIG)
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(LOG_LEVELS[level])


def _settings(asked: argparse.Namespace) -> Settings:
    quic = {"retry": asked.retry}
    if asked.max_connections is not None:
        quic["max_connections"] = asked.max_connections
    return Settings(
        certificate=asked.cert,
        private_key=asked.key,
        sni={name: (certificate, key) for name, certificate, key in asked.sni},
        bind=None if asked.no_tcp else asked.bind,
        quic_bind=asked.quic_bind,
        root_path=asked.root_path,
        lifespan=asked.lifespan,
        access_log=not asked.no_access_log,
        alt_svc_seconds=asked.alt_svc_seconds,
        alt_svc_port=asked.alt_svc_port,
        graceful_seconds=asked.graceful_seconds,
        websocket_bytes_max=asked.websocket_bytes_max,
        quic=quic,
    )


def _loop_factory(asked: argparse.Namespace) -> LoopFactory:
    if asked.loop == "asyncio":
        import asyncio  # noqa: PLC0415

        return asyncio.new_event_loop
    return functools.partial(ringloop.new_event_loop, driver=asked.driver)
