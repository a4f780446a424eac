"""Probabilities into answers, over made-up distributions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decided.contract.answers import answer, normalise
from decided.contract.types import Choice, ChoiceAnswer, Noul, NoulAnswer, Score, ScoreAnswer
from decided.errors import InferenceFailed

weights = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=256).filter(lambda w: sum(w) > 1e-3)


@given(weights)
def test_a_choice_is_the_first_of_the_largest(weights: list[float]) -> None:
    keys = [f"option {number}" for number in range(len(weights))]
    given_answer = answer(Choice(dict.fromkeys(keys)), weights, truncated=False)
    assert isinstance(given_answer, ChoiceAnswer)
    shares = list(given_answer.probabilities.values())
    assert list(given_answer.probabilities) == keys
    assert all(0 <= share <= 1 for share in shares)
    assert math.isclose(sum(shares), 1, abs_tol=1e-6)
    assert given_answer.choice == keys[shares.index(max(shares))]
    count = len(shares)
    expected = 1.0 if count == 1 else (max(shares) - 1 / count) / (1 - 1 / count)
    assert 0 <= given_answer.confidence <= 1
    assert math.isclose(given_answer.confidence, expected, abs_tol=1e-9)


@given(weights)
def test_a_score_is_the_expectation_of_the_very_numbers_sent(weights: list[float]) -> None:
    labels = [f"level {number}" for number in range(len(weights))]
    given_answer = answer(Score(list(labels)), weights, truncated=True)
    assert isinstance(given_answer, ScoreAnswer)
    shares = list(given_answer.probabilities.values())
    count = len(shares)
    assert given_answer.truncated
    assert given_answer.legend == {str(number): label for number, label in enumerate(labels)}
    assert given_answer.level == shares.index(max(shares))
    assert 0 <= given_answer.score <= count - 1
    assert math.isclose(given_answer.score, sum(i * p for i, p in enumerate(shares)), abs_tol=1e-9 * count)
    spread = sum(p * abs(i - given_answer.level) for i, p in enumerate(shares))
    uniform = sum(abs(i - (count - 1) / 2) for i in range(count)) / count
    expected = 1.0 if count == 1 else max(0.0, 1 - spread / uniform)
    assert math.isclose(given_answer.confidence, expected, abs_tol=1e-9)


@given(st.floats(0, 1), st.floats(0.001, 1))
def test_a_noul_is_the_probability_of_true(no: float, yes: float) -> None:
    given_answer = answer(Noul("Is it?"), [yes, no], truncated=False)
    assert isinstance(given_answer, NoulAnswer)
    assert list(given_answer.probabilities) == ["true", "false"]
    assert given_answer.noul == given_answer.probabilities["true"]
    assert given_answer.confidence == abs(2 * given_answer.noul - 1)


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0], [-0.1, 1.1], [1.0], [1.0, 1.0, 1.0], []])
def test_what_is_no_distribution_is_a_failure_of_the_model(bad: list[float]) -> None:
    with pytest.raises(InferenceFailed):
        normalise(bad, 2)
