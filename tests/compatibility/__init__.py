"""The feature matrix: what each event loop can do, measured.

`rows/` holds the checks, a file a topic. `test_matrix` runs every check on asyncio and on both drivers;
`python -m tests.compatibility` runs them on the other loops too, each row in a process of its own, and
writes docs/compatibility.md.
"""
