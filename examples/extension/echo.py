"""Talk to an echo server by a client in Rust, on the loop's own thread and ring."""

import asyncio

import ringloop_echo

import ringloop


async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1")
    client = await ringloop_echo.connect("{}:{}".format(*server.sockets[0].getsockname()))

    print(await client.echo(b"once"))
    print(await asyncio.wait_for(client.echo_often(b"a hundred times", 100), 5))

    async def handle(reply):
        await asyncio.sleep(0)
        print("Rust awaits Python:", reply)

    await client.converse([b"one", b"two"], handle)
    client.close()
    server.close()


ringloop.run(main())
