"""asyncssh: protocols on raw transports, flow control in both directions, processes and files."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import asyncssh

from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

MIB = 1 << 20


class Server(asyncssh.SSHServer):
    """Lets clients reach any address through it."""

    def connection_requested(self, *address: Any) -> bool:
        return True


async def shout(process: Any) -> None:
    """Answer the client's input in capitals, line by line, then its command."""
    async for line in process.stdin:
        process.stdout.write(line.upper())
    process.stdout.write(f"done: {process.command}\n")
    process.exit(3)


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Any]:
    """Serve a shell that shouts and the files of `folder`; yield a client."""
    host, user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    authorized = asyncssh.import_authorized_keys(user.export_public_key().decode())
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=Server,
        server_host_keys=[host],
        authorized_client_keys=authorized,
        process_factory=shout,
        sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=os.fsencode(folder)),
    )
    known = asyncssh.import_known_hosts(f"* {host.export_public_key().decode()}")
    try:
        async with asyncssh.connect(
            "127.0.0.1",
            server.get_port(),
            client_keys=[user],
            known_hosts=known,
            username="smoke",
            config=None,
        ) as client:
            yield client
    finally:
        server.close()
        await within(server.wait_closed())


def test_command_gets_input_and_returns_its_status(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as client:
            done = await within(client.run("shout", input="words\n" * 1_000), 30)
            assert done.stdout == "WORDS\n" * 1_000 + "done: shout\n"
            assert done.exit_status == 3
            many = await within(
                asyncio.gather(*(client.run(f"{number}", input="x\n") for number in range(10)))
            )
            assert [answer.stdout for answer in many] == [f"X\ndone: {n}\n" for n in range(10)]

    run(main())


def test_files_of_megabytes_go_both_ways(run: Run, tmp_path: Path) -> None:
    served, local = tmp_path / "served", tmp_path / "local"
    served.mkdir()
    local.mkdir()
    content = os.urandom(4 * MIB)
    (local / "up").write_bytes(content)

    async def main() -> None:
        async with connected(served) as client, client.start_sftp_client() as files:
            await within(files.put(str(local / "up"), "there"), 30)
            assert (served / "there").read_bytes() == content
            await within(files.get("there", str(local / "down")), 30)
            assert (local / "down").read_bytes() == content
            assert set(await files.listdir(".")) - {".", ".."} == {"there"}

    run(main())


def test_forwarded_port_carries_a_connection(run: Run, tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        target = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = target.sockets[0].getsockname()[1]
        async with connected(tmp_path) as client:
            forwarded = await client.forward_local_port("127.0.0.1", 0, "127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", forwarded.get_port())
            content = os.urandom(MIB)
            writer.write(content)
            writer.write_eof()
            assert await within(reader.read(), 30) == content
            writer.close()
            await writer.wait_closed()
            forwarded.close()
            await forwarded.wait_closed()
        target.close()
        await target.wait_closed()

    run(main())
