"""What a service does, once each: sockets, TLS, QUIC, processes, signals, timers, files.

Called by `guest`, on the driver that RINGLOOP_DRIVER names. Each check has a loop of its own, and ends
with everything closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ringloop
from ringloop import fs, quic
from ringloop._diagnosis import diagnose

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FOLDER = Path("/guest")
CHECK_SECONDS = 120
PAYLOAD = bytes(range(256)) * 512


class CheckError(Exception):
    """What came is not what was sent."""


def expect(condition: object, what: str) -> None:
    """Raise unless `condition` holds: an assertion that stays under -O."""
    if not condition:
        raise CheckError(what)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes, up to the end."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the payload while it is read back."""
    writer.write(PAYLOAD)
    received = await reader.readexactly(len(PAYLOAD))
    writer.close()
    await writer.wait_closed()
    expect(received == PAYLOAD, "the echo differs")


async def tcp() -> None:
    """Check streams over TCP, for both families."""
    for host in ("127.0.0.1", "::1"):
        async with await asyncio.start_server(echo, host, 0) as server:
            port = server.sockets[0].getsockname()[1]
            await asyncio.gather(
                *[exchange(*await asyncio.open_connection(host, port)) for _ in range(3)]
            )


async def unix() -> None:
    """Check streams over a Unix socket."""
    path = f"/tmp/ringloop-{os.getpid()}.sock"
    async with await asyncio.start_unix_server(echo, path):
        await exchange(*await asyncio.open_unix_connection(path))


async def tls() -> None:
    """Check streams over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "localhost.pem", FOLDER / "localhost.key")
    trusting = ssl.create_default_context(cafile=FOLDER / "authority.pem")
    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        await exchange(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
            )
        )


class Datagrams(asyncio.DatagramProtocol):
    """Sends back what comes, or keeps it."""

    def __init__(self, *, is_echo: bool) -> None:
        self.is_echo = is_echo
        self.received: list[bytes] = []
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send it back or keep it."""
        if self.is_echo:
            self.transport.sendto(data, addr)
        else:
            self.received.append(data)
            self.changed.set()


async def udp() -> None:
    """Check datagrams, one at a time, so that no full socket buffer loses one."""
    loop = asyncio.get_running_loop()
    there, _ = await loop.create_datagram_endpoint(
        lambda: Datagrams(is_echo=True), local_addr=("127.0.0.1", 0)
    )
    here, protocol = await loop.create_datagram_endpoint(
        lambda: Datagrams(is_echo=False), remote_addr=there.get_extra_info("sockname")
    )
    sent = [PAYLOAD[: 1 + 70 * index] for index in range(20)]
    for data in sent:
        protocol.changed.clear()
        here.sendto(data)
        await protocol.changed.wait()
    here.close()
    there.close()
    expect(protocol.received == sent, "the datagrams differ")


async def quic_stream() -> None:
    """Check a QUIC handshake and a stream there and back."""

    async def back(stream: quic.Stream) -> None:
        async for chunk in stream.chunks():
            stream.write(chunk)
            await stream.drain()

    certificate, key = FOLDER / "localhost.pem", FOLDER / "localhost.key"
    server = await quic.serve(
        host="127.0.0.1",
        port=0,
        stream_handler=back,
        certificate=str(certificate),
        private_key=str(key),
        alpn=["echo"],
    )
    async with server:
        host, port = server.address[:2]
        async with quic.connect(
            host,
            port,
            server_name="localhost",
            ca_file=str(FOLDER / "authority.pem"),
            alpn=["echo"],
        ) as connection:
            stream = await connection.open_stream()
            stream.write(PAYLOAD[:32768])
            stream.finish()
            expect(await stream.read_to_end() == PAYLOAD[:32768], "the echo differs")


async def subprocess() -> None:
    """Check a child with pipes, `python -m ringloop doctor --json`, and another that is killed."""
    child = await asyncio.create_subprocess_exec(
        *(getattr(sys, "_base_executable", sys.executable), "-m", "ringloop", "doctor", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()
    expect(child.returncode == 0, f"doctor ended with {child.returncode}")
    expect(json.loads(output)["is_well"], "doctor has a problem")
    sleeper = await asyncio.create_subprocess_exec(
        *(getattr(sys, "_base_executable", sys.executable), "-S", "-c", "input()"),
        stdin=asyncio.subprocess.PIPE,
    )
    sleeper.kill()
    expect(await sleeper.wait() == -signal.SIGKILL, "not killed")


async def signals() -> None:
    """Check a handler of the loop, called for a signal to the process."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, arrived.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await arrived.wait()
    expect(loop.remove_signal_handler(signal.SIGUSR1), "no handler was there")


async def timers() -> None:
    """Check that timers run in order and not early, a timeout cancels, a thread wakes the loop."""
    loop, order = asyncio.get_running_loop(), []
    for delay in (0.03, 0.01, 0.02):
        loop.call_later(delay, order.append, delay)
    # A timer may be early by the resolution of the loop's clock.
    pause, early = 0.05, 0.001
    started = time.monotonic()
    await asyncio.sleep(pause)
    expect(time.monotonic() - started >= pause - early, "early")
    expect(order == [0.01, 0.02, 0.03], f"the order is {order}")
    try:
        async with asyncio.timeout(0.01):
            await loop.create_future()
    except TimeoutError:
        pass
    else:
        raise CheckError("no timeout")
    expect(await asyncio.to_thread(bool, 1), "to_thread")


async def files() -> None:
    """Check a file that is written and read back."""
    path = f"/tmp/ringloop-{os.getpid()}.data"
    async with await fs.open(path, "wb") as file:
        await file.write(PAYLOAD)
    async with await fs.open(path, "rb") as file:
        expect(await file.read() == PAYLOAD, "the file differs")
    os.unlink(path)  # noqa: PTH108


CHECKS: dict[str, Callable[[], Awaitable[None]]] = {
    "tcp": tcp,
    "unix": unix,
    "udp": udp,
    "tls": tls,
    "quic": quic_stream,
    "subprocess": subprocess,
    "signals": signals,
    "timers": timers,
    "files": files,
}


def run(only: list[str] | None = None) -> dict[str, object]:
    """Run each check; return the driver with its reason, doctor's findings, and what failed."""
    loop = ringloop.new_event_loop()
    driver, reason = loop.driver, str(loop.driver_reason)
    loop.close()
    results = {}
    for name in only or CHECKS:
        try:
            with asyncio.Runner(loop_factory=ringloop.new_event_loop) as runner:
                runner.run(asyncio.wait_for(CHECKS[name](), CHECK_SECONDS))
            results[name] = "ok"
        except Exception as error:  # noqa: BLE001 - reported
            results[name] = f"{type(error).__name__}: {error}"
    findings = {
        finding.name: finding.value
        for finding in diagnose(None)
        if finding.group in {"system", "io_uring", "loop"} or finding.status == "problem"
    }
    return {"driver": driver, "reason": reason, "doctor": findings, "checks": results}
