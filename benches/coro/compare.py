"""Compare coroutines with may, tokio and threads: the same work on each, in turns, one process a run.

    python3 benches/coro/compare.py --quick            a first look, some minutes
    python3 benches/coro/compare.py                    everything
    python3 benches/coro/compare.py --only 'echo/*/64' --rounds 9

Each run builds the contestants first (cargo). `ringloop-futures-…` is our own runtime without
coroutines, which they are measured against too. Tables go to standard output, progress to standard
error. Needs a Rust toolchain and CPython 3.11 or later.
"""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The machinery is the other suite's; `contestants` and `tables` are found here first.
sys.path.insert(1, str(HERE.parent / "rust"))


def main() -> None:
    """Run the other suite's comparison with what is ours."""
    place = HERE.parent / "rust" / "compare.py"
    spec = importlib.util.spec_from_file_location("rust_compare", place)
    assert spec is not None
    assert spec.loader is not None
    rust = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = rust
    spec.loader.exec_module(rust)
    suite = rust.Suite(
        title="Coroutines",
        anchor="coroutines",
        results=HERE.parent / "RESULTS-coro.md",
        description=__doc__,
        averaged="all rows",
    )
    rust.main(suite)


if __name__ == "__main__":
    main()
