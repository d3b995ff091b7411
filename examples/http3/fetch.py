"""Fetch many URLs at once by HTTP/3: a connection an origin, a stream a request.

python examples/http3/fetch.py https://cloudflare-quic.com/ https://www.google.com/
python examples/http3/fetch.py --ca-file ca.pem --times 100 https://localhost:4433/
"""

from __future__ import annotations

import argparse
import asyncio
import time

from ringloop import h3

TIMEOUT_SECONDS = 10


async def fetch(pool: h3.Pool, url: str) -> str:
    """Return a line about a URL."""
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async with await pool.request("GET", url, {"user-agent": "ringloop"}) as response:
                # In pieces, so that a long body is not kept.
                size = 0
                async for piece in response:
                    size += len(piece)
    except OSError as error:
        # Connections, streams, look-ups and time-outs.
        return f"{url}: {type(error).__name__}: {error}"
    took = time.perf_counter() - begun
    return f"{url}: status {response.status}, {size} bytes in {took * 1e3:.1f} ms"


async def main(urls: list[str], ca_file: str | None) -> None:
    """Fetch all, and print a line about each as it is there."""
    async with h3.Pool(ca_file=ca_file) as pool:
        for line in asyncio.as_completed([fetch(pool, url) for url in urls]):
            print(await line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--ca-file", help="authorities to trust, in place of the system's")
    parser.add_argument("--times", type=int, default=1, help="how often each is fetched")
    given = parser.parse_args()
    asyncio.run(main(given.urls * given.times, given.ca_file))
