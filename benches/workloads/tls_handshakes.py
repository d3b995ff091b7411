"""TLS connections: accept, handshake, one byte echoed, closed by the client with close_notify.

One operation is one connection. Every handshake is a full one of TLS 1.3, with a P-256 certificate.
"""

from support.serving import measure
from tls_protocol import serve

if __name__ == "__main__":
    measure(serve, "tls-handshake")
