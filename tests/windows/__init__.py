"""What the package does on Windows, run there by `make windows` and on Linux with all other tests.

By `unittest` alone: the interpreter for Windows has no pytest.
"""
