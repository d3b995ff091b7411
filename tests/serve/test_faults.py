"""Applications that fail, never answer or say what they must not, in each phase of each scope."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic, webtransport
from tests.serve.support import both, client_of, served
from tests.serve.test_websocket import Client
from tests.serve.test_websocket import opened as websocket_opened
from tests.serve.test_webtransport import ACCEPT as ACCEPT_SESSION
from tests.serve.test_webtransport import opened as session_opened
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]
    Message = dict[str, Any]

START = {"type": "http.response.start", "status": 200}
PART = {"type": "http.response.body", "body": b"part", "more_body": True}
END = {"type": "http.response.body", "body": b""}
ACCEPT = {"type": "websocket.accept"}
TEXT = {"type": "websocket.send", "text": "part"}
NONSENSE = {"type": "nonsense"}
FAILURE = "of the application"


class Failing:
    """Sends messages, then fails; the other paths are answered."""

    def __init__(self, scope: str, messages: list[Message], *, receives: bool = False) -> None:
        self.scope = scope
        self.messages = messages
        self.receives = receives

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/well":
            await send(START)
            await send({**END, "body": b"well"})
            return
        assert scope["type"] == self.scope
        if self.receives:
            await receive()
        for message in self.messages:
            await send(message)
        raise RuntimeError(FAILURE)


async def check_well(client: Any) -> None:
    """The connection goes on."""
    response = await within(client.request("GET", "/well"))
    assert await within(response.read()) == b"well"


def logged_once(caplog: pytest.LogCaptureFixture, text: str) -> None:
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1, errors
    assert text in caplog.text


@pytest.mark.parametrize("receives", [False, True])
@pytest.mark.parametrize(
    ("messages", "outcome", "text"),
    [
        pytest.param([], 500, FAILURE, id="before its response"),
        pytest.param([START], 0x102, FAILURE, id="after its start"),
        pytest.param([START, PART], 0x102, FAILURE, id="within its body"),
        pytest.param([START, END], 200, FAILURE, id="after its end"),
        pytest.param([NONSENSE], 500, "nonsense", id="nonsense"),
        pytest.param([START, NONSENSE], 0x102, "nonsense", id="nonsense after its start"),
        pytest.param([START, ACCEPT], 0x102, "websocket.accept", id="another scope's"),
        pytest.param([START, END, END], 200, "http.response.body", id="after the end"),
    ],
)
def test_http_application_that_fails(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    receives: bool,
    messages: list[Message],
    outcome: int,
    text: str,
) -> None:
    async def main() -> None:
        application = Failing("http", messages, receives=receives)
        async with both(certificates, application, lifespan="off") as client:
            if outcome in {200, 500}:
                response = await within(client.request("POST", "/", body=b"body"))
                assert response.status == outcome
                await within(response.read())
            else:
                with pytest.raises(quic.StreamResetError) as reset:
                    response = await within(client.request("POST", "/", body=b"body"))
                    while await within(response.read(1000)):
                        pass
                assert reset.value.code == outcome
            await check_well(client)
            await wait_until(lambda: client.request_count == 0)

    run(main())
    logged_once(caplog, text)


@pytest.mark.parametrize(
    ("messages", "status", "code", "text"),
    [
        pytest.param([], 500, None, FAILURE, id="before it accepts"),
        pytest.param([ACCEPT], 200, 1011, FAILURE, id="after it accepts"),
        pytest.param([ACCEPT, TEXT], 200, 1011, FAILURE, id="after a message"),
        pytest.param([NONSENSE], 500, None, "nonsense", id="nonsense"),
        pytest.param([ACCEPT, NONSENSE], 200, 1011, "nonsense", id="nonsense once accepted"),
        pytest.param([ACCEPT, ACCEPT], 200, 1011, "websocket.accept", id="accepted twice"),
        pytest.param([START], 500, None, "http.response.start", id="another scope's"),
        pytest.param(
            [ACCEPT, {"type": "websocket.close"}], 200, 1000, FAILURE, id="after its close"
        ),
    ],
)
def test_websocket_application_that_fails(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    messages: list[Message],
    status: int,
    code: int | None,
    text: str,
) -> None:
    async def main() -> None:
        application = Failing("websocket", messages)
        async with both(certificates, application, lifespan="off") as client:
            response = await websocket_opened(client)
            assert response.status == status
            if code is not None:
                closed = await Client(response).closed()
                assert closed is not None
                assert closed.code == code
            await check_well(client)

    run(main())
    logged_once(caplog, text)


OPEN = {"type": "webtransport.stream.open"}


@pytest.mark.parametrize(
    ("messages", "outcome", "text"),
    [
        pytest.param([], 500, FAILURE, id="before it accepts"),
        pytest.param([ACCEPT_SESSION], 1, FAILURE, id="after it accepts"),
        pytest.param([ACCEPT_SESSION, OPEN], 1, FAILURE, id="with an open stream"),
        pytest.param([NONSENSE], 500, "nonsense", id="nonsense"),
        pytest.param([ACCEPT_SESSION, NONSENSE], 1, "nonsense", id="nonsense once accepted"),
        pytest.param(
            [ACCEPT_SESSION, ACCEPT_SESSION], 1, "webtransport.accept", id="accepted twice"
        ),
        pytest.param([START], 500, "http.response.start", id="another scope's"),
        pytest.param(
            [ACCEPT_SESSION, {"type": "webtransport.close", "code": 7}],
            7,
            FAILURE,
            id="after its close",
        ),
        pytest.param(
            [ACCEPT_SESSION, {"type": "webtransport.stream.reset", "stream": 99, "code": 1}],
            1,
            "no open stream 99",
            id="of no stream",
        ),
    ],
)
def test_webtransport_application_that_fails(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    messages: list[Message],
    outcome: int,
    text: str,
) -> None:
    async def main() -> None:
        application = Failing("webtransport", messages, receives=True)
        async with served(certificates, application, lifespan="off") as server:
            if outcome >= 400:
                with pytest.raises(webtransport.SessionRejected) as rejected:
                    await session_opened(certificates, server)
                assert rejected.value.status == outcome
            else:
                async with await session_opened(certificates, server) as session:
                    assert (await within(session.wait_closed())).code == outcome
            async with client_of(certificates, server) as client:
                await check_well(client)

    run(main())
    logged_once(caplog, text)


@pytest.mark.parametrize("scope", ["http", "websocket", "webtransport"])
@pytest.mark.parametrize("receives", [True, False])
def test_application_that_never_answers_ends_with_its_client(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    scope: str,
    receives: bool,
) -> None:
    """An application that receives gets the disconnect; another is cancelled with the server."""
    running: list[str] = []
    told: list[str] = []
    cancelled: list[str] = []

    async def application(its: dict[str, Any], receive: Any, send: Any) -> None:
        running.append(its["type"])
        try:
            while receives and not (kind := (await receive())["type"]).endswith("disconnect"):
                pass
            if not receives:
                await asyncio.Event().wait()
            told.append(kind)
        except asyncio.CancelledError:
            cancelled.append(its["type"])
            raise

    async def main() -> None:
        given = {"lifespan": "off", "graceful_seconds": 0}
        async with served(certificates, application, **given) as server:
            async with client_of(certificates, server) as client:
                match scope:
                    case "http":
                        asking: Any = client.request("GET", "/")
                    case "websocket":
                        asking = websocket_opened(client)
                    case _:
                        asking = session_opened(certificates, server)
                task = asyncio.ensure_future(asking)
                await wait_until(lambda: running == [scope])
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await within(task)
                if receives:
                    await wait_until(lambda: told == [f"{scope}.disconnect"])
        assert cancelled == ([] if receives else [scope])

    run(main())
    assert not re.search("Traceback", caplog.text)


def test_streams_that_a_session_does_not_receive_stop_the_client(
    run: Run, certificates: Certificates
) -> None:
    """An application that never receives: also streams that are over at once are not read."""
    may_end = asyncio.Event()

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send(ACCEPT_SESSION)
        await may_end.wait()

    async def main() -> None:
        async with (
            served(certificates, application, lifespan="off") as server,
            await session_opened(certificates, server) as session,
        ):
            count = 0

            async def flood() -> None:
                nonlocal count
                while True:
                    stream = await session.open_unidirectional_stream()
                    await stream.send(bytes(1000))
                    stream.finish()
                    count += 1

            flooding = asyncio.ensure_future(flood())
            before = -1
            while before != count or not count:
                before = count
                for _ in range(10):
                    await within(session.connection.ping())
            # Messages that wait, one more for each stream, and as many streams as QUIC allows.
            assert count <= 32 + 2 * 100
            flooding.cancel()
            may_end.set()

    run(main())


async def _answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Accept what is no plain request, and end."""
    await receive()
    messages = {"http": [START, END], "websocket": [ACCEPT], "webtransport": [ACCEPT_SESSION]}
    for message in messages[scope["type"]]:
        await send(message)


@pytest.mark.parametrize("scope", ["http", "websocket", "webtransport"])
def test_no_path_breaks_a_line_of_the_log(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture, scope: str
) -> None:
    caplog.set_level(logging.INFO)
    path = "/a%0Aforged%1B[2J%E2%80%A8b?c=%0Ad"

    async def main() -> None:
        async with served(certificates, _answer, lifespan="off") as server:
            if scope == "webtransport":
                async with await session_opened(certificates, server, path) as session:
                    await within(session.wait_closed())
                return
            async with client_of(certificates, server) as client:
                if scope == "http":
                    response = await within(client.request("GET", path))
                else:
                    response = await websocket_opened(client, path=path.encode())
                assert response.status == 200
                response.cancel()

    run(main())
    (line,) = [text for record in caplog.records if "forged" in (text := record.getMessage())]
    assert " /a%0Aforged%1B%5B2J%E2%80%A8b?c=%0Ad HTTP/3" in line
