"""The benchmark of `python -m ringloop bench`: `workloads` in processes of their own ▸ `report`."""
