"""What an installed package must do: a loop on each driver, TLS, QUIC, the doctor.

python -I tools/wheels/smoke.py, in an environment that has ringloop and nothing else.

Owns: a small exchange of each kind. Called by: this tool, by Wine too, and `tests.aarch64`, which
unpacks the wheel for an emulated interpreter (RINGLOOP_EMULATED=1). Where RINGLOOP_ALLOW_NO_URING is 1
the ring may be refused.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import runpy
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ringloop
from ringloop import quic

# Of the system, the last one on every kernel.
DRIVERS: tuple[Any, ...] = {"win32": ("afd",), "darwin": ("kqueue",)}.get(
    sys.platform, ("uring", "epoll")
)
SECONDS = 60
PAYLOAD = bytes(range(256)) * 4096


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes."""
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def by_tcp(server_tls: ssl.SSLContext | None, client_tls: ssl.SSLContext | None) -> str:
    """Send a megabyte to an echo server, by TLS where contexts are given."""
    server = await asyncio.start_server(echo_stream, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    name = "localhost" if client_tls else None
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client_tls, server_hostname=name
    )
    writer.write(PAYLOAD)
    came = await reader.readexactly(len(PAYLOAD))
    assert came == PAYLOAD
    used = writer.get_extra_info("ssl_object")
    writer.close()
    await writer.wait_closed()
    server.close()
    return f"{used.version()} " if used else ""


async def by_quic(files: quic.CertificateFiles) -> None:
    """Send a megabyte to an echo server by QUIC."""

    async def echo(stream: quic.Stream) -> None:
        async for chunk in stream.chunks():
            stream.write(chunk)
            await stream.drain()

    server = await quic.serve(
        host="127.0.0.1",
        port=0,
        stream_handler=echo,
        certificate=files.certificate,
        private_key=files.private_key,
        alpn=["echo"],
    )
    connecting = quic.connect(
        "127.0.0.1",
        server.address[1],
        server_name="localhost",
        ca_file=files.ca_file,
        alpn=["echo"],
    )
    async with server, connecting as connection:
        stream = await connection.open_stream()

        async def send() -> None:
            stream.write(PAYLOAD)
            await stream.drain()
            stream.finish()

        sending = asyncio.ensure_future(send())
        came = await stream.read_to_end()
        await sending
        assert came == PAYLOAD


async def exchange(driver: Any, files: quic.CertificateFiles) -> None:
    """Play everything on the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ringloop.Loop)
    assert loop.driver == driver
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(files.certificate, files.private_key)
    client_tls = ssl.create_default_context(cafile=files.ca_file)
    await by_tcp(None, None)
    version = await by_tcp(server_tls, client_tls)
    await by_quic(files)
    say(f"{driver}: TCP, TLS ({version.strip()}) and QUIC echoed {len(PAYLOAD)} bytes each")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def is_refused(driver: Any) -> bool:
    """Return true where this machine may refuse the driver, and does."""
    try:
        ringloop.new_event_loop(driver=driver).close()
    except OSError as error:
        if os.environ.get("RINGLOOP_ALLOW_NO_URING") != "1":
            raise
        say(f"{driver}: refused here: {error}")
        return True
    return False


def install_variable() -> None:
    """See whether the .pth file is there: RINGLOOP_INSTALL=1 chooses the loop of a plain program."""
    program = "import asyncio; print(type(asyncio.new_event_loop()).__module__)"
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RINGLOOP_INSTALL": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.strip().startswith("ringloop"), made.stdout + made.stderr
    say("RINGLOOP_INSTALL=1: a plain program has ringloop's loop")


def doctor() -> None:
    """Run `python -m ringloop doctor` in this process: an emulated one cannot start others."""
    sys.argv = ["ringloop", "doctor"]
    try:
        runpy.run_module("ringloop", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


def main() -> None:
    """Try everything, on each driver."""
    say(
        f"{ringloop.__version__} at {Path(ringloop.__file__).parent},"
        f" CPython {platform.python_version()} on {platform.machine()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        files = quic.make_certificate("localhost", directory=folder)
        for driver in DRIVERS:
            if driver != "uring" or not is_refused(driver):
                work = asyncio.wait_for(exchange(driver, files), SECONDS)
                ringloop.run(work, driver=driver)
    if os.environ.get("RINGLOOP_EMULATED") != "1":
        assert importlib.metadata.version("ringloop") == ringloop.__version__
        install_variable()
    doctor()


if __name__ == "__main__":
    main()
