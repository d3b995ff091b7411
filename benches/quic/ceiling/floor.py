"""What a request costs at least where Python takes part in it: CPU time of both ends in a process.

    python benches/quic/ceiling/floor.py [--loop asyncio] [--only floor] [--requests 2000] [--batches 8]

`api` is `ringloop.quic` as programs use it: a coroutine for each stream at the server, three
awaits at the client. `floor` is the same exchange by the native classes alone: one callback a
request at the server, which makes the stream, reads, writes and finishes; one task at the client
with the same calls and one wait. What lies between is the package's share; what is left of `floor`
above `crates/ringloop-quic/examples/perf.rs` is the interpreter's and the loop's.

Owns: both exchanges, taken in turns. Called by: people. Needs `cryptography` for its certificate.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers"), str(HERE.parent)]

from peer import loop_factory  # noqa: E402
from workload import ALPN  # noqa: E402

from ringloop import quic  # noqa: E402
from ringloop._native import quic as native  # noqa: E402
from ringloop.quic._driver import Driver, bind  # noqa: E402

REQUEST = bytes(64)
READ_BYTES = 1 << 18
Exchange = Callable[[int], Awaitable[None]]


async def api(folder: Path) -> Exchange:
    """Serve and connect by the package."""

    async def answer(stream: quic.Stream) -> None:
        while data := await stream.read(READ_BYTES):
            await stream.send(data)

    server = await quic.serve(
        host="127.0.0.1",
        port=0,
        stream_handler=answer,
        certificate=str(folder / "cert.pem"),
        private_key=str(folder / "key.pem"),
        alpn=[ALPN],
    )
    connection = await connect(folder, server.address)

    async def exchange(count: int) -> None:
        for _ in range(count):
            stream = await connection.open_stream()
            stream.write(REQUEST)
            stream.finish()
            check(await stream.read_to_end())

    return exchange


async def floor(folder: Path) -> Exchange:
    """Serve and exchange by native calls alone."""
    config = native.ServerConfig(
        certificate=str(folder / "cert.pem"), private_key=str(folder / "key.pem"), alpn=[ALPN]
    )
    connections: dict[int, native.Connection] = {}

    def on_news(accepted: list[int], eventful: list[int], _gone: list[int]) -> None:
        for key in accepted:
            connections[key] = native.Connection(server, key)
            connections[key].announce_streams()
        for key in eventful:
            connection = connections[key]
            for stream_id in connection.accept_streams():
                stream = native.Stream(connection, stream_id)
                stream.write(stream.take(READ_BYTES) or b"")
                stream.finish()
                stream.take(READ_BYTES)

    sock = bind("127.0.0.1")
    server = native.Endpoint(server=config, fd=sock.fileno())
    driver = Driver(asyncio.get_running_loop(), sock, server, on_news)
    connection = await connect(folder, driver.address)

    async def exchange(count: int) -> None:
        for _ in range(count):
            stream_id = connection.open_stream_nowait()
            if stream_id is None:
                raise RuntimeError("no credit")
            stream = native.Stream(connection, stream_id)
            stream.write(REQUEST)
            stream.finish()
            while (data := stream.take(READ_BYTES)) is None:
                await stream.read_waiter()
            check(data)

    return exchange


async def connect(folder: Path, address: Any) -> quic.Connection:
    """Connect to either server."""
    return await quic.open_connection(
        address[0], address[1], server_name="localhost", ca_file=str(folder / "ca.pem"), alpn=[ALPN]
    )


def check(answer: bytes) -> None:
    """Look whether it is what was sent."""
    if answer != REQUEST:
        raise RuntimeError("another answer")


async def run(options: argparse.Namespace, folder: Path) -> None:
    """Take turns, and tell the least."""
    made = {"api": api, "floor": floor}
    names = [options.only] if options.only else list(made)
    exchanges = {name: await made[name](folder) for name in names}
    least = dict.fromkeys(names, float("inf"))
    for _ in range(options.batches):
        for name, exchange in exchanges.items():
            began = time.process_time()
            await exchange(options.requests)
            took = (time.process_time() - began) / options.requests * 1e6
            least[name] = min(least[name], took)
    for name, took in least.items():
        print(f"{name}: {took:.1f} us of CPU a request, both ends, least of {options.batches}")


def main() -> None:
    """Make certificates, and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", default="ringloop", choices=("asyncio", "uvloop", "ringloop"))
    parser.add_argument("--only", choices=("api", "floor"))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(HERE.parent / "certificates.py"), folder], check=True)
        with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
            runner.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
