"""A program that computes on a local dask cluster; `test_distributed.py` starts it.

Every process of the cluster imports this module again before anything else, as processes created by
`multiprocessing` do, so the first lines below choose the loop of the scheduler, the nannies and the
workers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from tests import support
from tests.ecosystem.smoke.services import describe_loop

if os.environ["SMOKE_LOOP"] != support.ORACLE:
    import ringloop

    os.environ["RINGLOOP_DRIVER"] = os.environ["SMOKE_LOOP"].removeprefix("ringloop-")
    ringloop.install()


async def loop_here() -> str:
    """Name the loop that this coroutine runs on."""
    return describe_loop(asyncio.get_running_loop())


async def loop_of_server(dask_scheduler: Any) -> str:
    """Name the loop of the scheduler; dask passes the scheduler by this argument's name."""
    assert dask_scheduler is not None
    return await loop_here()


async def loop_of_worker(dask_worker: Any) -> str:
    """Name the loop of a worker or of its nanny; dask passes either by this argument's name."""
    assert dask_worker is not None
    return f"{type(dask_worker).__name__} {await loop_here()}"


async def stop_heartbeats(dask_worker: Any) -> None:
    """Stop the heartbeats of a worker, so that none is in flight when the scheduler exits.

    A worker logs an error with a traceback if the scheduler exits before it answers one, on every
    loop, and this program's log must have no traceback.
    """
    dask_worker.periodic_callbacks["heartbeat"].stop()
    while dask_worker.rpc.active:  # noqa: ASYNC110 - dask does not notify when an answer arrives
        await asyncio.sleep(0.001)


def main() -> dict[str, Any]:
    """Compute something that involves every worker; return the answers and the loops."""
    import dask
    import dask.dataframe
    import distributed
    import numpy as np
    import pandas as pd

    report: dict[str, Any] = {}
    dask.config.set({"distributed.comm.retry.count": 0})
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        report["scheduler"] = client.run_on_scheduler(loop_of_server)
        report["workers"] = sorted(client.run(loop_of_worker).values())
        report["nannies"] = sorted(client.run(loop_of_worker, nanny=True).values())
        report["pids"] = len({os.getpid(), *client.run(os.getpid).values()})

        report["sum"] = sum(client.gather(client.map(abs, range(-500, 500))))
        arrays = client.map(np.full, [1 << 19] * 8, range(8))
        totals = client.gather([client.submit(np.sum, array) for array in arrays])
        report["arrays"] = int(sum(totals))

        frame = pd.DataFrame({"key": np.arange(200_000) % 997, "value": np.arange(200_000)})
        parts = dask.dataframe.from_pandas(frame, npartitions=8)
        shuffled = parts.shuffle("key", npartitions=8, shuffle_method="p2p")
        report["rows"] = int(shuffled.size.compute()) // 2
        sums = shuffled.groupby("key").value.sum().compute().sort_index()
        expected = frame.groupby("key").value.sum().sort_index()
        report["shuffle"] = bool((sums == expected).all()) and len(sums) == 997
        client.run(stop_heartbeats)
    return report


if __name__ == "__main__":
    json.dump(main(), sys.stdout)
