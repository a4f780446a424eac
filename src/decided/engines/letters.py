"""Decisions as letters: options labelled A to Z, and from the log-probabilities of the letters to weights. No I/O."""

import math
from collections.abc import Iterable, Sequence
from string import ascii_uppercase
from typing import NamedTuple

LETTERS = ascii_uppercase
CLOSE = 0.25
"""The top two are close when their probabilities differ by less than this."""

_DRESS = " \t\r\n▁ĠĊ.:;,()[]*\"'`"
"""What a tokeniser or a tidy model puts around a letter: `▁A`, `A.`, `(A)`, `**A`."""

_LEAST = 1e-12


class NoLetters(Exception):
    """The reply holds nothing from which a decision can be read. The message is for the log."""


class Token(NamedTuple):
    """A token that the model might have said next, and the logarithm of its probability."""

    text: str
    logprob: float


def mass(tokens: Iterable[Token], count: int) -> float:
    """How much of the probability stands on the first `count` labels."""
    return math.fsum(_by_label(list(tokens), count).values())


def weights(tokens: Iterable[Token], count: int) -> list[float]:
    """Probabilities of the first `count` labels, from the most likely tokens, renormalised over the labels.

    Engines show some of the tokens only, often 20. A label that is not among them is less likely than each that is,
    and all of them together have no more than what is left of 1: the estimate is the lower of these two bounds.
    """
    shown = list(tokens)
    found = _by_label(shown, count)
    if not found:
        raise NoLetters(f"none of the {count} letters is among the {len(shown)} tokens shown")
    missing = count - len(found)
    if missing:
        least = min(math.exp(token.logprob) for token in shown)
        left = 1.0 - math.fsum(math.exp(token.logprob) for token in shown)
        estimate = max(_LEAST, min(least, left / missing))
    shares = [found.get(label, estimate if missing else 0.0) for label in range(count)]
    total = math.fsum(shares)
    return [max(share / total, _LEAST) for share in shares]


def _by_label(tokens: list[Token], count: int) -> dict[int, float]:
    """Label -> probability, summed over the ways to write it.

    A small `a` is a word of English, not an answer, and counting `b` but not `a` would be unfair: small letters count
    only where the model writes no capital at all.
    """
    for token in tokens:
        if not token.logprob <= 0.001:  # false for NaN too
            raise NoLetters("a log-probability is not a number, or above zero")
    labels = LETTERS[:count]
    return _matching(tokens, labels) or _matching(tokens, labels.lower())


def _matching(tokens: list[Token], labels: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for token in tokens:
        letter = token.text.strip(_DRESS)
        if len(letter) == 1 and letter in labels and (likely := math.exp(token.logprob)) > 0.0:
            number = labels.index(letter)
            found[number] = found.get(number, 0.0) + likely
    return found


def spellings(vocabulary: Sequence[str]) -> list[list[int]]:
    """For each label, the numbers of the tokens that spell it: with a space before, with a full stop behind, ..."""
    found: list[list[int]] = [[] for _ in LETTERS]
    for number, token in enumerate(vocabulary):
        letter = token.strip(_DRESS)
        if len(letter) == 1 and letter in LETTERS:
            found[LETTERS.index(letter)].append(number)
    return found


def rotation(count: int, shift: int) -> list[int]:
    """An order of options: the number of the option that each label stands for."""
    return [(place + shift) % count for place in range(count)]


def shifts(count: int, rotations: int) -> list[int]:
    """The shifts of up to `rotations` orders of `count` options, spread evenly; the first is 0."""
    used = min(count, rotations)
    return [number * count // used for number in range(used)]


def is_close(shares: Sequence[float]) -> bool:
    first, second = sorted(shares, reverse=True)[:2]
    return first - second < CLOSE


def average(readings: Sequence[tuple[Sequence[int], Sequence[float]]]) -> list[float]:
    """The mean over several orders: pairs of an order and the shares of its labels, into shares of the options."""
    totals = [0.0] * len(readings[0][0])
    for order, shares in readings:
        for option, share in zip(order, shares, strict=True):
            totals[option] += share / len(readings)
    return totals
