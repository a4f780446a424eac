"""Variants of hand-written questions: another form, the same truth."""

import random
from typing import Any

import pytest

from training.data import example
from training.variants import variant

STATE = "The parcel came a day late, but nothing is broken and I am not cross."


def row(kind: str, answer: object, criteria: object = None) -> dict[str, Any]:
    question = {"type": kind, "instructions": "What is said?"}
    if criteria is not None:
        question["criteria"] = criteria  # type: ignore[assignment]
    return {"task": f"everyday_test/{kind}", "state": STATE, "question": question, "answer": answer}


ROWS = [
    row("choice", "late", {"late": "came too late", "broken": "came damaged", "lost": None, "other": None}),
    row("choice", "other", {"lost": None, "broken": None, "other": "anything else"}),
    row("score", 1, ["calm", "a little cross", "cross", "furious"]),
    row("score", 3, ["1: calm", "2: a little cross", "3: cross", "4: furious"]),
    row("noul", True),
    row("noul", False, {"true": "it is broken", "false": "it is whole"}),
]


def made(start: dict[str, Any], count: int = 300) -> list[dict[str, Any]]:
    rng = random.Random(1)
    return [variant(rng, start) for _ in range(count)]


@pytest.mark.parametrize("start", ROWS)
def test_every_variant_can_be_answered_and_is_about_the_same_state(start: dict[str, Any]) -> None:
    for found in made(start):
        assert example(found) is not None, found
        state = found["state"]
        assert state == STATE or list(state.values()) == [STATE]


def test_the_right_option_stays_or_a_literal_other_takes_over() -> None:
    for found in made(ROWS[0]):
        options = found["question"]["criteria"]
        said = f"{found['answer']} {options[found['answer']]}"
        names = " ".join(f"{k} {v}" for k, v in options.items())
        assert "late" in said or ("other" in said and "late" not in names)


def test_a_level_keeps_its_words_and_its_neighbours() -> None:
    for found in made(ROWS[2]):
        levels, answer = found["question"]["criteria"], found["answer"]
        if found["question"]["type"] == "choice":
            assert answer == "a little cross"
            continue
        assert levels[answer].endswith("a little cross")
        assert {"calm", "cross"} <= {text.split(": ")[-1] for text in levels}


def test_numbered_levels_are_never_turned_round() -> None:
    for found in made(ROWS[3]):
        levels = found["question"]["criteria"]
        if found["question"]["type"] == "score":
            assert levels == sorted(levels)


def test_yes_and_no_stay_what_they_are() -> None:
    for start in ROWS[4:]:
        for found in made(start):
            if found["question"]["type"] == "choice":
                assert (found["answer"].lower() in ("yes", "true")) is start["answer"]
            else:
                assert found["answer"] is start["answer"]


def test_the_same_seed_makes_the_same_variants() -> None:
    assert made(ROWS[0], 20) == made(ROWS[0], 20)
