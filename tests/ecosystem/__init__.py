"""Whole test suites of asyncio's users, run on this loop and compared with stock asyncio.

Owns which suites, in which versions, and what is left out (`suites`), their environments and sources
(`environment`), one run in a process of its own (`running`), the comparison (`judging`), the table
of expected differences (`expected`) and the page of results (`results`). `inject` is the folder that
is put before everything else on the path of that process. Called by `make ecosystem` and by hand:
`python -m tests.ecosystem --help`. Never part of `make test`: it installs packages and takes long.
"""
