"""Query a DNS server over QUIC with dnspython, in coroutines and threads: aioquic|ringloop FOLDER."""

from __future__ import annotations

import asyncio
import sys

from ringloop.quic.asyncio import serve
from ringloop.quic.configuration import QuicConfiguration
from tests.ecosystem.quic import shim

if sys.argv[1] == "ringloop":
    shim.install("aioquic")

import dns.asyncquery
import dns.message
import dns.query
import dns.quic
import dns.rrset

FOLDER = sys.argv[2]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = int.from_bytes(await reader.readexactly(2), "big")
    query = dns.message.from_wire(await reader.readexactly(size))
    response = dns.message.make_response(query)
    response.answer.append(
        dns.rrset.from_text(query.question[0].name, 60, "IN", "TXT", '"' + "a" * 200 + '"')
    )
    wire = response.to_wire()
    writer.write(len(wire).to_bytes(2, "big") + wire)
    writer.write_eof()


async def main() -> None:
    configuration = QuicConfiguration(alpn_protocols=["doq"], is_client=False)
    configuration.load_cert_chain(f"{FOLDER}/certificate.pem", f"{FOLDER}/key.pem")
    async with await serve(
        "127.0.0.1",
        0,
        configuration=configuration,
        stream_handler=answer,
        session_ticket_handler=lambda ticket: None,
    ) as server:
        port = server.sockname[1]
        query = dns.message.make_query("example.test", "TXT")
        arguments = {"port": port, "server_hostname": "localhost", "timeout": 20}
        arguments["verify"] = f"{FOLDER}/authority.pem"
        for _question in range(2):
            response = await dns.asyncquery.quic(query, "127.0.0.1", **arguments)
            assert response.answer, response
        response = await asyncio.to_thread(dns.query.quic, query, "127.0.0.1", **arguments)
        assert response.answer, response
        await several(port)
    print("done")


async def several(port: int) -> None:
    """Send many queries on one connection, and again on one that resumes its session."""
    async with dns.quic.AsyncioQuicManager(
        verify_mode=f"{FOLDER}/authority.pem", server_name="localhost"
    ) as manager:
        for _connection in range(2):
            connection = manager.connect("127.0.0.1", port)

            async def ask(number: int, connection: object = connection) -> None:
                query = dns.message.make_query(f"n{number}.example.test", "TXT")
                wire = query.to_wire()
                stream = await connection.make_stream(20)  # type: ignore[attr-defined]
                async with stream:
                    await stream.send(wire, True)
                    answered = dns.message.from_wire(await stream.receive(20))
                assert answered.answer[0].name == query.question[0].name

            await asyncio.gather(*[ask(number) for number in range(20)])
            await connection.close()


asyncio.run(main())
