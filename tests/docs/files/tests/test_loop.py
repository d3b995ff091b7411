"""Tests that README.md runs; pytest's own path has no asyncio plugin here."""

import asyncio

import ringloop


async def running():
    return asyncio.get_running_loop()


def test_runs_on_ringloop():
    assert isinstance(asyncio.run(running()), ringloop.Loop)
