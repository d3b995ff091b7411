"""Interrupts and cancellations at random points of a workload: `python -m tests.injection --help`.

`run` is one run with its injected faults; `talks`, `messages`, `operations` and `scheduled` are the
parts of the workload; `__main__` is the command line. `test_injection.py` executes a few dozen runs.
"""
