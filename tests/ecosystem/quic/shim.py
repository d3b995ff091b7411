"""Makes applications of aioquic and qh3 import `ringloop.quic` instead.

Of qh3 the HTTP/3 layer stays its own, on top of our connections; of aioquic where that is asked for.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

PARTS = {
    "quic.configuration": "configuration",
    "quic.connection": "connection",
    "quic.events": "events",
    "quic.packet": "packet",
    "asyncio": "asyncio",
    "buffer": "buffer",
    "tls": "tls",
}

HTTP3 = {
    "h3": "h3",
    "h3.connection": "h3.connection",
    "h3.events": "h3.events",
    "h3.exceptions": "h3.exceptions",
}

# aiopquic's modules are in a package of their own.
OF_AIOPQUIC = {
    "asyncio": "asyncio",
    "asyncio.client": "asyncio",
    "asyncio.protocol": "asyncio",
    "asyncio.server": "asyncio",
    "asyncio.webtransport": "webtransport",
    "quic.configuration": "configuration",
    "quic.connection": "connection",
    "quic.events": "events",
}

# Names that its own tests import for parts that are not there; the tests of these are left out.
ABSENT = {
    "_binding": (),
    "_binding._transport": ("_format_sockaddr", "tx_data_bytes_queued"),
    "asyncio.dispatch": ("serve_dispatch",),
    "quic.connection": ("_EVT_STREAM_DESTROY",),
}


def stand_in_for_aiopquic() -> None:
    """Replace aiopquic, which need not be installed."""
    for name in ("aiopquic", "aiopquic.quic"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = []
    for old, new in OF_AIOPQUIC.items():
        ours = importlib.import_module(f"ringloop.quic.compat.aiopquic.{new}")
        sys.modules[f"aiopquic.{old}"] = ours
    for name, attributes in ABSENT.items():
        absent = sys.modules.setdefault(f"aiopquic.{name}", types.ModuleType(name))
        for attribute in attributes:
            setattr(absent, attribute, None)


def install(package: str, *, http3: bool = False) -> None:
    """Replace the QUIC part of `package`, "aioquic" or "qh3", before anything imports it.

    With `http3`, which only aioquic has in our shape, its HTTP/3 part as well.
    """
    # Its traces consist of its own packets; HTTP/3 needs only the name.
    importlib.import_module(f"{package}.quic.logger")
    for name in [name for name in sys.modules if name.startswith(f"{package}.h3")]:
        del sys.modules[name]
    for old, new in {**PARTS, **(HTTP3 if http3 else {})}.items():
        ours = importlib.import_module(f"ringloop.quic.{new}")
        name = f"{package}.{old}"
        sys.modules[name] = ours
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, ours)
    if package == "qh3":
        _rename_qh3()


def _rename_qh3() -> None:
    """Handle qh3's names, which are in the package itself, and its certificate objects."""
    import qh3
    from qh3._hazmat import Certificate

    from ringloop.quic import configuration, connection, events, tls

    class QuicConnection(connection.QuicConnection):
        def get_peercert(self) -> Any:
            ours = super().get_peercert()
            return None if ours is None else Certificate(ours.public_bytes())

        def get_issuercerts(self) -> Any:
            return [Certificate(ours.public_bytes()) for ours in super().get_issuercerts()]

    h3 = importlib.import_module("qh3.h3.connection")
    # Its HTTP/3 always announces datagrams, as its QUIC does.
    qh3.QuicConfiguration = functools.partial(
        configuration.QuicConfiguration, max_datagram_frame_size=65536
    )
    for module, names in (
        (connection, ["QuicConnectionError"]),
        (tls, ["CipherSuite", "SessionTicket"]),
        (h3, ["H3Connection", "ProtocolError"]),
    ):
        for name in names:
            setattr(qh3, name, getattr(module, name))
    qh3.QuicConnection = QuicConnection
    qh3.quic_events = events
    qh3.h3_events = importlib.import_module("qh3.h3.events")
