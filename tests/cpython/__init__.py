"""CPython's own asyncio tests, run on this loop.

`runner` runs CPython's test modules, each in its own process (`child`) with the loop under test as the
stdlib's default loop; `expected` lists the differences and their reasons; `test_suite` runs it under
pytest.
"""
