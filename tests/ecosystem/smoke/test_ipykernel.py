"""A Jupyter kernel on the loop under test: it runs cells, is interrupted, and is restarted.

Its control channel runs in another thread, which watches descriptors on the loop of the kernel's main
thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from tests.ecosystem.smoke.services import ROOT, START_SECONDS
from tests.support import ORACLE

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

# ipykernel uses the loop of asyncio's policy.
KERNEL = """
import os, ringloop
if os.environ["SMOKE_LOOP"] != "asyncio":
    ringloop.install()
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
WHICH_LOOP = """
import asyncio
from tests.ecosystem.smoke.services import describe_loop
await asyncio.sleep(0.01)
print(describe_loop(asyncio.get_running_loop()))
"""
# Reports that it started, and takes longer than any timeout.
LONG = """
import time
print("began", flush=True)
time.sleep(1000)
"""


def run_cell(client: BlockingKernelClient, code: str, on_output: Any = None) -> tuple[str, str]:
    """Run a cell; return its status, and what it printed."""
    printed: list[str] = []

    def output(message: dict[str, Any]) -> None:
        if text := message["content"].get("text"):
            printed.append(text)
            if on_output is not None:
                on_output()

    reply = client.execute_interactive(code, timeout=START_SECONDS, output_hook=output)
    return reply["content"]["status"], "".join(printed)


@pytest.mark.keeps_threads
def test_kernel_runs_is_interrupted_and_restarts(
    loop_name: str, loop_environment: dict[str, str]
) -> None:
    driver = loop_name.removeprefix("ringloop-") if loop_name != ORACLE else "auto"
    environment = {**loop_environment, "RINGLOOP_DRIVER": driver}
    manager = KernelManager()
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [sys.executable, "-c", KERNEL, "-f", "{connection_file}"]
    manager.start_kernel(env=environment, cwd=str(ROOT))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=START_SECONDS)
        assert run_cell(client, WHICH_LOOP) == ("ok", f"{loop_name}\n")
        status, printed = run_cell(client, LONG, on_output=manager.interrupt_kernel)
        assert (status, printed) == ("error", "began\n")
        assert run_cell(client, "print(6 * 7)") == ("ok", "42\n")
        manager.restart_kernel(now=False)
        client.wait_for_ready(timeout=START_SECONDS)
        assert run_cell(client, WHICH_LOOP) == ("ok", f"{loop_name}\n")
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()
        client.context.term()
