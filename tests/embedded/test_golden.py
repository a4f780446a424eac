"""Decisions with the probabilities they had when the weights were made.

`python -m tests.embedded.test_golden` writes them anew, for new weights.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from decided.contract import Question
from decided.engines.embedded import Embedded
from decided.reading import read_request
from tests.embedded.asking import ask
from tests.embedded.conftest import WEIGHTS
from tests.support.rounding import TOLERANCE

GOLDEN = Path(__file__).with_name("golden.json")
EXACT = 1e-3

_CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def _request(case: dict[str, Any]) -> tuple[str, dict[str, Question]]:
    request = read_request(json.dumps({k: case[k] for k in ("state", "questions")}).encode(), 256)
    return request.states[0], request.questions


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["about"]))
def test_golden(model: Embedded, exact_model: Embedded, case: dict[str, Any]) -> None:
    state, questions = _request(case)
    for asked, kept, tolerance in ((exact_model, "exact", EXACT), (model, "probabilities", TOLERANCE)):
        for name, answer in zip(questions, ask(asked, state, *questions.values()), strict=True):
            assert answer.tolist() == pytest.approx(case[kept][name], abs=tolerance), (kept, name)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: str(case["about"]))
def test_golden_answers_are_the_right_ones(case: dict[str, Any]) -> None:
    """Where `right` says so; what the model is known to miss (spam, "not stated") has only its probabilities here."""
    for name, right in case["right"].items():
        shares = case["probabilities"][name]
        assert shares.index(max(shares)) == right, name


def main() -> None:
    models = {"probabilities": Embedded(WEIGHTS, exact=False, threads=1), "exact": Embedded(WEIGHTS, True, threads=1)}
    for case in _CASES:
        state, questions = _request(case)
        for kept, model in models.items():
            found = ask(model, state, *questions.values())
            case[kept] = {n: [round(float(p), 6) for p in answer] for n, answer in zip(questions, found, strict=True)}
    GOLDEN.write_text(json.dumps(_CASES, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
