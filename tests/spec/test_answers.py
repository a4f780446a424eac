"""The response: exact shapes, and every derived number from the very numbers sent."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spec.checks import (
    CHOICE,
    MIXED,
    NOUL,
    POSTS,
    SCORE,
    SINGLE,
    answers_of,
    body_for,
    is_integer,
    is_number,
    refused,
    served,
)
from tests.spec.engines import OUTPUT_TOKENS
from tests.support.fake_model import STATE_TOKENS
from tests.support.server import Server, running_server

KEYS = {
    "choice": ["type", "choice", "probabilities", "confidence"],
    "score": ["type", "score", "level", "legend", "probabilities", "confidence"],
    "noul": ["type", "noul", "probabilities", "confidence"],
}
QUESTIONS: dict[str, Any] = MIXED | {
    "single option": CHOICE | {"criteria": {"only": None}},
    "single level": SCORE | {"criteria": ["only"]},
    "two levels": SCORE | {"criteria": ["low", "high"]},
    "awkward options": CHOICE | {"criteria": {"": None, "1": "one", "true": ["t"], "é🙂": {"a": 1}, "__proto__": None}},
    "many options": CHOICE | {"criteria": {f"option {number}": None for number in range(256)}},
    "many levels": SCORE | {"criteria": [f"level {number}" for number in range(256)]},
    "structured levels": SCORE | {"criteria": ["", {"a": [1, None]}, ["b", {"c": "é"}], "0", "0"]},
    "described": {"type": "noul", "criteria": {"true": "it is", "false": "it is not"}},
}
STATES: list[Any] = [f"state {number}" for number in range(40)]


@pytest.fixture(scope="module")
def results(server: Server) -> Any:
    """Many answers of every kind, of which the tests below ask one thing each."""
    return served(server.batch(STATES, QUESTIONS))["results"]


@pytest.fixture(scope="module")
def picky(front: str) -> Iterator[Server]:
    """A server whose model reads five words of the instructions."""
    with running_server("--model", "picky", module="tests.spec.engines", front=front) as running:
        yield running


def each(results: Any, kind: str = "") -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every question with its answer."""
    for result in results:
        for name, answer in result["answers"].items():
            if kind in ("", answer["type"]):
                yield QUESTIONS[name], answer


def shares(answer: dict[str, Any]) -> list[float]:
    return list(answer["probabilities"].values())


# --- shapes ---


def test_a_single_response_has_three_fields(server: Server) -> None:
    body = served(server.ask("x", MIXED))
    assert list(body) == ["model", "answers", "usage"]
    assert body["model"] == "fake"
    assert list(body["answers"]) == list(MIXED)


def test_a_batch_response_has_three_fields_and_a_single_response_per_state(server: Server) -> None:
    body = served(server.batch(["x", "y"], MIXED))
    assert list(body) == ["model", "results", "total_usage"]
    assert body["model"] == "fake"
    assert [list(result) for result in body["results"]] == [["model", "answers", "usage"]] * 2


def test_a_batch_gives_what_single_requests_give_in_their_order(server: Server) -> None:
    states = ["b", "a", None, {"k": [1]}, "b", ""]
    assert served(server.batch(states, MIXED))["results"] == [served(server.ask(state, MIXED)) for state in states]


def test_an_answer_has_the_fields_of_its_type_and_no_other(results: Any) -> None:
    seen = set()
    for question, answer in each(results):
        assert answer["type"] == question["type"]
        assert sorted(answer) == sorted(KEYS[answer["type"]])
        seen.add(answer["type"])
    assert seen == set(KEYS)


def test_the_keys_of_the_probabilities(results: Any) -> None:
    """The option names, the level indices or `true` and `false`, in the order of the criteria."""
    for question, answer in each(results):
        criteria = question.get("criteria", ())
        keys = {
            "choice": list(criteria),
            "score": [str(level) for level in range(len(criteria))],
            "noul": ["true", "false"],
        }
        assert list(answer["probabilities"]) == keys[answer["type"]]


def test_the_types_of_the_values(results: Any) -> None:
    for _, answer in each(results):
        assert all(is_number(share) for share in shares(answer))
        assert is_number(answer["confidence"])
    assert all(isinstance(answer["choice"], str) for _, answer in each(results, "choice"))
    assert all(is_number(answer["noul"]) for _, answer in each(results, "noul"))
    assert all(is_number(answer["score"]) and is_integer(answer["level"]) for _, answer in each(results, "score"))


def test_the_legend_echoes_every_level_as_sent(results: Any) -> None:
    for question, answer in each(results, "score"):
        assert answer["legend"] == {str(level): label for level, label in enumerate(question["criteria"])}
        assert list(answer["legend"]) == list(answer["probabilities"])


# --- numbers ---


def test_probabilities_are_shares_of_one(results: Any) -> None:
    for _, answer in each(results):
        assert all(0 <= share <= 1 for share in shares(answer))
        assert abs(sum(shares(answer)) - 1) <= 1e-6


def test_the_choice_is_the_first_of_the_most_likely(results: Any) -> None:
    ties = 0
    for _, answer in each(results, "choice"):
        best = [name for name, share in answer["probabilities"].items() if share == max(shares(answer))]
        assert answer["choice"] == best[0]
        ties += len(best) > 1
    assert ties, "no tie among these states: choose others"


def test_the_level_is_the_first_of_the_most_likely(results: Any) -> None:
    ties = 0
    for _, answer in each(results, "score"):
        best = [level for level, share in enumerate(shares(answer)) if share == max(shares(answer))]
        assert answer["level"] == best[0]
        ties += len(best) > 1
    assert ties, "no tie among these states: choose others"


def test_the_score_is_the_expectation(results: Any) -> None:
    between = 0
    for _, answer in each(results, "score"):
        expected = sum(level * share for level, share in enumerate(shares(answer)))
        assert answer["score"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        between += answer["score"] != round(answer["score"])
    assert between


def test_the_noul_is_the_probability_of_true(results: Any) -> None:
    for _, answer in each(results, "noul"):
        assert answer["noul"] == answer["probabilities"]["true"]


def test_no_number_is_rounded_below_six_decimals(results: Any) -> None:
    for kind in KEYS:
        numbers = [share for _, answer in each(results, kind) for share in (*shares(answer), answer["confidence"])]
        assert any(round(number, 6) != number for number in numbers), kind


def test_the_confidence_of_a_choice_is_its_distance_from_a_guess(results: Any) -> None:
    for question, answer in each(results, "choice"):
        guess = 1 / len(question["criteria"])
        expected = 1.0 if guess == 1 else (max(shares(answer)) - guess) / (1 - guess)
        assert answer["confidence"] == pytest.approx(expected, abs=1e-9)


def test_the_confidence_of_a_noul_is_its_distance_from_a_guess(results: Any) -> None:
    for _, answer in each(results, "noul"):
        assert answer["confidence"] == pytest.approx(abs(2 * answer["noul"] - 1), abs=1e-9)


def test_the_confidence_of_a_score_is_its_closeness_to_the_mode(results: Any) -> None:
    floored = 0
    for question, answer in each(results, "score"):
        count = len(question["criteria"])
        if count == 1:
            assert answer["confidence"] == 1.0
            continue
        mean_distance = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
        distance = sum(share * abs(level - answer["level"]) for level, share in enumerate(shares(answer)))
        assert answer["confidence"] == pytest.approx(max(0.0, 1 - distance / mean_distance), abs=1e-9)
        floored += answer["confidence"] == 0
    assert floored, "no confidence at the floor among these states: choose others"


def test_one_option_or_one_level_is_certain(server: Server) -> None:
    answers = answers_of(server.ask("x", QUESTIONS))
    assert answers["single option"] == {
        "type": "choice",
        "choice": "only",
        "probabilities": {"only": 1.0},
        "confidence": 1.0,
    }
    assert answers["single level"] == {
        "type": "score",
        "score": 0.0,
        "level": 0,
        "legend": {"0": "only"},
        "probabilities": {"0": 1.0},
        "confidence": 1.0,
    }


# --- truncation ---


def test_nothing_is_said_of_truncation_when_nothing_was_cut(server: Server) -> None:
    body = served(server.ask(" ".join(["word"] * STATE_TOKENS), MIXED))
    assert "warnings" not in body
    assert all("truncated" not in answer for answer in body["answers"].values())
    assert body["usage"]["input_tokens"] == STATE_TOKENS + 30


def test_a_state_that_is_cut_marks_every_answer_and_warns_once_per_question(server: Server) -> None:
    body = served(server.ask(" ".join(["word"] * (STATE_TOKENS + 7)), MIXED))
    assert list(body) == ["model", "answers", "usage", "warnings"]
    for answer in body["answers"].values():
        assert answer["truncated"] is True
        assert sorted(answer) == sorted([*KEYS[answer["type"]], "truncated"])
    assert len(body["warnings"]) == len(MIXED)
    for name, warning in zip(MIXED, body["warnings"], strict=True):
        assert isinstance(warning, str)
        for part in (name, "state", str(STATE_TOKENS), str(STATE_TOKENS + 7)):
            assert part in warning
    assert body["usage"]["input_tokens"] == STATE_TOKENS + 30


def test_in_a_batch_only_the_state_that_is_cut_is_marked(server: Server) -> None:
    long = " ".join(["word"] * 2 * STATE_TOKENS)
    results = served(server.batch(["short", long, "short"], MIXED))["results"]
    assert ["warnings" in result for result in results] == [False, True, False]
    for result in results:
        assert all(("truncated" in answer) == ("warnings" in result) for answer in result["answers"].values())


def test_only_the_answer_whose_input_was_cut_is_marked(picky: Server) -> None:
    long = NOUL | {"instructions": "Is it so in each and every case?"}
    body = served(picky.ask("x", {"short": NOUL, "the long one": long, "also short": NOUL}))
    assert ["truncated" in answer for answer in body["answers"].values()] == [False, True, False]
    (warning,) = body["warnings"]
    for part in ("the long one", "instructions", "5", "8"):
        assert part in warning


def test_a_question_cut_in_two_places_has_one_warning_that_names_both(picky: Server) -> None:
    long = NOUL | {"instructions": "Is it so in each and every case?"}
    body = served(picky.ask("word " * (STATE_TOKENS + 1), {"short": NOUL, "the long one": long}))
    first, second = body["warnings"]
    assert "short" in first
    assert "instructions" not in first
    for part in ("the long one", "instructions", "5 of 8", "state", f"{STATE_TOKENS} of {STATE_TOKENS + 1}"):
        assert part in second


@pytest.mark.parametrize(
    "state",
    [
        "first" + " " * 50_000 + "last",
        "x" * 50_000 + " last words",
        "one " * 100 + "y" * 150_000 + " two" * 100,
        " " * 199_996 + "last",
    ],
    ids=["far apart", "behind a long word", "around a long word", "at the very end"],
)
def test_nothing_is_cut_in_silence(server: Server, state: str) -> None:
    """Either the model read every word, or the answer says that it did not."""
    body = served(server.ask(state, {"q": NOUL}))
    unread = len(state.split()) - (body["usage"]["input_tokens"] - 10)
    assert ("truncated" in body["answers"]["q"]) == (unread > 0)
    assert ("warnings" in body) == (unread > 0)


# --- usage ---


def test_the_usage_counts_the_state_once_and_each_question(server: Server) -> None:
    """The test model counts a token per word of the state and ten per question."""
    for count in (1, 3, 64):
        usage = served(server.ask("one two three", {str(number): NOUL for number in range(count)}))["usage"]
        assert usage == {"input_tokens": 3 + 10 * count, "output_tokens": 0}
        assert all(is_integer(value) for value in usage.values())


def test_the_total_usage_is_the_sum_over_the_batch(server: Server) -> None:
    body = served(server.batch(["one", "one two", "one two three"], MIXED))
    assert [result["usage"]["input_tokens"] for result in body["results"]] == [31, 32, 33]
    assert body["total_usage"] == {"input_tokens": 96, "output_tokens": 0}
    assert all(is_integer(value) for value in body["total_usage"].values())


def test_the_usage_of_a_remote_engine_is_what_it_reports(remote: Server) -> None:
    assert served(remote.ask("x", MIXED))["usage"] == {"input_tokens": 3, "output_tokens": OUTPUT_TOKENS}
    total = served(remote.batch(["x", "y"], MIXED))["total_usage"]
    assert total == {"input_tokens": 6, "output_tokens": 2 * OUTPUT_TOKENS}


def test_even_shares_give_the_first_option_and_no_confidence(remote: Server) -> None:
    """The remote test engine always answers evenly."""
    answers = answers_of(remote.ask("x", MIXED))
    assert answers["c"] == {
        "type": "choice",
        "choice": "red",
        "probabilities": {"red": 0.5, "blue": 0.5},
        "confidence": 0.0,
    }
    assert answers["n"]["noul"] == 0.5
    assert answers["n"]["confidence"] == 0.0
    assert answers["s"]["level"] == 0
    assert answers["s"]["score"] == pytest.approx(1.0)


def test_the_same_request_gives_the_same_answer(server: Server) -> None:
    state = "".join(random.Random(7).choices("abc ", k=500))
    body = json.dumps({"state": state, "questions": QUESTIONS}).encode()
    assert len({server.request("POST", SINGLE, body).body for _ in range(3)}) == 1


# --- names that are too long for a message ---


def long_names(*questions: Any) -> dict[str, Any]:
    """Questions whose names begin alike for longer than a message quotes them."""
    return {"n" * 90 + "ABC"[number]: question for number, question in enumerate(questions)}


@pytest.mark.parametrize("path", POSTS)
def test_a_refusal_tells_long_names_apart(server: Server, path: str) -> None:
    box = {"type": "box"}
    for questions, place in ((long_names(NOUL, box, NOUL), 2), (long_names(NOUL, NOUL, {"type": "noul"}), 3)):
        detail = refused(server.request("POST", path, body_for(path, questions=questions)), 422)
        assert detail.startswith(f'question {place} ("{"n" * 79}…"): ')


def test_a_warning_tells_long_names_apart(server: Server) -> None:
    reply = served(server.ask("word " * 1001, long_names(NOUL, CHOICE) | {"n" * 80: SCORE}))
    said = "the model read 1000 of 1001 tokens of the state"
    shortened = "n" * 79 + "…"
    assert reply["warnings"] == [
        f'question 1 ("{shortened}"): {said}',
        f'question 2 ("{shortened}"): {said}',
        f'question "{"n" * 80}": {said}',
    ]
