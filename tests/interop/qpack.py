"""Compare our QPACK with ls-qpack, both ways: python -m tests.interop.qpack PROGRAM [--runs N]

PROGRAM is the example `qpack_lines` of crates/ringloop-h3; ls-qpack comes as pylsqpack. Instructions,
sections and acknowledgements are delayed against each other at random, so that sections are blocked.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import pylsqpack

if TYPE_CHECKING:
    from collections.abc import Iterable

Field = tuple[bytes, bytes]

SECTION_BYTES_MAX = 1 << 20
LIMITS = [(0, 0), (220, 1), (4096, 0), (4096, 16)]
NAMES = [b":path", b":method", b"cookie", b"user-agent", b"x-request-id", b"content-type", b"x-a"]
SECTIONS = 300


class Ours:
    """The program, a line a question."""

    def __init__(self, program: str) -> None:
        pipe = subprocess.PIPE
        self.child = subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True)

    def ask(self, *words: Any) -> str:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().strip()
        if answer.startswith("error"):
            raise ValueError(f"{' '.join(map(str, words))[:200]}: {answer}")
        return answer


def shown(data: bytes) -> str:
    return data.hex() or "-"


def read(word: str) -> bytes:
    return b"" if word == "-" else bytes.fromhex(word)


def fields_of(words: list[str]) -> list[Field]:
    return list(zip(map(read, words[::2]), map(read, words[1::2]), strict=True))


def words_of(fields: Iterable[Field]) -> list[str]:
    return [shown(part) for field in fields for part in field]


def some_fields(numbers: random.Random) -> list[Field]:
    def value() -> bytes:
        if numbers.random() < 0.2:
            return numbers.randbytes(numbers.randrange(200))
        return b"value %d" % numbers.randrange(9)

    return [(numbers.choice(NAMES), value()) for _ in range(numbers.randrange(1, 9))]


def ours_to_theirs(ours: Ours, numbers: random.Random, capacity: int, blocked: int) -> int:
    """Have ls-qpack decode what we encode; returns how many sections were blocked."""
    ours.ask("limits", capacity, blocked, SECTION_BYTES_MAX)
    theirs = pylsqpack.Decoder(capacity, blocked)
    instructions: deque[bytes] = deque()
    waiting: dict[int, list[Field]] = {}
    count = 0

    def deliver() -> None:
        for stream in theirs.feed_encoder(instructions.popleft()):
            answers, fields = theirs.resume_header(stream)
            assert fields == waiting.pop(stream)
            ours.ask("answers", shown(answers))

    for stream in range(0, 4 * SECTIONS, 4):
        sent = some_fields(numbers)
        carried, section = ours.ask("encode", stream, *words_of(sent)).split()
        if read(carried):
            instructions.append(read(carried))
        while instructions and (blocked == 0 or numbers.random() < 0.4):
            deliver()
        try:
            answers, fields = theirs.feed_header(stream, read(section))
        except pylsqpack.StreamBlocked:
            waiting[stream] = sent
            count += 1
        else:
            assert fields == sent, (fields, sent)
            ours.ask("answers", shown(answers))
    while instructions:
        deliver()
    assert not waiting
    return count


def theirs_to_ours(ours: Ours, numbers: random.Random, capacity: int, blocked: int) -> int:
    """Decode what ls-qpack encodes; returns how many sections were blocked."""
    ours.ask("limits", capacity, blocked, SECTION_BYTES_MAX)
    theirs = pylsqpack.Encoder()
    instructions = deque([theirs.apply_settings(capacity, blocked)])
    waiting: dict[int, list[Field]] = {}
    count = 0

    def deliver() -> None:
        answer = ours.ask("instructions", shown(instructions.popleft()))
        for unblocked in filter(None, answer.split(";")):
            stream, *words = unblocked.split()
            assert fields_of(words) == waiting.pop(int(stream))

    for stream in range(0, 4 * SECTIONS, 4):
        sent = some_fields(numbers)
        carried, section = theirs.encode(stream, sent)
        if carried:
            instructions.append(carried)
        while instructions and (blocked == 0 or numbers.random() < 0.4):
            deliver()
        answer = ours.ask("decode", stream, shown(section))
        if answer == "blocked":
            waiting[stream] = sent
            count += 1
        else:
            assert fields_of(answer.split()) == sent
        if numbers.random() < 0.5:
            theirs.feed_decoder(read(ours.ask("acknowledge")))
    while instructions:
        deliver()
    assert not waiting
    return count


def main() -> None:
    """Compare both directions, with every pair of limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=5, help="with each pair of limits")
    options = parser.parse_args()
    ours = Ours(options.program)
    blocked_count = 0
    for seed in range(options.runs):
        for capacity, blocked in LIMITS:
            for direction in (ours_to_theirs, theirs_to_ours):
                numbers = random.Random(seed)
                try:
                    blocked_count += direction(ours, numbers, capacity, blocked)
                except Exception as error:
                    error.add_note(f"{direction.__name__}, {capacity=}, {blocked=}, {seed=}")
                    raise
    if not blocked_count:
        sys.exit("no section was ever blocked: nothing was delayed")
    count = 2 * SECTIONS * len(LIMITS) * options.runs
    print(f"QPACK: {count} sections with ls-qpack, {blocked_count} of them blocked")  # noqa: T201


if __name__ == "__main__":
    main()
