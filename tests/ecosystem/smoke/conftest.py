"""Fixtures of the smoke tests: the loop under test, proof that it ran, the services and certificates.

Every test runs on the standard library's loop first and then on ours with each driver. A test that
leaves resources open fails, as in the project's own tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trustme

from tests import support
from tests.ecosystem.smoke import services

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

T = TypeVar("T")

# A shell starts background jobs with SIGINT ignored, which every process of the tests would
# inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class Certificates:
    """A server's certificate for localhost and 127.0.0.1, and its CA."""

    certificate: Path
    key: Path
    authority: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


@pytest.fixture(params=support.LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    """One of "asyncio" (the oracle), "ringloop-uring", "ringloop-epoll"."""
    return support.usable_loop(request.param)


@pytest.fixture(autouse=True)
def leak_check(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves descriptors, children or threads behind.

    The services are started first: their processes outlive the test.
    """
    for name in ("postgres", "redis_server"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    check = support.LeakCheck.begin()
    yield
    if request.node.get_closest_marker("keeps_threads") is None:
        check.assert_clean()


@pytest.fixture
def loop_factory(loop_name: str, leak_check: None) -> support.LoopFactory:
    """Create a loop of the kind under test; the caller closes it."""
    return support.loop_factory(loop_name)


@pytest.fixture
def assert_right_loop(loop_name: str) -> Callable[[], None]:
    """Fail unless the running loop is exactly the one under test."""
    return functools.partial(services.assert_running_loop, loop_name)


@pytest.fixture
def run(
    loop_factory: support.LoopFactory, assert_right_loop: Callable[[], None]
) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run a coroutine as `asyncio.run` does, on the loop under test, and check that it is."""

    async def checked(main: Coroutine[Any, Any, T]) -> T:
        assert_right_loop()
        return await main

    def run(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(checked(main))

    return run


@pytest.fixture
def loop_environment(loop_name: str) -> dict[str, str]:
    """The environment of a process that must run on the loop under test.

    `services.new_event_loop` reads it there.
    """
    path = f"{services.ROOT}:{services.ROOT / 'python'}"
    return {**os.environ, "SMOKE_LOOP": loop_name, "PYTHONPATH": path}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates made for this run and trusted only by it."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    made = Certificates(folder / "certificate.pem", folder / "key.pem", folder / "authority.pem")
    issued.private_key_pem.write_to_path(str(made.key))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(made.certificate), append=True)
    authority.cert_pem.write_to_path(str(made.authority))
    return made


@pytest.fixture(scope="session")
def postgres(certificates: Certificates) -> Iterator[services.Postgres]:
    """A PostgreSQL server of this run, on a Unix socket and on TCP with TLS."""
    with started(services.Postgres.start(certificates.certificate, certificates.key)) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(certificates: Certificates) -> Iterator[services.Redis]:
    """A Redis server of this run, on a Unix socket and on TCP with TLS."""
    with started(services.Redis.start(certificates.certificate, certificates.key)) as server:
        yield server


@contextlib.contextmanager
def started(service: contextlib.AbstractContextManager[T]) -> Iterator[T]:
    """Skip the test if the service is not installed; on CI that is a failure."""
    try:
        server = service.__enter__()
    except services.NotInstalledError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    try:
        yield server
    finally:
        service.__exit__(None, None, None)
