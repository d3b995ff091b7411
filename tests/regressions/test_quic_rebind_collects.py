"""`Endpoint.rebind` without a socket created its exception while holding the endpoint's lock.

Up to CPython 3.11 allocating an object may run the garbage collector: a finalizer that called the same
endpoint waited forever for that lock, which its own thread held.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from ringloop._native import quic

endpoint = quic.Endpoint()

class Asks:
    def __init__(self):
        self.itself = self

    def __del__(self):
        endpoint.connection_count

gc.set_threshold(1)
refused = 0
for _ in range(300):
    Asks()
    try:
        endpoint.rebind(0)
    except ValueError:
        refused += 1
print(refused)
"""


def test_refused_rebind_does_not_deadlock_with_finalizers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("300\n", "")
