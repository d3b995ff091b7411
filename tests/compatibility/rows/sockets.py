"""Watched descriptors and sockets that the user owns."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import PROGRAM_SECONDS, Group, NotMeasuredError
from tests.compatibility.rows.connections import end, open_server

if TYPE_CHECKING:
    from tests.compatibility.registry import Probe

group = Group("Descriptors and sockets")

watchers = group.row("add_reader, add_writer, remove_reader, remove_writer")


@watchers
def level_triggered(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        calls: list[int] = []
        enough = loop.create_future()

        def readable() -> None:
            calls.append(1)
            if len(calls) == 3:
                enough.set_result(None)

        loop.add_reader(read_end, readable)
        os.write(write_end, b"x")
        await enough
        assert loop.remove_reader(read_end) is True
        assert loop.remove_reader(read_end) is False
        writable = loop.create_future()
        loop.add_writer(write_end, lambda: writable.done() or writable.set_result(None))
        await writable
        assert loop.remove_writer(write_end) is True
        os.close(read_end)
        os.close(write_end)

    probe.run(main)


@watchers
def descriptor_of_a_transport_is_refused(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            try:
                loop.add_reader(ours.fileno(), print)
            except RuntimeError:
                pass
            else:
                raise AssertionError("watched a transport's descriptor")
            transport.close()
            await asyncio.sleep(0.01)

    probe.run(main)


basic = group.row("sock_recv, sock_recv_into, sock_sendall, sock_connect, sock_accept")


@basic
def exchange(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as listening, socket.socket() as client:
            for sock in (listening, client):
                sock.setblocking(False)
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            accepting = asyncio.ensure_future(loop.sock_accept(listening))
            await loop.sock_connect(client, listening.getsockname())
            served, address = await accepting
            with served:
                assert address == client.getsockname()
                await loop.sock_sendall(client, b"x" * 100_000)
                buffer = bytearray(1000)
                got = await loop.sock_recv_into(served, buffer)
                while got < 100_000:
                    got += len(await loop.sock_recv(served, 65536))

    probe.run(main)


@basic
def cancelled_receive_takes_nothing(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            for _ in range(20):
                receiving = asyncio.ensure_future(loop.sock_recv(left, 10))
                await asyncio.sleep(0)
                right.send(b"data")
                receiving.cancel()
                await asyncio.wait([receiving])
                if receiving.cancelled():
                    assert await loop.sock_recv(left, 10) == b"data"

    probe.run(main)


messages = group.row("sock_recvfrom, sock_recvfrom_into, sock_sendto")


@messages
def datagrams(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with (
            socket.socket(type=socket.SOCK_DGRAM) as left,
            socket.socket(type=socket.SOCK_DGRAM) as right,
        ):
            for sock in (left, right):
                sock.setblocking(False)
                sock.bind(("127.0.0.1", 0))
            await loop.sock_sendto(left, b"one", right.getsockname())
            assert await loop.sock_recvfrom(right, 10) == (b"one", left.getsockname())
            await loop.sock_sendto(left, b"two", right.getsockname())
            buffer = bytearray(10)
            assert await loop.sock_recvfrom_into(right, buffer) == (3, left.getsockname())

    probe.run(main)


files = group.row("sendfile")


@files
def sends_a_part_of_a_file(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.set_result(await reader.read())
            writer.close()

        got = loop.create_future()
        server = await asyncio.start_server(collect, "127.0.0.1", 0)
        async with open_server(server):
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            with tempfile.TemporaryFile() as file:
                file.write(b"head" + b"x" * 300_000)
                file.flush()
                assert await loop.sendfile(writer.transport, file, 4, 200_000) == 200_000
            writer.write(b"tail")
            await end(writer)
            assert await got == b"x" * 200_000 + b"tail"

    probe.run(main)


socket_files = group.row("sock_sendfile")


@socket_files
def sends_a_file(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        with left, right, tempfile.TemporaryFile() as file:
            left.setblocking(False)
            right.setblocking(False)
            file.write(b"x" * 300_000)
            file.seek(0)
            sending = asyncio.ensure_future(loop.sock_sendfile(left, file))
            got = 0
            while got < 300_000:
                got += len(await loop.sock_recv(right, 1 << 20))
            assert await sending == 300_000

    probe.run(main)


control = group.row("sock_recvmsg, sock_sendmsg (an extension: asyncio has neither)")


@control
def descriptor_is_passed(probe: Probe) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        left, right = socket.socketpair()
        read_end, write_end = os.pipe()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, write_end.to_bytes(4, sys.byteorder))
            try:
                await loop.sock_sendmsg(left, [b"take it"], [rights])
                data, ancillary, _flags, _address = await loop.sock_recvmsg(right, 100, 100)
            finally:
                os.close(write_end)
            passed = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
            os.write(passed, data)
            os.close(passed)
            assert os.read(read_end, 100) == b"take it"
            os.close(read_end)

    probe.run(main)


batches = group.row("UDP in batches: fewer system calls than datagrams")

DATAGRAMS = 400
FLOOD = f"""
import socket
class Sink(asyncio.DatagramProtocol):
    count = 0
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, address):
        self.count += 1
        if self.count == {DATAGRAMS}:
            done.set_result(None)
async def main():
    global done
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    transport, sink = await loop.create_datagram_endpoint(Sink, local_addr=("127.0.0.1", 0))
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    address = transport.get_extra_info("sockname")
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        for _ in range({DATAGRAMS}):
            sender.sendto(b"x" * 64, address)
    await done
    transport.close()
    await asyncio.sleep(0.01)
loop = new_loop()
loop.run_until_complete(main())
loop.close()
"""
RECEIVING = ("recvfrom", "recvmsg", "recvmmsg", "io_uring_enter")


def calls_of(probe: Probe, body: str, names: tuple[str, ...]) -> int:
    """Run a program under strace and count its calls of these system calls."""
    strace = shutil.which("strace")
    if strace is None:
        raise NotMeasuredError("no strace command to count system calls with")
    report, program = probe.folder / "calls", probe.folder / "program.py"
    head = f"import asyncio, sys, {probe.module}\nnew_loop = lambda: {probe.expression}\n"
    program.write_text(head + body)
    done = subprocess.run(
        [strace, "-f", "-c", "-o", str(report), sys.executable, str(program)],
        timeout=PROGRAM_SECONDS,
        env=probe.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise AssertionError(f"ended with {done.returncode}: {said[-1]}")
    lines = (line.split() for line in report.read_text().splitlines())
    return sum(int(fields[3]) for fields in lines if fields and fields[-1] in names)


@batches
def receiving(probe: Probe) -> None:
    calls = calls_of(probe, FLOOD, RECEIVING)
    assert calls, "strace saw no receiving call"
    assert calls < DATAGRAMS / 4, f"{calls} calls for {DATAGRAMS} datagrams"


ring = group.row("TCP over io_uring by default: an echo makes no recv or send call")

ECHOES = 100
ECHO = f"""
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
class Ask(asyncio.Protocol):
    count = 0
    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"x")
    def data_received(self, data):
        self.count += 1
        if self.count == {ECHOES}:
            done.set_result(None)
        else:
            self.transport.write(data)
async def main():
    global done
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(Ask, *server.sockets[0].getsockname())
    await done
    transport.close()
    server.close()
    await asyncio.sleep(0.01)
loop = new_loop()
loop.run_until_complete(main())
loop.close()
"""
STREAM_CALLS = ("recvfrom", "recvmsg", "read", "readv", "sendto", "sendmsg", "writev")


@ring
def echo(probe: Probe) -> None:
    # Importing reads files: subtract the reads of a program that only imports.
    base = calls_of(probe, "new_loop().close()", STREAM_CALLS)
    calls = calls_of(probe, ECHO, STREAM_CALLS) - base
    assert calls < ECHOES / 4, f"{calls} calls for {ECHOES} echoes"
