"""A connection: awaitable streams, datagrams with a policy, and properties.

Owns: nothing; the native endpoint has the state. Called by: programs. Never does: make a future
if the result is available.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from ringloop._arguments import check_bools
from ringloop._native import quic as _quic
from ringloop.quic._stream import Stream
from ringloop.quic.errors import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ringloop.quic._endpoint import Endpoint

    _Data = bytes | bytearray | memoryview

__all__ = ["Connection", "Policy"]

Policy: TypeAlias = Literal["wait", "drop_oldest", "drop_new"]

_POLICIES = get_args(Policy)


class Connection(_quic.Connection):
    """A QUIC connection.

    As a context manager it is closed at the end: with code 0, or 1 after an exception.
    """

    endpoint: Endpoint

    async def wait_connected(self) -> None:
        """Wait for the end of the handshake; raise the error if it fails."""
        while self.is_handshaking:
            await self._waiter("progress")
        if (error := self.error) is not None:
            raise error

    async def wait_closed(self, *, linger: bool = False) -> None:
        """Wait for the end of the connection, from either side.

        `linger`: also until no more packets may arrive (three times the probe time-out,
        RFC 9000 §10.2), so that a lost close is repeated.
        """
        check_bools(linger=linger)
        while not self.is_closed:
            await self._waiter("progress")
        if linger:
            await self.endpoint._wait_gone(self)

    def close(  # type: ignore[override]
        self, code: int = 0, reason: str | _Data = ""
    ) -> None:
        """Close with the program's code and reason, after sending written data.

        Sends only what the path allows at once: await `Stream.acked()` for data that must arrive.
        The last flight of a client's handshake is sent first: without it the server would see neither
        the connection nor the code (RFC 9000 §10.2.3).
        """
        super().close(code, reason)

    # Streams.

    async def open_stream(self, *, unidirectional: bool = False) -> Stream:
        """Open a stream once the peer allows one."""
        while (stream_id := self._open_stream(unidirectional)) is None:
            await self._waiter("open", unidirectional)
        return Stream(self, stream_id)

    async def accept_stream(self, *, unidirectional: bool = False) -> Stream:
        """Accept the next stream that the peer opens."""
        while (stream_id := self._accept_stream(unidirectional)) is None:
            await self._waiter("accept", unidirectional)
        return Stream(self, stream_id)

    def open_stream_nowait(self, *, unidirectional: bool = False) -> Stream | None:
        """Open a stream; None if the peer allows no more at the moment."""
        stream_id = self._open_stream(unidirectional)
        return None if stream_id is None else Stream(self, stream_id)

    def accept_stream_nowait(self, *, unidirectional: bool = False) -> Stream | None:
        """Accept a stream that the peer has opened; None if there is none."""
        stream_id = self._accept_stream(unidirectional)
        return None if stream_id is None else Stream(self, stream_id)

    async def incoming_streams(self, *, unidirectional: bool = False) -> AsyncIterator[Stream]:
        """Yield the streams that the peer opens, until the connection ends."""
        while True:
            try:
                stream = await self.accept_stream(unidirectional=unidirectional)
            except ConnectionClosed:
                return
            yield stream
            # Drops the reference before waiting for the next one: an unreferenced stream is finished.
            del stream

    # Datagrams.

    async def send_datagram(  # type: ignore[override]
        self, data: _Data, policy: Policy = "wait", *, expires: float | None = None
    ) -> bool:
        """Send a datagram; return whether it was accepted.

        If the buffer is full: `wait` waits for space, `drop_oldest` drops the oldest ones, `drop_new`
        drops this one. A datagram not sent within `expires` seconds, including the wait, is dropped;
        `stats()` counts those.
        """
        drop_oldest = _drops_oldest(policy)
        if super().send_datagram(data, drop_oldest, expires):
            return True
        if policy != "wait":
            return False
        loop = asyncio.get_running_loop()
        # None, and values too large for a clock, mean no expiry.
        end = None if expires is None or math.isinf(expires) else loop.time() + float(expires)
        try:
            async with asyncio.timeout_at(end):
                while True:
                    await self._waiter("datagram_out")
                    left = None if end is None else max(0.0, end - loop.time())
                    if super().send_datagram(data, drop_oldest=False, expires=left):
                        return True
        except TimeoutError:
            return False

    def send_datagram_nowait(self, data: _Data, *, drop_oldest: bool = False) -> bool:
        """Send a datagram now; False if the buffer is full."""
        return super().send_datagram(data, drop_oldest)

    async def send_datagrams(  # type: ignore[override]
        self, datagrams: Iterable[_Data], policy: Policy = "wait"
    ) -> int:
        """Send several; return how many were accepted.

        With `drop_new` the rest is dropped once the buffer is full.
        """
        drop_oldest = _drops_oldest(policy)
        rest = list(datagrams)
        total = len(rest)
        while rest:
            count = super().send_datagrams(rest, drop_oldest)
            del rest[:count]
            if not rest or policy != "wait":
                break
            await self._waiter("datagram_out")
        return total - len(rest)

    async def receive_datagram(self) -> bytes:
        """Receive the next datagram."""
        return (await self.receive_datagrams(1))[0]

    async def receive_datagrams(self, count: int = 0) -> list[bytes]:  # type: ignore[override]
        """Receive the datagrams that have arrived, at most `count` (0: all); wait for the first.

        Beyond `datagram_receive_buffer` bytes the oldest unread ones are dropped.
        """
        while not (datagrams := super().receive_datagrams(count)):
            await self._waiter("datagram_in")
        return datagrams

    # The rest.

    async def ping(self) -> float:  # type: ignore[override]
        """Ping the peer; return the seconds until the acknowledgement."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        number = super().ping()
        while self._answered_pings < number:
            if (error := self.error) is not None:
                raise error
            await self._waiter("progress")
        return loop.time() - begun

    async def rebind(self, host: str | None = None, port: int = 0) -> None:
        """Continue from another address of this machine: the connection migrates (RFC 9000 §9).

        All connections of the endpoint move; one made by `connect` has its own. Waits until the
        handshakes of all of them are confirmed: they may not move earlier.
        """
        while waiting := [it for it in self.endpoint.connections if it._must_stay]:
            await waiting[0]._confirmed()
        self.endpoint.rebind(host, port)
        await self.ping()

    @property
    def _must_stay(self) -> bool:
        return self.is_client and not self.is_closed and not self.is_confirmed

    async def _confirmed(self) -> None:
        while self._must_stay:
            await self._waiter("progress")

    @property
    def alpn(self) -> str | None:
        """The negotiated protocol."""
        agreed = self.handshake()
        return agreed.alpn if agreed else None

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER; None if it presented none."""
        chain = self.peer_certificates()
        return chain[0] if chain else None

    @property
    def early_data_accepted(self) -> bool:
        """Clients, once the handshake is complete: whether the server accepted early data."""
        agreed = self.handshake()
        return agreed is not None and agreed.early_data_accepted

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`peername`, `sockname`, `peercert` (DER), `cipher`, `alpn`.

        Returns the default for unknown values, or if the connection is forgotten or the socket
        closed.
        """
        try:
            known = self._extra_info(name)
        except ConnectionClosed:
            return default
        return default if known is None else known

    def _extra_info(self, name: str) -> Any:
        match name:
            case "peername":
                return self.remote_address
            case "sockname" if not self.endpoint._driver.is_closed:
                return self.endpoint.address
            case "peercert":
                return self.peer_certificate
            case "alpn":
                return self.alpn
            case "cipher" if (agreed := self.handshake()) is not None:
                return agreed.cipher_suite
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(0 if kind is None else 1)
        await self.endpoint._after_close(self)

    def __repr__(self) -> str:
        if self.is_closed:
            return f"<Connection closed: {self.error}>"
        return f"<Connection {self._key} with {self.remote_address}>"


def _drops_oldest(policy: str) -> bool:
    if policy not in _POLICIES:
        raise ValueError(f"policy is {policy!r}: give one of {', '.join(map(repr, _POLICIES))}")
    return policy == "drop_oldest"
