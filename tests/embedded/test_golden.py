"""Decisions with the probabilities they had in float32 when the weights were made.

`make numbers` writes them anew, for new weights.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from decided.contract.decoding import read_request
from decided.contract.types import Question
from decided.engines.embedded.model import Embedded
from tests.embedded.asking import ask
from tests.embedded.conftest import WEIGHTS
from tests.support.precision import AGREEMENT, ROUNDING

GOLDEN = Path(__file__).with_name("golden.json")

_CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def _request(case: dict[str, Any]) -> tuple[str, dict[str, Question]]:
    request = read_request(json.dumps({k: case[k] for k in ("state", "questions")}).encode(), 256)
    return request.states[0], request.questions


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["about"]))
def test_golden(exact_model: Embedded, case: dict[str, Any]) -> None:
    state, questions = _request(case)
    for name, answer in zip(questions, ask(exact_model, state, *questions.values()), strict=True):
        assert answer.tolist() == pytest.approx(case["probabilities"][name], abs=AGREEMENT), name


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["about"]))
def test_eight_bits_say_nearly_what_float32_says(
    rounded_model: Embedded, exact_model: Embedded, case: dict[str, Any]
) -> None:
    state, questions = _request(case)
    eight, thirty_two = (ask(model, state, *questions.values()) for model in (rounded_model, exact_model))
    for name, rounded, exact in zip(questions, eight, thirty_two, strict=True):
        apart = case.get("apart", ROUNDING)  # more where two answers are about equally likely
        assert rounded.tolist() == pytest.approx(exact.tolist(), abs=apart), name
        assert rounded.tolist() != exact.tolist(), name  # else it is not what was loaded


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["about"]))
def test_golden_answers_are_the_right_ones(case: dict[str, Any]) -> None:
    """Where `right` says so; what the model is known to miss (30 days against 45, a bridge that was closed and opened
    again) has only its probabilities here."""
    for name, right in case["right"].items():
        shares = case["probabilities"][name]
        assert shares.index(max(shares)) == right, name


def rewrite() -> None:
    model = Embedded(WEIGHTS, exact=True, threads=1)
    for case in _CASES:
        state, questions = _request(case)
        found = zip(questions, ask(model, state, *questions.values()), strict=True)
        case["probabilities"] = {name: [round(float(p), 6) for p in answer] for name, answer in found}
    GOLDEN.write_text(json.dumps(_CASES, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
