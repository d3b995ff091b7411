"""Compare our HTTP/3 with aioquic's, both ways: python -m tests.interop.h3 PROGRAM [--runs N]

PROGRAM is the example `h3_lines` of crates/ringloop-h3. One end is ours and the other aioquic's
H3Connection; there is no QUIC between them: bytes are cut and reordered between streams at random.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.events import StreamDataReceived

from tests.interop.qpack import Field, Ours, fields_of, read, shown, words_of

EXCHANGES = 40
CLIENT, SERVER = 0, 1


class Message:
    """What was sent, or received, on a stream."""

    def __init__(self) -> None:
        self.sections: list[list[Field]] = []
        self.body = b""
        self.is_complete = False

    def shown(self) -> tuple[Any, ...]:
        return self.sections, self.body, self.is_complete


class Quic:
    """What aioquic's H3Connection needs of a QuicConnection; keeps what is sent."""

    _quic_logger = None
    _remote_max_datagram_frame_size = None

    def __init__(self, *, is_client: bool) -> None:
        self.configuration = SimpleNamespace(is_client=is_client)
        self.next_unidirectional = 2 if is_client else 3
        self.sent: list[tuple[int, bytes, bool]] = []

    def get_next_available_stream_id(self, *, is_unidirectional: bool = False) -> int:
        assert is_unidirectional
        self.next_unidirectional += 4
        return self.next_unidirectional - 4

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        self.sent.append((stream_id, data, end_stream))

    def close(self, error_code: int, reason_phrase: str) -> None:
        raise AssertionError(f"aioquic closes: {error_code:#x} {reason_phrase}")


class End:
    """An end of the connection: `received` is by stream, and `take` returns what is to be sent."""

    def __init__(self) -> None:
        self.received: dict[int, Message] = defaultdict(Message)


class Theirs(End):
    """aioquic's."""

    def __init__(self, *, is_client: bool) -> None:
        super().__init__()
        self.quic = Quic(is_client=is_client)
        self.h3 = H3Connection(self.quic)

    def send(
        self, stream: int, head: list[Field], body: list[bytes], trailers: list[Field]
    ) -> None:
        self.h3.send_headers(stream, head)
        for part in body:
            self.h3.send_data(stream, part, end_stream=False)
        if trailers:
            self.h3.send_headers(stream, trailers, end_stream=True)
        else:
            self.h3.send_data(stream, b"", end_stream=True)

    def take(self) -> list[tuple[int, bytes, bool]]:
        sent, self.quic.sent = self.quic.sent, []
        return sent

    def receive(self, stream: int, data: bytes, fin: bool) -> None:
        for event in self.h3.handle_event(StreamDataReceived(data, fin, stream)):
            message = self.received[event.stream_id]
            if isinstance(event, HeadersReceived):
                message.sections.append(event.headers)
            elif isinstance(event, DataReceived):
                message.body += event.data
            message.is_complete |= event.stream_ended


class OursAtEnd(End):
    """Ours."""

    def __init__(self, ours: Ours, *, is_client: bool) -> None:
        super().__init__()
        self.ours = ours
        self.sent: list[tuple[int, bytes, bool]] = []
        self.ask("client" if is_client else "server")

    def ask(self, *words: Any) -> None:
        for item in filter(None, self.ours.ask(*words).split(";")):
            kind, stream_word, *rest = item.split()
            stream = int(stream_word)
            if kind == "send":
                self.sent.append((stream, read(rest[1]), rest[0] == "1"))
                continue
            message = self.received[stream]
            match kind:
                case "request":
                    scheme, target = rest[1].split("://")
                    authority, path = target.split("/", 1)
                    head = [(b":method", rest[0]), (b":scheme", scheme)]
                    head += [(b":authority", authority), (b":path", "/" + path)]
                    fields = [(name, value.encode()) for name, value in head]
                    message.sections.append(fields + fields_of(rest[2:]))
                case "response":
                    status = [(b":status", rest[0].encode())]
                    message.sections.append(status + fields_of(rest[1:]))
                case "data":
                    message.body += read(rest[0])
                case "trailers":
                    message.sections.append(fields_of(rest))
                case "end":
                    message.is_complete = True
                case _:
                    raise AssertionError(item)

    def send(
        self, stream: int, head: list[Field], body: list[bytes], trailers: list[Field]
    ) -> None:
        values = {name.decode(): value.decode() for name, value in head if name.startswith(b":")}
        fields = words_of(field for field in head if not field[0].startswith(b":"))
        if ":method" in values:
            uri = values[":scheme"] + "://" + values[":authority"] + values[":path"]
            self.ask("request", stream, 0, values[":method"], uri, *fields)
        else:
            self.ask("response", stream, 0, values[":status"], *fields)
        for part in body:
            self.ask("data", stream, 0, shown(part))
        if trailers:
            self.ask("trailers", stream, *words_of(trailers))
        else:
            self.ask("data", stream, 1, "-")

    def take(self) -> list[tuple[int, bytes, bool]]:
        sent, self.sent = self.sent, []
        return sent

    def receive(self, stream: int, data: bytes, fin: bool) -> None:
        self.ask("receive", stream, int(fin), shown(data))


class Run:
    """Requests and responses of one connection."""

    def __init__(self, ends: tuple[Any, Any], numbers: random.Random) -> None:
        self.ends = ends
        self.numbers = numbers
        self.inbox: tuple[Any, Any] = (defaultdict(deque), defaultdict(deque))
        self.sent: tuple[dict[int, Message], dict[int, Message]] = ({}, {})

    def send(self, end: int, stream: int, head: list[Field]) -> None:
        numbers = self.numbers
        # Each name once: `http` keeps values of a name together.
        names = numbers.sample(range(8), numbers.randrange(5))
        head = head + [(b"x-%d" % name, b"value %d" % numbers.randrange(9)) for name in names]
        body = [
            numbers.randbytes(numbers.choice([1, 90, 5000])) for _ in range(numbers.randrange(4))
        ]
        trailers = [(b"digest", b"%d" % numbers.randrange(4))] if numbers.random() < 0.3 else []
        self.ends[end].send(stream, head, body, trailers)
        message = self.sent[end][stream] = Message()
        message.sections = [head, trailers] if trailers else [head]
        message.body = b"".join(body)
        message.is_complete = True

    def flush(self) -> None:
        for end in (CLIENT, SERVER):
            for stream, data, fin in self.ends[end].take():
                self.inbox[1 - end][stream].append((data, fin))

    def deliver(self) -> bool:
        """Deliver a piece; False if nothing is on its way."""
        self.flush()
        ready = [
            (end, stream) for end in (0, 1) for stream, rest in self.inbox[end].items() if rest
        ]
        if not ready:
            return False
        end, stream = self.numbers.choice(ready)
        pieces = self.inbox[end][stream]
        data, fin = pieces.popleft()
        size = self.numbers.choice([1, 2, 10, 10_000])
        if len(data) > size:
            pieces.appendleft((data[size:], fin))
            data, fin = data[:size], False
        self.ends[end].receive(stream, data, fin)
        if end == SERVER:
            # Instructions may complete other streams.
            for other, message in list(self.ends[SERVER].received.items()):
                if message.is_complete and other not in self.sent[SERVER]:
                    status = self.numbers.choice([b"200", b"404", b"500"])
                    self.send(SERVER, other, [(b":status", status)])
        return True

    def all(self) -> None:
        for stream in range(0, 4 * EXCHANGES, 4):
            path = b"/%d" % self.numbers.randrange(5)
            head = [(b":method", b"POST"), (b":scheme", b"https")]
            self.send(CLIENT, stream, [*head, (b":authority", b"example.org"), (b":path", path)])
            for _ in range(self.numbers.randrange(40)):
                self.deliver()
        while self.deliver():
            pass
        for end in (CLIENT, SERVER):
            assert len(self.sent[end]) == EXCHANGES
            for stream, sent in self.sent[end].items():
                received = self.ends[1 - end].received[stream]
                assert received.shown() == sent.shown(), (stream, received.shown(), sent.shown())


def main() -> None:
    """Compare both roles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=10, help="in each role")
    options = parser.parse_args()
    ours = Ours(options.program)
    for seed in range(options.runs):
        for role in ("client", "server"):
            mine = OursAtEnd(ours, is_client=role == "client")
            theirs = Theirs(is_client=role != "client")
            ends = (mine, theirs) if role == "client" else (theirs, mine)
            try:
                Run(ends, random.Random(seed)).all()
            except Exception as error:
                error.add_note(f"{role=}, {seed=}")
                raise
    sys.stdout.write(f"HTTP/3: {2 * options.runs * EXCHANGES} exchanges with aioquic\n")


if __name__ == "__main__":
    main()
