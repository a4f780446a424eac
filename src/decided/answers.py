"""Probabilities into typed answers: the one place that does it, for every engine.

All that a client can derive (the choice, the level, the score, the noul, the confidence) is derived here from the very
numbers that are sent, so an answer never contradicts its own probabilities.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import count
from operator import mul

from decided.contract import Answer, Choice, ChoiceAnswer, Noul, NoulAnswer, Question, ScoreAnswer
from decided.errors import InferenceFailed


def answer(question: Question, weights: Sequence[float], truncated: bool = False) -> Answer:
    """The typed answer to a question, from what an engine gave for its options, in their order."""
    keys = question.keys()
    shares = normalised(weights, len(keys))
    probabilities = dict(zip(keys, shares, strict=True))
    if isinstance(question, Noul):
        return NoulAnswer(shares[0], probabilities, abs(2 * shares[0] - 1), truncated)
    top = max(shares)
    best = shares.index(top)
    if isinstance(question, Choice):
        return ChoiceAnswer(keys[best], probabilities, peak_confidence(top, len(shares)), truncated)
    score = min(sum(map(mul, shares, count())), len(shares) - 1.0)
    legend = dict(zip(keys, question.criteria, strict=True))
    return ScoreAnswer(score, best, legend, probabilities, level_confidence(shares, best), truncated)


def is_distribution(weights: Sequence[float]) -> bool:
    """Finite, non-negative, and something to share out. (A sum with NaN in it compares as false.)"""
    return len(weights) > 0 and bool(0 < sum(weights) < math.inf and min(weights) >= 0)


def normalised(weights: Sequence[float], options: int) -> list[float]:
    """Shares that sum to one, or the engine has failed. NaN must never reach the wire, where it would be null."""
    values = weights if isinstance(weights, list) else [float(weight) for weight in weights]
    total = math.fsum(values)
    if len(values) != options or not 0 < total < math.inf or min(values) < 0:
        raise InferenceFailed(f"the model gave no distribution over {options} options")
    return [value / total for value in values]


def peak_confidence(top: float, options: int) -> float:
    """How far the largest probability stands above a uniform guess: 0 for uniform, 1 for certain."""
    return 1.0 if options == 1 else max(0.0, (top - 1 / options) / (1 - 1 / options))


def level_confidence(shares: Sequence[float], level: int) -> float:
    """How tightly the probabilities gather around the most likely level: near misses cost less than far ones."""
    if len(shares) == 1:
        return 1.0
    spread = 0.0
    for index, share in enumerate(shares):
        spread += share * abs(index - level)
    return max(0.0, 1 - spread / _uniform_spread(len(shares)))


@cache
def _uniform_spread(levels: int) -> float:
    """The mean distance of a level from the middle."""
    return sum(abs(index - (levels - 1) / 2) for index in range(levels)) / levels
