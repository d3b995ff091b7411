"""A server of aiohttp: a small JSON answer, keep-alive GETs.

One operation is one request. No access log.
"""

from aiohttp import web
from support.serving import measure


async def item(_request: web.Request) -> web.Response:
    """Make the answer."""
    return web.json_response({"name": "coil", "price": 2.5, "tags": ["wire", "copper"]})


async def serve() -> int:
    """Serve on a free port of 127.0.0.1."""
    app = web.Application()
    app.router.add_get("/", item)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port


if __name__ == "__main__":
    measure(serve, load="http")
