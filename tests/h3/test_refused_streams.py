"""A stream that was refused is read no further, on every loop: its rest passes for no new stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.h3.raw import GET, asked, headers, raw_client
from tests.h3.support import served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop import h3
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

# A request with a field of a response.
MALFORMED = headers((b":status", b"200"))
# Where they begin a stream, these are the type of a second control stream, and frames of DATA.
REST = bytes(200_000)


@pytest.mark.parametrize("webtransport", [False, True])
@pytest.mark.parametrize(
    ("start", "unidirectional", "code"),
    [
        pytest.param(b"\x21", True, 0x103, id="a stream of an unknown type"),
        pytest.param(MALFORMED, False, 0x10E, id="a malformed request"),
    ],
)
def test_rest_of_a_refused_stream_is_not_read(
    run: Run,
    certificates: Certificates,
    start: bytes,
    unidirectional: bool,
    code: int,
    webtransport: bool,
) -> None:
    async def answer(request: h3.Request) -> None:
        await request.respond(200)

    async def main() -> None:
        async with (
            served(certificates, answer, webtransport=webtransport) as server,
            raw_client(certificates, server.address) as connection,
        ):
            refused = await within(connection.open_stream(unidirectional=unidirectional))
            refused.write(start + REST)
            refused.finish()
            assert await within(refused.stopped()) == code
            # The connection goes on.
            stream = await asked(connection, GET, end=True)
            assert (await within(stream.read())).startswith(b"\x01")

    run(main())
