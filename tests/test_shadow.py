"""`--shadow`: a second model is asked too, and nobody notices but who compares."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from decided.contract.types import Noul, Question
from decided.engines.api import Engine, Verdict
from decided.errors import InferenceFailed
from decided.evaluation.labelled import lines, read_row
from decided.serving.shadow import Sample, Shadow
from tests.profiles.shelf import TOPIC, written
from tests.spec.checks import eventually
from tests.support.fake_model import FakeModel
from tests.support.server import Server, running_server, start

QUESTIONS = {
    "topic": {"type": "choice", "instructions": "About?", "criteria": {"delivery": "late", "billing": None, "x": None}},
    "mood": {"type": "score", "instructions": "How upset?", "criteria": ["calm", "cross", "angry"]},
    "angry": {"type": "noul", "instructions": "Is the writer angry?"},
}
MANY = {"type": "choice", "criteria": {f"option {number}": None for number in range(30)}}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shadow") / "shadow.jsonl"


@pytest.fixture(scope="module")
def shadowed(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    profiles = written(tmp_path_factory.mktemp("profiles") / "p").parent
    flags = ("--shadow", "fake:contrary", "--shadow-share", "1", "--shadow-log", str(log), "--profiles", str(profiles))
    with running_server(*flags) as server:
        yield server


def counted(server: Server) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in server.get("/metrics").body.decode().splitlines():
        if line.startswith("service_shadow_answers_total"):
            found[line.partition("{")[2].partition("}")[0]] += int(float(line.rpartition(" ")[2]))
    return found


def test_what_differs_is_counted_and_written_as_labels(shadowed: Server, log: Path, server: Server) -> None:
    states = [f"My parcel {number} is late." for number in range(3)]
    plain = server.batch(states, QUESTIONS)
    assert shadowed.batch(states, QUESTIONS).body == plain.body
    assert shadowed.ask({"a": 1}, QUESTIONS).body == server.ask({"a": 1}, QUESTIONS).body
    body = {"states": states, "questions": QUESTIONS}
    stream = shadowed.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
    assert len(stream.body.splitlines()) == 3
    assert eventually(lambda: sum(counted(shadowed).values()) == 7 * len(QUESTIONS))
    rows = [read_row(line, 256) for line in lines(log.read_bytes())]
    assert {row.state for row in rows} == {*states, '{"a":1}'}
    written_down = [json.loads(line) for line in log.read_text().splitlines()]
    different = sum(
        line["answers"][name] != line["shadow_answers"][name] for line in written_down for name in QUESTIONS
    )
    assert counted(shadowed)['profile="",result="disagree"'] == different > 0
    first = {state: one["answers"] for state, one in zip(states, plain.json["results"], strict=True)}
    for line in written_down:
        if line["state"] in first:
            told = first[line["state"]]
            assert line["answers"] == {
                "topic": told["topic"]["choice"],
                "mood": told["mood"]["level"],
                "angry": told["angry"]["noul"] >= 0.5,
            }
    assert log.stat().st_mode & 0o077 == 0


def test_a_profiled_question_is_counted_by_its_profile(shadowed: Server) -> None:
    shadowed.ask("my money", {"q": TOPIC})
    assert eventually(lambda: any('profile="topic-' in labels for labels in counted(shadowed)))


def test_what_the_second_model_cannot_take_is_left_out(shadowed: Server) -> None:
    before = sum(counted(shadowed).values())
    assert shadowed.ask("Some state.", {"many": MANY}).status == 200
    assert shadowed.ask("Some state.", {"many": MANY, "angry": QUESTIONS["angry"]}).status == 200
    assert eventually(lambda: sum(counted(shadowed).values()) == before + 1)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--shadow-log", "x.jsonl"), 2, "--shadow-log needs a second model"),
        (("--shadow", "fake", "--shadow-share", "2"), 2, "--shadow-share must be a number from 0 to 1"),
        (
            ("--shadow", "fake", "--shadow-log", "/nowhere/x.jsonl"),
            2,
            "--shadow-log /nowhere/x.jsonl cannot be written",
        ),
        (("--shadow", "fake:broken"), 3, "--shadow 'fake:broken' cannot be loaded"),
    ],
)
def test_a_shadow_that_cannot_be_is_told_at_the_start(flags: tuple[str, ...], code: int, words: str) -> None:
    server = start("--host", "127.0.0.1", "--port", "0", "--model", "fake", *flags)
    try:
        assert server.process.wait(120) == code
        assert words in server.log()
    finally:
        server.end()


# --- leftover capacity only ---


class Slow:
    """A second model that takes until it is told, and counts how often it was begun and broken off."""

    card = FakeModel.card
    begun = broken_off = 0

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def decide(self, states: Sequence[str], questions: Sequence[Question]) -> list[Verdict]:
        self.begun += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        if states == ["fail"]:
            raise InferenceFailed("told to")
        return [Verdict([[1.0, 2.0]], 1)]

    async def close(self) -> None:
        pass


class Place:
    """A shadow beside a service that is idle, or is not."""

    def __init__(self) -> None:
        self.engine = Slow()
        self.idle = True
        self.counts: Counter[tuple[str, str]] = Counter()
        self.shadow = Shadow(cast(Engine, self.engine), 1.0, 60.0, self._count, lambda: self.idle)

    def _count(self, profile: str, result: str) -> None:
        self.counts[profile, result] += 1

    def offer(self, state: str = "x", chosen: int = 0) -> None:
        self.shadow.take(Sample(state, {"q": Noul("Is it so?")}, [chosen], ["p"]))

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)


def played(scene: Any) -> None:
    async def play() -> None:
        place = Place()
        running = asyncio.create_task(place.shadow.run())
        await scene(place)
        await place.shadow.close(running)

    asyncio.run(play())


def test_a_request_ends_what_it_is_at_and_it_begins_again() -> None:
    async def scene(place: Place) -> None:
        place.offer()
        await place.until(lambda: place.engine.begun == 1)
        place.idle = False
        place.shadow.give_way()
        await place.until(lambda: place.engine.broken_off == 1)
        place.engine.may_end.set()
        await asyncio.sleep(0.1)
        assert place.engine.begun == 1
        place.idle = True
        await place.until(lambda: place.counts)
        assert place.counts == {("p", "disagree"): 1}

    played(scene)


def test_what_is_ended_too_often_is_dropped() -> None:
    async def scene(place: Place) -> None:
        place.offer()
        for times in range(1, 6):
            await place.until(lambda times=times: place.engine.begun == times)
            place.shadow.give_way()
        await place.until(lambda: place.counts)
        assert place.counts == {("p", "dropped"): 1}

    played(scene)


def test_there_is_a_bound_on_what_waits() -> None:
    async def scene(place: Place) -> None:
        place.idle = False
        for _ in range(300):
            place.offer()
        assert place.counts == {("p", "dropped"): 300 - 256}

    played(scene)


def test_a_failure_is_counted_and_the_next_is_asked() -> None:
    async def scene(place: Place) -> None:
        place.engine.may_end.set()
        place.offer("fail")
        place.offer(chosen=1)
        await place.until(lambda: place.counts.total() == 2)
        assert place.counts == {("p", "failed"): 1, ("p", "agree"): 1}

    played(scene)
