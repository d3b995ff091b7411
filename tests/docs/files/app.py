"""What README.md calls app: an ASGI application, a script, and what a worker runs."""

import asyncio


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for part in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{part}.complete"})
        return
    body = repr(asyncio.get_running_loop()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def main():
    print(asyncio.get_running_loop())


if __name__ == "__main__":
    asyncio.run(main())
