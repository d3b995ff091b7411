"""Mixed load with faults for minutes or hours, every byte compared, memory sampled: `make soak`.

`python -m tests.soak` starts one process for each driver (`child.py`), which serves and uses every
kind of connection on one loop, and beside them short runs on a kernel that lacks something
(`episodes.py`). `tests/reliability/` runs the same parts as ordinary tests.
"""
