"""`explain`: what an answer rests on, and nothing of it unless it is asked for."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from decided.contract.types import Noul, Question, Request, Usage
from decided.engines.api import Caller, Engine, Verdict
from decided.serving.metrics import Metrics
from decided.serving.service import Service
from tests.spec.checks import served
from tests.support.fake_model import FakeModel
from tests.support.server import Server

QUESTIONS = {
    "topic": {"type": "choice", "instructions": "About?", "criteria": {"delivery": "late", "billing": None}},
    "mood": {"type": "score", "instructions": "How upset?", "criteria": ["calm", "cross", "angry"]},
    "angry": {"type": "noul", "instructions": "Is the writer angry?"},
}
TEXT = "My parcel is late. I want my money back! Is anybody there? 😀 Greetings, Tom."
WITHOUT = {  # what is left of the text -> which characters are missing
    "I want my money back! Is anybody there? 😀 Greetings, Tom.": (0, 18),
    "My parcel is late. Is anybody there? 😀 Greetings, Tom.": (19, 40),
    "My parcel is late. I want my money back! 😀 Greetings, Tom.": (41, 58),
    "My parcel is late. I want my money back! Is anybody there? ": (59, 76),
}
RECORD = {"subject": "late", "order": {"number": 7, "paid": True}}
RECORD_WITHOUT = {
    '{"order":{"number":7,"paid":true}}': "/subject",
    '{"subject":"late","order":{"paid":true}}': "/order/number",
    '{"subject":"late","order":{"number":7}}': "/order/paid",
}


def expected(server: Server, state: Any, without: dict[str, Any]) -> dict[str, list[tuple[Any, float]]]:
    """The effects as their definition says, from requests that ask about the rest of the state."""
    whole = server.ask(state, QUESTIONS).json["answers"]
    rests = {place: server.ask(rest, QUESTIONS).json["answers"] for rest, place in without.items()}
    effects = {}
    for name, answer in whole.items():
        top = max(answer["probabilities"], key=answer["probabilities"].__getitem__)
        of_parts = [
            (place, answer["probabilities"][top] - rest[name]["probabilities"][top]) for place, rest in rests.items()
        ]
        effects[name] = sorted((one for one in of_parts if one[1] >= 0.01), key=lambda one: -one[1])
    return effects


def told(answers: dict[str, Any]) -> dict[str, list[tuple[Any, float]]]:
    return {
        name: [(one.get("pointer") or (one["start"], one["end"]), one["effect"]) for one in answer["evidence"]]
        for name, answer in answers.items()
    }


def same(found: dict[str, list[tuple[Any, float]]], right: dict[str, list[tuple[Any, float]]]) -> None:
    assert any(right.values())
    assert {name: [part for part, _ in parts] for name, parts in found.items()} == {
        name: [part for part, _ in parts] for name, parts in right.items()
    }
    assert [effect for parts in found.values() for _, effect in parts] == pytest.approx(
        [effect for parts in right.values() for _, effect in parts]
    )


def test_the_sentences_whose_removal_lowers_the_chosen_option_most(server: Server) -> None:
    found = server.ask(TEXT, QUESTIONS, explain=True).json
    same(told(found["answers"]), expected(server, TEXT, WITHOUT))
    plain = server.ask(TEXT, QUESTIONS).json
    for name, answer in found["answers"].items():
        assert {key: value for key, value in answer.items() if key != "evidence"} == plain["answers"][name]


def test_the_fields_of_a_record(server: Server) -> None:
    found = server.ask(RECORD, QUESTIONS, explain=True).json["answers"]
    same(told(found), expected(server, RECORD, RECORD_WITHOUT))


def test_the_header_says_the_same(server: Server) -> None:
    asked = server.ask(TEXT, QUESTIONS, explain=True)
    assert server.ask(TEXT, QUESTIONS, headers={"X-Explain": "1"}).body == asked.body


@pytest.mark.parametrize("value", [False, None, 1, 0, "true", "", {}, [True], {"detail": True}])
def test_any_other_value_is_an_unknown_field_and_ignored(server: Server, value: Any) -> None:
    assert server.ask(TEXT, QUESTIONS, explain=value).body == server.ask(TEXT, QUESTIONS).body


@pytest.mark.parametrize("value", ["0", "true", "", "11"])
def test_any_other_header_is_ignored(server: Server, value: str) -> None:
    assert server.ask(TEXT, QUESTIONS, headers={"X-Explain": value}).body == server.ask(TEXT, QUESTIONS).body


def test_batches_and_streams(server: Server) -> None:
    states = [TEXT, RECORD, "", None]
    alone = [server.ask(state, QUESTIONS, explain=True).json for state in states]
    body = {"states": states, "questions": QUESTIONS, "explain": True}
    whole = served(server.request("POST", "/v1/systemone/batch", body))
    assert whole["results"] == alone
    assert whole["total_usage"]["input_tokens"] == sum(one["usage"]["input_tokens"] for one in alone)
    stream = server.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
    lines = sorted(map(json.loads, stream.body.splitlines()), key=lambda line: line["index"])
    assert [{key: value for key, value in line.items() if key != "index"} for line in lines] == alone
    assert all(answer["evidence"] == [] for one in alone[2:] for answer in one["answers"].values())


def test_a_state_that_fails_fails_alone_in_a_stream(server: Server) -> None:
    body = {"states": ["Told to FAIL. Twice.", TEXT], "questions": QUESTIONS, "explain": True}
    stream = server.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
    lines = sorted(map(json.loads, stream.body.splitlines()), key=lambda line: line["index"])
    assert lines[0] == {"index": 0, "status": 500, "detail": "inference failed"}
    assert lines[1]["answers"] == server.ask(TEXT, QUESTIONS, explain=True).json["answers"]


def test_it_costs_at_most_sixteen_times_as_much_and_says_so(server: Server) -> None:
    text = " ".join(f"This is sentence {number}." for number in range(200))
    plain, explained = (server.ask(text, QUESTIONS, explain=value).json["usage"] for value in (False, True))
    assert 12 * plain["input_tokens"] < explained["input_tokens"] <= 16 * plain["input_tokens"]
    counted = server.metric("service_questions_total")
    server.ask(text, QUESTIONS, explain=True)
    assert server.metric("service_questions_total") == counted + len(QUESTIONS)


def test_a_cut_state_keeps_its_warning(server: Server) -> None:
    found = server.ask("Late. " * 1100, QUESTIONS, explain=True).json
    assert len(found["warnings"]) == len(QUESTIONS)
    assert all(answer["truncated"] and "evidence" in answer for answer in found["answers"].values())


def test_all_of_it_is_one_job_of_the_engine() -> None:
    """So it has one turn among the requests, as a batch has."""
    asked: list[list[str]] = []

    class Recorder:
        card = FakeModel.card

        async def decide(self, states: Sequence[str], questions: Sequence[Question], caller: Caller) -> list[Verdict]:
            asked.append(list(states))
            return [Verdict([[1.0, 3.0]], 1) for _ in states]

    async def read() -> Request:
        return Request(["One. Two."], {"q": Noul("Is it so?")}, ["One. Two."])

    service = Service(cast(Engine, Recorder()), Metrics(), 1, 60.0)
    outcome = asyncio.run(service.decide(read))
    assert asked == [["One. Two.", "Two.", "One. "]]
    assert outcome.states == ["One. Two."]
    assert outcome.usage == Usage(3, 0)
    assert service.response(outcome.questions, outcome.verdicts[0]).answers["q"].evidence == []
