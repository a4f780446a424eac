"""The figures of `decided eval` against scikit-learn and SciPy, on the same rows."""

import math
import random
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from decided.contract.answers import normalise, peak_confidence
from decided.evaluation import scoring
from decided.evaluation.scoring import Scored


def made(rows: int, options: int, seed: int, skill: float = 2.0) -> list[Scored]:
    """Rows of a model that is right more often than not, and more or less sure of it."""
    chance = random.Random(seed)
    found = []
    for _ in range(rows):
        right = chance.randrange(options)
        weights = [
            chance.expovariate(1) + (skill * chance.random() if index == right else 0) for index in range(options)
        ]
        shares = normalise(weights, options)
        found.append(Scored(shares, right, peak_confidence(max(shares), options)))
    return found


CASES = [(50, 2, 1), (400, 3, 2), (1000, 7, 3), (5, 4, 4)]


@pytest.mark.parametrize(("rows", "options", "seed"), CASES)
def test_the_figures_are_those_of_scikit_learn(rows: int, options: int, seed: int) -> None:
    data = made(rows, options, seed)
    right, chosen = [row.right for row in data], [row.chosen for row in data]
    shares = np.array([row.shares for row in data])
    labels = list(range(options))
    found = scoring.scores(data, options)
    assert found.rows == rows
    assert found.accuracy.value == pytest.approx(metrics.accuracy_score(right, chosen))
    assert found.macro_f1 == pytest.approx(metrics.f1_score(right, chosen, average="macro", zero_division=0))
    assert found.log_loss == pytest.approx(metrics.log_loss(right, shares, labels=labels))
    brier = metrics.brier_score_loss(right, shares, labels=labels, scale_by_half=False)
    assert found.brier == pytest.approx(brier)
    assert scoring.confusion(data, options) == metrics.confusion_matrix(right, chosen, labels=labels).tolist()


@pytest.mark.parametrize(("hits", "rows"), [(0, 1), (1, 1), (0, 50), (50, 50), (7, 10), (500, 1000)])
def test_the_interval_is_that_of_wilson(hits: int, rows: int) -> None:
    found = scoring.wilson(hits, rows)
    expected = stats.binomtest(hits, rows).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_the_exact_binomial_test(only_a: int, only_b: int) -> None:
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert scoring.mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("only_a", "only_b"), [(5000, 5050), (40_000, 60_000), (99_999, 100_001), (0, 3000)])
def test_mcnemar_of_a_long_table_takes_no_time(only_a: int, only_b: int) -> None:
    began = time.perf_counter()
    found = scoring.mcnemar(only_a, only_b)
    assert time.perf_counter() - began < 1
    assert found == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue, rel=1e-6, abs=1e-300)
    assert scoring.mcnemar(only_b, only_a) == found


def test_the_permutation_test_agrees_with_that_of_scipy() -> None:
    chance = np.random.default_rng(5)
    for shift in (0.0, 0.2):
        differences = chance.normal(shift, 1, size=120)
        expected = stats.permutation_test(
            (differences, np.zeros(120)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=9999,
            vectorized=False, rng=6,
        ).pvalue  # fmt: skip
        assert scoring.permutation(differences) == pytest.approx(expected, abs=0.03)


def test_coverage_counts_what_passes_the_threshold() -> None:
    data = made(500, 3, 9)
    for one in scoring.scores(data, 3).coverage:
        kept = [row for row in data if row.confidence >= one.threshold]
        assert one.share == len(kept) / len(data)
        if one.accuracy is not None:
            assert one.accuracy.value == sum(row.hit for row in kept) / len(kept)
    curve = scoring.coverage_curve(data)
    assert curve[-1] == (1.0, sum(row.hit for row in data) / len(data))
    assert [x for x, _ in curve] == sorted(x for x, _ in curve)
    assert len(curve) <= 101


def test_the_noise_of_the_calibration_error_is_what_chance_alone_gives() -> None:
    """A model that is right exactly as often as it is sure has an error of about the noise, a boastful one more."""
    chance = random.Random(11)
    tops = [chance.uniform(0.5, 1) for _ in range(2000)]

    def rows(sureness: float) -> list[Scored]:
        return [
            Scored([top, 1 - top], 0 if chance.random() < 0.5 + (top - 0.5) * sureness else 1, 2 * top - 1)
            for top in tops
        ]

    honest, boastful = scoring.scores(rows(1.0), 2), scoring.scores(rows(0.3), 2)
    assert honest.calibration_noise == boastful.calibration_noise
    assert 0.005 < honest.calibration_noise < 0.03
    assert honest.calibration_error < 2 * honest.calibration_noise
    assert boastful.calibration_error > 5 * boastful.calibration_noise
    few = scoring.calibration_noise(tops[:50])
    assert few > 3 * honest.calibration_noise  # fewer rows, more noise


def worse(rows: Sequence[Scored], every: int) -> list[Scored]:
    """The same model, spoilt on some rows: there the shares stand in another order."""
    return [
        Scored([*row.shares[1:], row.shares[0]], row.right, row.confidence) if number % every == 0 else row
        for number, row in enumerate(rows)
    ]


def test_a_comparison_sees_the_better_one_and_no_difference_where_there_is_none() -> None:
    data = made(600, 3, 21, skill=4.0)
    same = scoring.compare(data, data)
    assert (same.only_a_right, same.only_b_right, same.mcnemar_p, same.brier_p) == (0, 0, 1.0, 1.0)
    assert (same.accuracy.value, same.brier.value) == (0.0, 0.0)
    found = scoring.compare(data, worse(data, 4))
    assert found.only_a_right > found.only_b_right
    assert found.accuracy.low > 0
    assert found.mcnemar_p < 0.001
    assert found.brier.high < 0
    assert found.brier_p < 0.001
    turned = scoring.compare(worse(data, 4), data)
    assert (turned.only_a_right, turned.only_b_right) == (found.only_b_right, found.only_a_right)
    assert turned.accuracy.value == -found.accuracy.value


def test_the_interval_of_a_difference_covers_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(31)
    inside = 0
    for _ in range(60):
        found = scoring._bootstrap(chance.normal(0.3, 1, size=80))
        inside += found.low <= 0.3 <= found.high
    assert 50 <= inside <= 60


def test_a_share_of_nothing_costs_much_and_not_infinitely_much() -> None:
    assert math.isfinite(scoring.scores([Scored([1.0, 0.0], 1, 1.0)], 2).log_loss)
