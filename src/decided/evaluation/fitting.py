"""Fitting temperatures to questions whose answers are known, and how good probabilities are at a temperature."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from decided.contract.temperature import COOLEST, HOTTEST, apply
from decided.profiles.profile import Figures
from decided.profiles.shelf import LEAST_SHARE

LEAST_ROWS = 20
BINS = 15
_FOLDS = 5


class Fit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found for one type of question. `after` is what rows show that the temperature was not fitted to. A note
    says why a temperature is not what the rows alone would say."""

    rows: int
    temperature: float
    before: Figures
    after: Figures
    note: str = ""


class Calibration(msgspec.Struct, frozen=True):
    """The calibration file: what was fitted, for which model, and what it did to the rows that it was fitted on."""

    model: str
    kind: str
    version: str
    temperatures: dict[str, float]
    fits: dict[str, Fit]

    def encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


class Judged(NamedTuple):
    """A question that was asked: the weights that the engine gave, and the number of the option that is right."""

    weights: Sequence[float]
    right: int


class LogShares(NamedTuple):
    """The same rows for the fit: the logarithms of what each option got of the largest, and of none where a row has no
    such option; and the right ones."""

    of_options: NDArray[np.float64]
    right: NDArray[np.int64]

    @classmethod
    def of(cls, judged: Sequence[Judged]) -> "LogShares":
        # Nothing is impossible: an option that got nothing and was right would otherwise cost infinitely much.
        table = np.full((len(judged), max(len(row.weights) for row in judged)), -np.inf)
        for logs, row in zip(table, judged, strict=True):
            shares = np.array(row.weights, np.float64)
            logs[: len(shares)] = np.log(np.maximum(shares / shares.max(), LEAST_SHARE))
        return cls(table, np.array([row.right for row in judged]))

    def some(self, rows: slice | NDArray[np.bool_]) -> "LogShares":
        return LogShares(self.of_options[rows], self.right[rows])

    def surprises(self, temperature: float) -> NDArray[np.float64]:
        """Minus the logarithm of what the right option gets, by row. The largest of the logarithms is 0, so nothing can
        overflow."""
        softened = self.of_options / temperature
        found: NDArray[np.float64] = np.log(np.exp(softened).sum(axis=1))
        return found - softened[np.arange(len(self.right)), self.right]


class Bin(NamedTuple):
    """The rows whose top option got about the same probability."""

    rows: int
    confidence: float
    accuracy: float


def fit(judged: Sequence[Judged]) -> Fit:
    """The temperature at which the right answers are most likely, and what it does to rows that were held back. One
    that does not help there is not recommended."""
    before = figures(judged, 1.0)
    if len(judged) < LEAST_ROWS:
        return Fit(len(judged), 1.0, before, before, f"kept at 1: fewer than {LEAST_ROWS} rows")
    logs = LogShares.of(judged)
    found = _likeliest(logs)
    if found is None:
        return Fit(len(judged), 1.0, before, before, "kept at 1: no other temperature is better")
    if found < 1.01 * COOLEST:
        return Fit(len(judged), 1.0, before, before, "kept at 1: too few errors to fit")
    folds = np.arange(len(judged)) % _FOLDS
    held_back = [(number, _likeliest(logs.some(folds != number)) or 1.0) for number in range(_FOLDS)]
    softened = [
        Judged(apply(row.weights, temperature), row.right)
        for number, temperature in held_back
        for row in judged[number::_FOLDS]
    ]
    after = figures(softened, 1.0)
    fresh = [(logs.some(slice(number, None, _FOLDS)), temperature) for number, temperature in held_back]
    gains = np.concatenate([rows.surprises(1.0) - rows.surprises(temperature) for rows, temperature in fresh])
    if gains.mean() <= gains.std(ddof=1) / math.sqrt(len(gains)) or after.calibration_error > before.calibration_error:
        return Fit(len(judged), 1.0, before, before, "kept at 1: on rows held back no other temperature is better")
    note = "the highest allowed: on these rows the model does no better than guessing" if found > 0.99 * HOTTEST else ""
    return Fit(len(judged), round(found, 4), before, after, note)


def _likeliest(logs: LogShares) -> float | None:
    """The temperature at which the right answers are most likely, if any is better than 1."""

    def loss(log_temperature: float) -> float:
        return float(logs.surprises(math.exp(log_temperature)).sum())

    # The loss is convex in 1/T, so in log T it has one valley: a search that narrows it down cannot miss.
    found = golden_section(loss, math.log(COOLEST), math.log(HOTTEST))
    return None if loss(found) > loss(0.0) - 1e-9 * len(logs.right) else math.exp(found)


def golden_section(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-4) -> float:
    """Where a function with one valley is lowest, between two bounds."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (low + high) / 2


def figures(judged: Sequence[Judged], temperature: float) -> Figures:
    """How good the probabilities are at a temperature. The calibration error is the mean distance between how sure the
    model is and how often it is right, over bins of equal width."""
    if not judged:
        return Figures(0.0, 0.0, 0.0)
    losses = LogShares.of(judged).surprises(temperature)
    bins = [one for one in reliability(judged, temperature) if one.rows]
    hits = math.fsum(one.rows * one.accuracy for one in bins)
    error = math.fsum(one.rows * abs(one.accuracy - one.confidence) for one in bins)
    return Figures(hits / len(judged), math.fsum(losses) / len(judged), error / len(judged))


def reliability(judged: Iterable[Judged], temperature: float) -> list[Bin]:
    """Bins of equal width over the probability of the top option: how sure the model is, how often it is right."""
    rows, sure, hits = [0] * BINS, [0.0] * BINS, [0] * BINS
    for weights, right in judged:
        shares = list(apply(weights, temperature))
        top = max(shares)
        confidence = top / math.fsum(shares)
        place = min(int(confidence * BINS), BINS - 1)
        rows[place] += 1
        sure[place] += confidence
        hits[place] += shares.index(top) == right
    return [
        Bin(count, total / count, hit / count) if count else Bin(0, 0.0, 0.0)
        for count, total, hit in zip(rows, sure, hits, strict=True)
    ]
