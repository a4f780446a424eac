"""What holds for every request, whatever it asks and whoever else is asking: over HTTP, on made-up requests."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server import Server

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
words = text | st.lists(values, max_size=2) | st.dictionaries(text, values, max_size=2)
instructions = st.fixed_dictionaries({}, optional={"instructions": words | st.none()})
choices = st.fixed_dictionaries(
    {"type": st.just("choice"), "criteria": st.dictionaries(text, words | st.none(), min_size=1, max_size=6)}
)
scores = st.fixed_dictionaries({"type": st.just("score"), "criteria": st.lists(words, min_size=1, max_size=6)})
nouls = st.fixed_dictionaries({"type": st.just("noul"), "instructions": text.filter(bool)})
question = st.builds(lambda asked, said: {**said, **asked}, choices | scores | nouls, instructions)
questions = st.dictionaries(text, question, min_size=1, max_size=4)
over_http = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def warm(server: Server) -> Server:
    assert server.ask("warm").status == 200
    return server


@over_http
@given(values, questions)
def test_every_valid_question_gets_an_answer_that_agrees_with_itself(warm: Server, state: Any, asked: Any) -> None:
    reply = warm.ask(state, asked)
    assert reply.status == 200, reply.body
    answers = reply.json["answers"]
    assert list(answers) == list(asked)
    for name, one in asked.items():
        answer = answers[name]
        shares = list(answer["probabilities"].values())
        assert answer["type"] == one["type"]
        assert math.isclose(sum(shares), 1, abs_tol=1e-6)
        assert 0 <= answer["confidence"] <= 1
        if one["type"] == "choice":
            assert list(answer["probabilities"]) == list(one["criteria"])
            assert answer["choice"] == list(one["criteria"])[shares.index(max(shares))]
        elif one["type"] == "score":
            assert answer["legend"] == {str(level): label for level, label in enumerate(one["criteria"])}
            assert answer["level"] == shares.index(max(shares))
            assert math.isclose(answer["score"], sum(i * p for i, p in enumerate(shares)), abs_tol=1e-9)
        else:
            assert answer["noul"] == answer["probabilities"]["true"]


@over_http
@given(st.lists(values, max_size=4), questions)
def test_a_batch_equals_its_singles(warm: Server, states: list[Any], asked: Any) -> None:
    batch = warm.batch(states, asked).json
    singles = [warm.ask(state, asked).json for state in states]
    assert batch["results"] == singles
    assert batch["total_usage"]["input_tokens"] == sum(single["usage"]["input_tokens"] for single in singles)


@over_http
@given(values)
def test_white_space_never_changes_an_answer(warm: Server, state: Any) -> None:
    body = {"state": state, "questions": {"q": {"type": "noul", "instructions": "Is it so?"}}}
    sent = (
        json.dumps(body, ensure_ascii=False, separators=(",", ":")),
        json.dumps(body, indent=3),
    )
    replies = [warm.request("POST", "/v1/systemone", text.encode()) for text in sent]
    assert replies[0].json == replies[1].json


def test_load_never_changes_an_answer(warm: Server) -> None:
    asked = {
        "c": {"type": "choice", "instructions": "What is it about?", "criteria": {"a": "one", "b": "two", "c": None}},
        "n": {"type": "noul", "instructions": "Is it late?"},
    }
    alone = [warm.ask(f"state {number}", asked).json for number in range(30)]
    with ThreadPoolExecutor(16) as pool:
        noise = [pool.submit(warm.batch, [f"noise {number}"] * 20, asked) for number in range(10)]
        loaded = list(pool.map(lambda number: warm.ask(f"state {number}", asked).json, range(30)))
    assert {reply.result().status for reply in noise} == {200}
    assert loaded == alone
