"""Probabilities into typed answers: the one place that does it, for every engine.

All that a client can derive (the choice, the level, the score, the noul, the confidence) is derived here from the very
numbers that are sent, so an answer never contradicts its own probabilities.
"""

import math
from collections.abc import Sequence

from decided.contract import Answer, Choice, ChoiceAnswer, Noul, NoulAnswer, Question, Score, ScoreAnswer, option_keys
from decided.errors import InferenceFailed


def answer(question: Question, weights: Sequence[float], truncated: bool) -> Answer:
    """The typed answer to a question, from what an engine gave for its options, in their order."""
    keys = option_keys(question)
    shares = normalised(weights, len(keys))
    probabilities = dict(zip(keys, shares, strict=True))
    match question:
        case Choice():
            best = shares.index(max(shares))
            return ChoiceAnswer(keys[best], probabilities, peak_confidence(shares), truncated)
        case Score():
            level = shares.index(max(shares))
            score = min(sum(index * share for index, share in enumerate(shares)), len(shares) - 1.0)
            legend = dict(zip(keys, question.criteria, strict=True))
            return ScoreAnswer(score, level, legend, probabilities, level_confidence(shares, level), truncated)
        case Noul():
            return NoulAnswer(shares[0], probabilities, abs(2 * shares[0] - 1), truncated)


def is_distribution(weights: Sequence[float]) -> bool:
    """Finite, non-negative, and something to share out. (A sum with NaN in it compares as false.)"""
    return len(weights) > 0 and bool(0 < sum(weights) < math.inf and min(weights) >= 0)


def normalised(weights: Sequence[float], count: int) -> list[float]:
    """Shares that sum to one, or the engine has failed. NaN must never reach the wire, where it would be null."""
    if len(weights) != count or not is_distribution(weights):
        raise InferenceFailed(f"the model gave no distribution over {count} options")
    shares = [float(weight) for weight in weights]
    total = math.fsum(shares)
    return [share / total for share in shares]


def peak_confidence(shares: Sequence[float]) -> float:
    """How far the largest probability stands above a uniform guess: 0 for uniform, 1 for certain."""
    uniform = 1 / len(shares)
    return 1.0 if len(shares) == 1 else max(0.0, (max(shares) - uniform) / (1 - uniform))


def level_confidence(shares: Sequence[float], level: int) -> float:
    """How tightly the probabilities gather around the most likely level: near misses cost less than far ones."""
    count = len(shares)
    if count == 1:
        return 1.0
    spread = sum(share * abs(index - level) for index, share in enumerate(shares))
    uniform_spread = sum(abs(index - (count - 1) / 2) for index in range(count)) / count
    return max(0.0, 1 - spread / uniform_spread)
