"""A server or a client of one stack: python peer.py STACK [--loop LOOP] server|client ...

    peer.py aioquic server PORT CERT KEY                serves until it is killed
    peer.py aioquic client PORT CA WORKLOAD SIZE WARM-UP SECONDS

Owns: the command line and the loop. Called by: `running`. The measuring is in `workload`.
"""

import argparse
import asyncio
import gc
import importlib
import json
from collections.abc import Callable
from typing import Any

import workload

# Stack: adapter, and its argument.
STACKS = {
    "aioquic": ("events", "aioquic"),
    "qh3": ("events", "qh3"),
    "aiopquic": ("events", "aiopquic"),
    "ringloop-aio": ("events", "ringloop.quic"),
    "ringloop": ("native", "ringloop.quic"),
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("stack", choices=STACKS)
    parser.add_argument("--loop", default="asyncio", choices=("asyncio", "uvloop", "ringloop"))
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("port", type=int)
    server.add_argument("cert")
    server.add_argument("key")
    client = roles.add_parser("client")
    client.add_argument("port", type=int)
    client.add_argument("ca")
    client.add_argument("workload")
    client.add_argument("size", type=int)
    client.add_argument("warmup", type=float)
    client.add_argument("seconds", type=float)
    options = parser.parse_args()
    module, package = STACKS[options.stack]
    stack = importlib.import_module(module).Stack(package)
    gc.freeze()
    with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
        if options.role == "server":
            runner.run(serve(stack, options))
        else:
            result = runner.run(run(stack, options))
            print(json.dumps(result), flush=True)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The loop factory for a name."""
    if name == "asyncio":
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(name).new_event_loop
    return factory


async def serve(stack: Any, options: argparse.Namespace) -> None:
    """Serve until killed."""
    await stack.serve(options.port, options.cert, options.key, workload.Counts())
    print("ready", flush=True)
    await asyncio.Event().wait()


async def run(stack: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Run one workload."""
    return await workload.client(
        options.workload,
        options.size,
        options.warmup,
        options.seconds,
        lambda: stack.connect(options.port, options.ca),
    )


if __name__ == "__main__":
    main()
