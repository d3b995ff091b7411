"""Several processes at one address: clients that move stay with theirs, sessions are resumed by any.

python examples/quic/workers.py serve cert.pem key.pem
python examples/quic/workers.py ask ca.pem
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile

from ringloop import quic

HOST, PORT = "127.0.0.1", 4438
WORKERS = 3


def serve(certificate: str, key: str) -> None:
    workers = quic.bind_workers(HOST, PORT, count=WORKERS)
    # The workers end when the other end of this is closed.
    ends_with_us, ours = os.pipe()
    with tempfile.TemporaryDirectory() as sessions:
        for worker in workers:
            if os.fork() == 0:
                os.close(ours)
                for other in workers:
                    if other is not worker:
                        other.close()
                asyncio.run(work(worker, ends_with_us, certificate, key, sessions))
                os._exit(0)
        for worker in workers:
            worker.close()
        print("serving with", WORKERS, "processes")
        os.waitpid(-1, 0)


async def work(worker: quic.Worker, ends: int, certificate: str, key: str, sessions: str) -> None:
    async def answer(stream: quic.Stream) -> None:
        await stream.read_to_end(limit=1024)
        stream.write(b"worker %d" % worker.number)

    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(ends, over.set)
    async with await quic.serve(
        worker=worker,
        stream_handler=answer,
        certificate=certificate,
        private_key=key,
        alpn=["workers"],
        sessions=sessions,
    ):
        await over.wait()


async def ask(authority: str) -> None:
    configuration = quic.ClientConfig(ca_file=authority, alpn=["workers"])
    for attempt in range(5):
        async with quic.connect(
            HOST, PORT, server_name="localhost", configuration=configuration
        ) as connection:
            agreed = connection.handshake()
            how = "resumed" if agreed and agreed.is_resumed else "a new session"
            first = await question(connection)
            await connection.rebind(HOST)
            again = await question(connection)
            print(f"{attempt}: {how}, {first}; after moving: {again}")
            if again != first:
                sys.exit("it came to another worker")
    print("stayed with its worker every time")


async def question(connection: quic.Connection) -> str:
    stream = await connection.open_stream()
    stream.write(b"who are you?")
    stream.finish()
    return (await stream.read_to_end()).decode()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", certificate, key]:
            serve(certificate, key)
        case ["ask", authority]:
            asyncio.run(ask(authority))
        case _:
            sys.exit(__doc__)
