"""What the programs of WebTransport share; how they are started and report is in contract.py.

A server does by the path of a session; it *tells* by a unidirectional stream of its own:

    /path?query     tells the path with its query
    /echo           bidirectional streams and datagrams come back; what comes on a unidirectional
                    stream comes back on one of the server's
    /protocol       speaks the sub-protocol "two"
    /server-bidi    opens a bidirectional stream with the data, ends it, tells what comes back on it
    /reset          on a stream, sends SMALL after it has come, reads on until it is reset, and tells
                    the code in decimal digits
    /server-reset   resets a stream with RESET once SMALL has come
    /stop           on a stream, sends once SMALL has come until it is stopped, and tells the code
    /server-stop    stops a stream with STOP once SMALL has come
    /close          waits for the end, and keeps its code and reason
    /closed         tells these ("code reason"), or nothing as yet
    /server-close   closes the session with CLOSE once a stream has come

Other paths are rejected with status 404. *A stream* is a bidirectional one that the client opens.
"""

SESSION_PATHS = frozenset(
    f"/{name}"
    for name in (
        *("path", "echo", "protocol", "server-bidi", "reset", "server-reset", "stop"),
        *("server-stop", "close", "closed", "server-close"),
    )
)
PATH = "/path?name=value&other=%20"
MISSING = "/missing"
PROTOCOLS = ("one", "two")
PROTOCOL = "two"
# Of 32 bits; some of HTTP/3's codes between them are left out for grease.
RESET = 70_000
STOP = 4_000_000_000
CLOSE = 3_000_000_007, "enough, thänk you"
CLOSE_TEXT = f"{CLOSE[0]} {CLOSE[1]}"
STREAMS = 100
STREAMS_AT_ONCE = 20
DATAGRAMS = tuple(b"%d " % at + bytes(900) for at in range(10))
