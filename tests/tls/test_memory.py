"""Memory of idle TLS connections: one process holds hundreds and measures itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import support

if TYPE_CHECKING:
    from tests.support.tls import Certificates

# The cost is linear: with a thousand it differs by a hundredth.
CONNECTIONS = 300
# Two seconds of work at most; much longer on a busy machine.
SECONDS_MAX = 150
# Both ends are in the measured process; most of it is OpenSSL's: an SSL, keys, a session.
BYTES_A_CONNECTION_MAX = 80 * 1024

PROGRAM = """
import asyncio, gc, json, ssl, sys
from tests import support

name, count, moved, certificate, key, authority = sys.argv[1:]

def resident():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

class Silent(asyncio.Protocol):
    def __init__(self):
        self.received = 0
        self.transport = None
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.received += len(data)

async def main():
    loop = asyncio.get_running_loop()
    theirs = []
    def serve():
        theirs.append(Silent())
        return theirs[-1]
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate, key)
    context = ssl.create_default_context(cafile=authority)
    server = await loop.create_server(serve, "127.0.0.1", 0, ssl=server_context, backlog=1024)
    address = server.sockets[0].getsockname()
    ours = []
    data = bytes(int(moved))
    async def connect():
        transport, protocol = await loop.create_connection(
            Silent, *address, ssl=context, server_hostname="localhost")
        ours.append(transport)
        transport.write(data)
    async def settle():
        while sum(one.received for one in theirs) < len(ours) * len(data):
            await asyncio.sleep(0.005)
        # Everything is loaded, and what the turns left behind is gone.
        for _ in range(3):
            await asyncio.sleep(0)
    for _ in range(20):
        await connect()
    await settle()
    before, number = resident(), len(ours)
    for _ in range(int(count)):
        await connect()
    await settle()
    after = resident()
    print(json.dumps({"bytes": (after - before) / (len(ours) - number)}))
    for transport in ours:
        transport.abort()
    for one in theirs:
        one.transport.abort()
    server.close()
    await server.wait_closed()

loop = support.loop_factory(name)()
loop.run_until_complete(main())
loop.close()
"""


def bytes_a_connection(
    loop_name: str, engine: str, certificates: Certificates, moved: int, count: int = CONNECTIONS
) -> float:
    certificate, key = certificates.issue()
    arguments = [loop_name, str(count), str(moved), *map(str, (certificate, key))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments, str(certificates.authority)],
        env=os.environ | {"RINGLOOP_TLS": engine, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["bytes"])


@pytest.fixture(scope="module")
def of_asyncio(certificates: Certificates) -> float:
    """The memory asyncio needs, measured with fewer connections: it is linear, and slow."""
    return bytes_a_connection(support.ORACLE, "auto", certificates, 100_000, 100)


@pytest.mark.timeout(2 * SECONDS_MAX)
@pytest.mark.parametrize("engine", ["auto", "bio"])
def test_idle_connections_cost_little(
    loop_name: str, certificates: Certificates, of_asyncio: float, engine: str
) -> None:
    if loop_name == support.ORACLE:
        # Two ends with 256 KiB of read buffer each, and the size their MemoryBIOs have grown to.
        assert of_asyncio > 500_000
        return
    cost = bytes_a_connection(loop_name, engine, certificates, 100_000)
    from ringloop import _native

    if engine == "auto" and _native.tls_engine()[0] == "direct":
        assert cost < BYTES_A_CONNECTION_MAX
    # A MemoryBIO never shrinks.
    assert cost < of_asyncio / 2
