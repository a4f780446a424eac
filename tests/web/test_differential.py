"""Two parsers, one reading: whatever is sent and wherever it is cut, our connection and h11 see the same requests.

We may refuse what h11 accepts, and are stricter in places. What we accept and h11 refuses has its reason in `oracle`.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from decided.web import parser
from tests.web import oracle
from tests.web.in_process import Seen, receive
from tests.web.streams import HIDDEN, Maker

STREAMS, MANY_STREAMS = 4_000, 400_000
CUT_STREAMS, MANY_CUT_STREAMS = 40, 2_000
SMUGGLED = [
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (27 + len(HIDDEN)) + b"Upgrade:\n" * 3 + HIDDEN,
    b"POST / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\nConnection: upgrade\r\nContent-Length: 33\r\n\r\n" + HIDDEN,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN),
]  # fmt: skip


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    return [stream[start:end] for start, end in pairwise([0, *places, len(stream)]) if start < end]


def at_every_byte(stream: bytes) -> Iterator[list[bytes]]:
    """In two pieces, wherever that can be, and in as many as there are bytes."""
    yield from (cut(stream, [place]) for place in range(1, len(stream)))
    yield cut(stream, range(len(stream)))


def at_random(chance: random.Random, stream: bytes) -> list[bytes]:
    return cut(stream, sorted(chance.choices(range(len(stream) + 1), k=chance.choice((0, 1, 2, 5)))))


def without_offer(requests: list[Seen]) -> list[Seen]:
    """An offer to change the protocol is passed over: our handlers do not see it."""
    return [
        each._replace(headers={name: value for name, value in each.headers.items() if name != b"upgrade"})
        for each in requests
    ]


async def compare(cases: Iterable[tuple[bytes, list[bytes]]], chance: random.Random) -> tuple[int, int, set[str]]:
    """Read each stream twice. Returns how many requests both accepted, how many streams both refused, and what of the
    oracle's list was used."""
    accepted, refused, used = 0, 0, set[str]()
    for stream, segments in cases:
        theirs = oracle.read(stream, used)
        ours, recorder = await receive(segments, chance)
        case = f"{stream!r} in {segments!r}\nours: {ours}\nh11: {theirs}"
        assert {error.status for error in recorder.refusals} <= {400}, case
        both = min(len(ours.requests), len(theirs.requests))
        assert without_offer(ours.requests)[:both] == without_offer(theirs.requests)[:both], case
        assert len(ours.requests) == both, f"we accept what h11 refuses: {case}"
        waits_for_more = len(theirs.requests) == both and theirs.end == "open"
        assert ours.end != "open" or waits_for_more, f"we wait for what h11 has read or refused: {case}"
        accepted += both
        refused += ours.end == theirs.end == "refused"
    return accepted, refused, used


def check_random(streams: int, seed: int) -> None:
    chance = random.Random(seed)
    made = (Maker(chance).stream() for _ in range(streams))
    accepted, refused, used = asyncio.run(compare(((each, at_random(chance, each)) for each in made), chance))
    assert accepted > streams / 4  # neither accepts nothing nor everything
    assert refused > streams / 4
    assert used == set(oracle.LENIENCIES)


def check_cuts(streams: int, seed: int) -> None:
    chance = random.Random(seed)
    made = [*SMUGGLED, *(Maker(chance).stream() for _ in range(streams))]

    async def same_in_pieces() -> None:
        await compare(((each, [each]) for each in made), chance)
        for stream in made:
            whole, _ = await receive([stream], chance)
            for segments in at_every_byte(stream):
                pieces, _ = await receive(segments, chance)
                assert pieces == whole, f"{stream!r} in {segments!r}"

    asyncio.run(same_in_pieces())


def test_random_streams_cut_at_random() -> None:
    check_random(STREAMS, seed=1)


def test_bodies_are_handed_on_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small as can be, so that a piece ends at every place of a chunk and of the blank line behind the last."""
    for size in (4, 5, 7):
        monkeypatch.setattr(parser, "_MAX_PIECE_BYTES", size)
        check_random(STREAMS // 4, seed=size)


def test_streams_cut_at_every_byte() -> None:
    check_cuts(CUT_STREAMS, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_more_streams(seed: int) -> None:
    check_random(MANY_STREAMS // 4, seed)
    check_cuts(MANY_CUT_STREAMS // 4, seed)
