"""TCP connections: accepted, one byte echoed by `asyncio.Protocol`, closed by the client.

One operation is one connection. Each of the load generator's connections is followed by the next at
once.
"""

from support.serving import measure
from tcp_protocol import serve

if __name__ == "__main__":
    measure(serve, "connect")
