"""How good answers are, on questions whose right answers are known: the figures of a report, and of a comparison.

Everything here is arithmetic on rows; nothing asks, reads or prints. Draws of chance are seeded, so that the same rows
give the same report.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec

from decided.evaluation.fitting import BINS, Bin, Judged, figures, reliability

THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
TARGET = 0.95
"""How often answers should be right that are acted on without a look."""

_FEWEST_TO_ACT = 20
_Z = NormalDist().inv_cdf(0.975)
_DRAWS = 10_000
_FLOOR_DRAWS = 200
_CURVE_POINTS = 100
_SEED = 20_260_101


class Scored(NamedTuple):
    """A question that was answered: the shares of its options, the number of the right one, and the confidence."""

    shares: Sequence[float]
    right: int
    confidence: float

    @property
    def chosen(self) -> int:
        return self.shares.index(max(self.shares))

    @property
    def hit(self) -> bool:
        return self.chosen == self.right

    @property
    def brier(self) -> float:
        """The squared distance of the shares from the truth, summed over the options: 0 is perfect, 2 the worst."""
        return math.fsum((share - (index == self.right)) ** 2 for index, share in enumerate(self.shares))


class Interval(msgspec.Struct, frozen=True):
    """A value, and where it lies with a probability of 95 %."""

    value: float
    low: float
    high: float


class Coverage(msgspec.Struct, frozen=True):
    """What is left when answers below a confidence are not taken."""

    threshold: float
    share: float
    accuracy: Interval | None


class Scores(msgspec.Struct, frozen=True):
    """All figures of a set of rows."""

    rows: int
    accuracy: Interval
    macro_f1: float | None
    brier: float
    log_loss: float
    calibration_error: float
    calibration_noise: float
    """The calibration error that a perfectly calibrated model would show on so many rows, by chance alone."""
    coverage: list[Coverage]


class Comparison(msgspec.Struct, frozen=True):
    """Two models on the same rows: A is the first. Differences are A minus B."""

    rows: int
    only_a_right: int
    only_b_right: int
    accuracy: Interval
    mcnemar_p: float
    brier: Interval
    brier_p: float


def scores(rows: Sequence[Scored], options: int | None) -> Scores:
    """The figures of rows that share their options, or, without `options`, of rows that do not."""
    judged = [Judged(row.shares, row.right) for row in rows]
    found = figures(judged, 1.0)
    hits = sum(row.hit for row in rows)
    return Scores(
        rows=len(rows),
        accuracy=wilson(hits, len(rows)),
        macro_f1=None if options is None else macro_f1(confusion(rows, options)),
        brier=math.fsum(row.brier for row in rows) / len(rows),
        log_loss=found.log_loss,
        calibration_error=found.calibration_error,
        calibration_noise=calibration_noise([max(row.shares) for row in rows]),
        coverage=[coverage(rows, threshold) for threshold in THRESHOLDS],
    )


def wilson(hits: int, rows: int) -> Interval:
    """A share with its interval after Wilson, which is sound for few rows and for shares near 0 and 1."""
    share = hits / rows
    middle = (share + _Z**2 / (2 * rows)) / (1 + _Z**2 / rows)
    half = _Z / (1 + _Z**2 / rows) * math.sqrt(share * (1 - share) / rows + _Z**2 / (4 * rows**2))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def confusion(rows: Sequence[Scored], options: int) -> list[list[int]]:
    """How often each option (a line each) was answered with each (a column each)."""
    counted = Counter((row.right, row.chosen) for row in rows)
    return [[counted[right, chosen] for chosen in range(options)] for right in range(options)]


def macro_f1(table: Sequence[Sequence[int]]) -> float:
    """The mean of the F1 of each option that is right somewhere, or was chosen somewhere."""
    found = []
    for option in range(len(table)):
        right, chosen = sum(table[option]), sum(line[option] for line in table)
        if right + chosen:
            found.append(2 * table[option][option] / (right + chosen))
    return math.fsum(found) / len(found)


def coverage(rows: Sequence[Scored], threshold: float) -> Coverage:
    kept = [row.hit for row in rows if row.confidence >= threshold]
    return Coverage(threshold, len(kept) / len(rows), wilson(sum(kept), len(kept)) if kept else None)


def act_from(rows: Sequence[Scored]) -> Coverage | None:
    """The lowest confidence from which on enough answers are right; none if there is no such, or too few rows."""
    for step in range(100):
        found = coverage(rows, step / 100)
        if round(found.share * len(rows)) < _FEWEST_TO_ACT or found.accuracy is None:
            return None
        if found.accuracy.value >= TARGET:
            return found
    return None


def coverage_curve(rows: Sequence[Scored]) -> list[tuple[float, float]]:
    """The share of answers taken, the most confident first, against how many of those are right."""
    ordered = sorted(rows, key=lambda row: -row.confidence)
    points, hits = [], 0
    every = max(1, len(rows) // _CURVE_POINTS)
    for number, row in enumerate(ordered, start=1):
        hits += row.hit
        if number % every == 0 or number == len(rows):
            points.append((number / len(rows), hits / number))
    return points


def bins(rows: Sequence[Scored]) -> list[Bin]:
    return reliability([Judged(row.shares, row.right) for row in rows], 1.0)


def calibration_noise(tops: Sequence[float]) -> float:
    """The mean calibration error of rows that are right exactly as often as the model is sure."""
    import numpy as np

    chance = np.random.default_rng(_SEED)
    sure = np.asarray(tops)
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    total = 0.0
    for _ in range(_FLOOR_DRAWS):
        off = (chance.random(len(sure)) < sure) - sure
        total += np.abs(np.bincount(place, weights=off, minlength=BINS)).sum() / len(sure)
    return float(total / _FLOOR_DRAWS)


def compare(first: Sequence[Scored], second: Sequence[Scored]) -> Comparison:
    """The same rows, answered by two models."""
    import numpy as np

    hits = np.array([a.hit - b.hit for a, b in zip(first, second, strict=True)], dtype=float)
    briers = np.array([a.brier - b.brier for a, b in zip(first, second, strict=True)])
    only_a, only_b = int((hits > 0).sum()), int((hits < 0).sum())
    return Comparison(
        rows=len(first),
        only_a_right=only_a,
        only_b_right=only_b,
        accuracy=_bootstrap(hits),
        mcnemar_p=mcnemar(only_a, only_b),
        brier=_bootstrap(briers),
        brier_p=permutation(briers),
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact test: how likely a split at least as uneven is, if neither were better."""
    total, fewer = only_a + only_b, min(only_a, only_b)
    of_all = math.lgamma(total + 1) - total * math.log(2)  # whole numbers would have as many digits as there are rows
    tail = (math.exp(of_all - math.lgamma(n + 1) - math.lgamma(total - n + 1)) for n in range(fewer + 1))
    return min(1.0, 2 * math.fsum(tail))


def permutation(differences: Any) -> float:
    """How likely a mean at least as far from 0 is, if the sign of each difference were chance."""
    import numpy as np

    chance = np.random.default_rng(_SEED)
    found = abs(differences.mean())
    beyond = _drawn(lambda size: chance.choice((-1.0, 1.0), size=(size, len(differences))) @ differences)
    extreme = int((np.abs(beyond) / len(differences) >= found - 1e-12).sum())
    return float((extreme + 1) / (_DRAWS + 1))


def _bootstrap(differences: Any) -> Interval:
    """The mean, with the interval in which it falls when the rows are drawn again."""
    import numpy as np

    chance = np.random.default_rng(_SEED)
    count = len(differences)
    means = _drawn(lambda size: differences[chance.integers(0, count, size=(size, count))].mean(axis=1))
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(differences.mean()), float(low), float(high))


def _drawn(draw: Callable[[int], Any]) -> Any:
    """Many draws, some at a time, so that a long table does not take much memory."""
    import numpy as np

    return np.concatenate([draw(100) for _ in range(_DRAWS // 100)])
