"""The benchmark of `python -m ringloop bench`: `workloads` in separate processes ▸ `report`."""
