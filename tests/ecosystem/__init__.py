"""Whole test suites of asyncio's users, run on this loop and compared with stock asyncio.

Owns which suites run, in which versions, and what is left out (`suites`), their environments and
sources (`environment`), a run in its own process (`running`), the comparison (`judging`), the table of
expected differences (`expected`) and the page of results (`results`). `inject` is the folder that is
put first on the path of that process. Called by `make ecosystem` and by hand:
`python -m tests.ecosystem --help`. Not part of `make test`: it installs packages and takes long.
"""
