"""The feature matrix: what each event loop supports, measured.

`rows/` contains the checks, one file per topic. `test_matrix` runs every check on asyncio and on both
drivers; `python -m tests.compatibility` runs them on the other loops too, each row in its own process,
and writes docs/compatibility.md.
"""
