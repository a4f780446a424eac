"""`systemone:` in front of a second server of this protocol: the answers are those of asking it directly."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import Server, running_server

KEY = "key-of-the-second"
HEADERS = {"Authorization": f"Bearer {KEY}"}
QUESTIONS: dict[str, Any] = {
    "topic": {
        "type": "choice",
        "instructions": "Topic?",
        "criteria": {"parcel": "a late one", "bill": None, "x": {"a": 1}},
    },
    "angry": {"type": "noul", "instructions": "Angry?", "criteria": {"true": "in capitals", "false": None}},
    "plain": {"type": "noul", "instructions": {"ask": ["Is it so?"]}},
    "mood": {"type": "score", "instructions": "How upset?", "criteria": ["calm", ["cross", "angry"], {"x": 1}]},
    "one": {"type": "choice", "criteria": {"only": None}},
    "": {"type": "score", "criteria": ["a"]},
}


@pytest.fixture(scope="module")
def second() -> Iterator[Server]:
    with running_server("--request-timeout-s", "5", env={"SERVICE_API_KEY": KEY}) as server:
        yield server


@pytest.fixture(scope="module")
def first(second: Server) -> Iterator[Server]:
    environment = {"SERVICE_REMOTE_URL": f"{second.url}/v1/", "SERVICE_REMOTE_API_KEY": KEY}
    with running_server("--model", "systemone:fake", env=environment, module="decided") as server:
        yield server


@pytest.mark.parametrize(
    "state",
    ["My parcel is late.", "", {"a": [1, 2.5, None, "ü"]}, ["x"], 7, None, True, "long " * 1500],
    ids=["text", "empty", "object", "array", "number", "null", "true", "cut"],
)
def test_answers_are_those_of_asking_it_directly(first: Server, second: Server, state: Any) -> None:
    through, direct = first.ask(state, QUESTIONS), second.ask(state, QUESTIONS, HEADERS)
    assert (through.status, direct.status) == (200, 200)
    assert through.json == direct.json


def test_batches_too(first: Server, second: Server) -> None:
    states = [f"state {number}" for number in range(40)]
    through = first.batch(states, QUESTIONS).json
    assert through["results"] == [second.ask(state, QUESTIONS, HEADERS).json for state in states]


def test_its_failures_are_ours(first: Server) -> None:
    reply = first.ask("FAIL")
    assert (reply.status, reply.detail) == (500, "inference failed")
    assert first.ask("NAN").status == 500


def test_a_wrong_key_ends_the_start(second: Server) -> None:
    environment = {"SERVICE_REMOTE_URL": second.url, "SERVICE_REMOTE_API_KEY": "wrong"}
    with (
        pytest.raises(AssertionError, match="the engine answered 401"),
        running_server("--model", "systemone:fake", env=environment, module="decided"),
    ):
        pass
