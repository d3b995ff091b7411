"""`create_datagram_endpoint`: combinations of addresses and options, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import PATIENCE_SECONDS, wait_until
from tests.support.datagrams import Echo, Recorder, endpoint, name_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.datagrams import Run

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@pytest.mark.parametrize("family", LOOPBACK)
@pytest.mark.parametrize("has_local", [True, False], ids=["local", "any"])
@pytest.mark.parametrize("has_remote", [True, False], ids=["remote", "free"])
def test_pairs_of_addresses(
    run: Run, family: socket.AddressFamily, has_local: bool, has_remote: bool
) -> None:
    host = LOOPBACK[family]

    async def main() -> None:
        async with endpoint(Echo, local_addr=(host, 0)) as server:
            options: dict[str, Any] = {"family": family}
            if has_local:
                options["local_addr"] = (host, 0)
            if has_remote:
                options["remote_addr"] = name_of(server)[:2]
            async with endpoint(**options) as client:
                sock = client.transport.get_extra_info("socket")
                assert (sock.family, sock.type) == (family, socket.SOCK_DGRAM)
                peer = client.transport.get_extra_info("peername")
                assert peer == (name_of(server) if has_remote else None)
                if has_local:
                    assert name_of(client)[0] == host
                client.transport.sendto(b"hello", None if has_remote else name_of(server))
                await wait_until(lambda: client.received)
                assert client.received == [(b"hello", name_of(server))]

    run(main())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "unexpected address family"),
        (
            {"local_addr": ("127.0.0.1", 0), "remote_addr": ("::1", 9)},
            "can not get address information",
        ),
        ({"family": socket.AF_INET6, "local_addr": ("127.0.0.1", 0)}, None),
        ({"local_addr": "127.0.0.1"}, None),
        ({"local_addr": ("127.0.0.1", 0, 0)}, "2-tuple is expected"),
        ({"family": socket.AF_UNIX, "local_addr": ("127.0.0.1", 0)}, "string is expected"),
        ({"family": socket.AF_UNIX, "remote_addr": 5}, "string is expected"),
    ],
)
def test_invalid_combinations_of_addresses_are_refused(
    run: Run, options: dict[str, Any], message: str | None
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises((ValueError, TypeError, OSError, AssertionError), match=message):
            await loop.create_datagram_endpoint(Recorder, **options)

    run(main())


def test_socket_excludes_addresses_and_options(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for options in (
                {"local_addr": ("127.0.0.1", 0)},
                {"remote_addr": ("127.0.0.1", 9)},
                {"family": socket.AF_INET},
                {"proto": socket.IPPROTO_UDP},
                {"flags": socket.AI_PASSIVE},
                {"reuse_port": True},
                {"allow_broadcast": True},
            ):
                with pytest.raises(ValueError, match=r"can't be used|can not be"):
                    await loop.create_datagram_endpoint(Recorder, sock=sock, **options)  # type: ignore[arg-type]
        with (
            socket.socket() as stream,
            pytest.raises(ValueError, match=r"(?i)(datagram|udp) socket"),
        ):
            await loop.create_datagram_endpoint(Recorder, sock=stream)

    run(main())


def test_address_in_use_is_an_os_error_and_leaves_no_socket(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as first:
            with pytest.raises(OSError, match="ddress already in use") as caught:
                async with endpoint(local_addr=name_of(first)):
                    pass
            assert caught.value.errno == errno.EADDRINUSE

    run(main())


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_factory_that_returns_none_leaves_no_socket(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            address = free.getsockname()
        for _ in range(2):
            with pytest.raises(AttributeError, match="connection_made"):
                await loop.create_datagram_endpoint(object, local_addr=address)  # type: ignore[arg-type, type-var]
            gc.collect()
        async with endpoint(local_addr=address) as other:
            assert name_of(other) == address

    run(main())


def test_scope_ids_of_ipv6_are_sent_and_received(run: Run) -> None:
    async def main() -> None:
        index = socket.if_nametoindex("lo")
        async with (
            endpoint(Echo, local_addr=("::1", 0)) as server,
            endpoint(local_addr=("::1", 0)) as client,
        ):
            port = name_of(server)[1]
            for scope in (0, index):
                # A loopback address has no scope; the kernel drops it and answers without.
                client.transport.sendto(b"%d" % scope, ("::1", port, 0, scope))
            await wait_until(lambda: len(client.received) == 2)
            assert client.data == [b"0", b"%d" % index]
            assert {source for _, source in client.received} == {name_of(server)}

    run(main())


def test_multicast_group_gets_the_datagrams_of_an_iteration(run: Run) -> None:
    group = "224.0.0.251"

    async def main() -> None:
        with contextlib.ExitStack() as stack:
            members: list[socket.socket] = []
            for _ in range(2):
                sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((group, members[0].getsockname()[1] if members else 0))
                request = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
                sock.settimeout(PATIENCE_SECONDS)
                members.append(sock)
            async with endpoint() as sender:
                sock = sender.transport.get_extra_info("socket")
                sock.setsockopt(
                    socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
                )
                sent = [b"%2d" % number for number in range(30)]
                for data in sent:
                    sender.transport.sendto(data, members[0].getsockname())
                await asyncio.sleep(0.001)
                for member in members:
                    assert [member.recv(100) for _ in sent] == sent
                assert sender.errors == []

    run(main())


def test_a_unix_endpoint_connects_to_a_path(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        server, client = str(tmp_path / "server"), str(tmp_path / "client")
        async with endpoint(Echo, family=socket.AF_UNIX, local_addr=server):
            options: dict[str, Any] = {
                "family": socket.AF_UNIX,
                "local_addr": client,
                "remote_addr": server,
            }
            async with endpoint(**options) as protocol:
                assert protocol.transport.get_extra_info("peername") == server
                protocol.transport.sendto(b"hello")
                await wait_until(lambda: protocol.received)
                assert protocol.received == [(b"hello", server)]

    run(main())


def test_missing_path_is_an_error_of_the_send(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with endpoint(family=socket.AF_UNIX, local_addr=str(tmp_path / "own")) as protocol:
            for number in range(3):
                protocol.transport.sendto(b"x", str(tmp_path / "nobody"))
                # Reported before sendto returns, also for the later ones of an iteration.
                assert [type(error) for error in protocol.errors] == [FileNotFoundError] * (
                    number + 1
                )

    run(main())
