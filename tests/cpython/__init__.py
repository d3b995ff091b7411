"""CPython's own asyncio tests, run on this loop.

`runner` runs CPython's test modules, each in a process (`child`) of its own with the loop under
test put where the stdlib makes its default loop; `expected` lists where we differ and why;
`test_suite` is pytest's view of it.
"""
