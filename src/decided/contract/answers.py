"""Probabilities into typed answers: the one place that does it, for every engine.

All that a client can derive (the choice, the level, the score, the noul, the confidence) is derived here from the very
numbers that are sent, so an answer never contradicts its own probabilities.
"""

import math
from collections.abc import Sequence
from functools import cache
from operator import mul
from typing import NamedTuple

from decided.contract.types import Answer, Choice, ChoiceAnswer, Noul, NoulAnswer, Question, ScoreAnswer
from decided.errors import InferenceFailed


class Mark(NamedTuple):
    """What the answers of a profile say in addition: its name, and whether they suffice."""

    profile: str
    threshold: float | None = None
    """The probability from which the top option counts as decided."""
    floor: float | None = None
    """The probability from which an option cannot be excluded."""

    def fields(self, keys: Sequence[str], shares: Sequence[float]) -> tuple[str, bool | None, list[str] | None]:
        top, floor = max(shares), self.floor
        decided = None if self.threshold is None else top >= self.threshold
        if floor is None:
            return self.profile, decided, None
        return self.profile, decided, [key for key, share in zip(keys, shares, strict=True) if share >= min(floor, top)]


def answer(question: Question, weights: Sequence[float], truncated: bool = False, mark: Mark | None = None) -> Answer:
    """The typed answer to a question, from what an engine gave for its options, in their order."""
    keys = question.keys()
    shares = normalise(weights, len(keys))
    more = () if mark is None else mark.fields(keys, shares)
    if isinstance(question, Noul):
        yes, no = shares
        return NoulAnswer(yes, {"true": yes, "false": no}, abs(2 * yes - 1), truncated, *more)
    probabilities = dict(zip(keys, shares, strict=True))
    top = max(shares)
    best = shares.index(top)
    if isinstance(question, Choice):
        return ChoiceAnswer(keys[best], probabilities, peak_confidence(top, len(keys)), truncated, *more)
    score, confidence = expectation(shares, best)
    legend = dict(zip(keys, question.criteria, strict=True))
    return ScoreAnswer(score, best, legend, probabilities, confidence, truncated, *more)


def is_distribution(weights: Sequence[float]) -> bool:
    """Finite, non-negative, and something to share out. (A sum with NaN in it compares as false.)"""
    return len(weights) > 0 and bool(0 < sum(weights) < math.inf and min(weights) >= 0)


def normalise(weights: Sequence[float], options: int) -> list[float]:
    """Shares that sum to one, or the engine has failed. NaN must never reach the wire, where it would be null."""
    values = weights if isinstance(weights, list) else [float(weight) for weight in weights]
    total = math.fsum(values)
    if len(values) != options or not 0 < total < math.inf or min(values) < 0:
        raise InferenceFailed(f"the model gave no distribution over {options} options")
    if abs(total - 1) < 1e-12:  # shares already, from another server of this protocol: no digit of them changes
        return values
    return [value / total for value in values]


def peak_confidence(top: float, options: int) -> float:
    """How far the largest probability stands above a uniform guess: 0 for uniform, 1 for certain."""
    return 1.0 if options == 1 else max(0.0, (top - 1 / options) / (1 - 1 / options))


def expectation(shares: Sequence[float], level: int) -> tuple[float, float]:
    """The expected level, and how tightly the probabilities gather around the most likely one: a confidence in which
    near misses cost less than far ones."""
    levels = len(shares)
    if levels == 1:
        return 0.0, 1.0
    score = math.fsum(map(mul, range(levels), shares))
    spread = math.fsum(map(mul, _distances(levels, level), shares))
    return min(score, levels - 1.0), max(0.0, 1 - spread / _uniform_spread(levels))


@cache
def _distances(levels: int, level: int) -> tuple[int, ...]:
    return tuple(abs(index - level) for index in range(levels))


@cache
def _uniform_spread(levels: int) -> float:
    """The mean distance of a level from the middle."""
    return sum(abs(index - (levels - 1) / 2) for index in range(levels)) / levels
