"""Temperatures: what they do to weights, how they are fitted, and how a setting gives them."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided.contract.answers import normalise
from decided.contract.temperature import COOLEST, HOTTEST, Temperatures, apply, read_temperatures
from decided.contract.types import Choice, Noul, Question, Score
from decided.evaluation import fitting
from decided.evaluation.fitting import LEAST_ROWS, Judged

weight = st.just(0.0) | st.floats(1e-300, 1e300)
some_weights = st.lists(weight, min_size=1, max_size=8).filter(lambda given: 0 < sum(given) < math.inf)
temperature = st.floats(COOLEST, HOTTEST)


# --- what a temperature does ---


@given(some_weights, temperature)
def test_the_order_stays_and_there_is_always_a_distribution(weights: list[float], degrees: float) -> None:
    changed = apply(weights, degrees)
    assert sum(normalise(changed, len(weights))) == pytest.approx(1)
    for one, new_one in zip(weights, changed, strict=True):
        assert math.isfinite(new_one)
        for other, new_other in zip(weights, changed, strict=True):
            assert new_one <= new_other or one > other


@given(some_weights)
def test_one_changes_nothing_at_all(weights: list[float]) -> None:
    assert apply(weights, 1.0) is weights


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8), temperature)
def test_it_is_the_power_of_the_shares(weights: list[float], degrees: float) -> None:
    powers = [(one / max(weights)) ** (1 / degrees) for one in weights]
    expected = normalise(powers, len(weights))
    assert normalise(apply(weights, degrees), len(weights)) == pytest.approx(expected, abs=1e-9)


def test_hotter_is_less_sure_and_nothing_stays_nothing() -> None:
    assert apply([4.0, 1.0, 0.0], 2.0) == pytest.approx([1.0, 0.5, 0.0])
    assert apply([4.0, 1.0, 0.0], 0.5) == pytest.approx([1.0, 0.0625, 0.0])
    assert apply(np.array([4, 1], np.float32), 2.0) == pytest.approx([1.0, 0.5])  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-1.0, 2.0]])
def test_what_is_no_distribution_is_left_for_others_to_refuse(weights: list[float]) -> None:
    assert apply(weights, 2.0) is weights


def test_each_type_has_its_own() -> None:
    given = Temperatures(choice=2.0, noul=0.5)
    asked: list[Question] = [Choice({"a": None, "b": None}), Score(["low", "high"]), Noul("Is it?")]
    assert given.apply(asked, [[4.0, 1.0]] * 3) == [[1.0, 0.5], [4.0, 1.0], [1.0, 0.0625]]


# --- fitting ---


def rows(degrees: float, number: int, seed: int = 1) -> list[Judged]:
    """Rows of a model whose probabilities are right at this temperature and at no other."""
    dice = random.Random(seed)
    found = []
    for _ in range(number):
        honest = [dice.gauss(0, 2) for _ in range(dice.randint(2, 6))]
        shares = [math.exp(value) for value in honest]
        right = dice.choices(range(len(shares)), shares)[0]
        scale = dice.choice([1, 1e-9, 1e9])  # weights need not sum to one
        found.append(Judged([scale * math.exp(value * degrees) for value in honest], right))
    return found


def test_a_model_that_is_right_about_itself_is_left_alone() -> None:
    found = fitting.fit(rows(1.0, 4000))
    assert (found.temperature, found.after) == (1, found.before)
    assert "on rows held back no other temperature is better" in found.note


def test_what_chance_suggests_is_not_recommended() -> None:
    """Few rows of a model that is right about itself: now and then a temperature would fit them, and help nobody."""
    kept = [fitting.fit(rows(1.0, 40, seed)) for seed in range(20)]
    assert sum(found.temperature != 1 for found in kept) <= 3
    assert all(found.after.calibration_error <= found.before.calibration_error for found in kept)


@pytest.mark.parametrize("degrees", [0.8, 1.0, 1.2, 1.5])
def test_what_is_recommended_helps_on_fresh_rows(degrees: float) -> None:
    """Small sets of labels, and what their temperatures do to a thousand rows of the same model."""
    fresh = rows(degrees, 1000, 10_000)
    bare = fitting.figures(fresh, 1.0)
    fitted = [fitting.fit(rows(degrees, 60, seed)) for seed in range(20)]
    losses = [fitting.figures(fresh, one.temperature).log_loss for one in fitted if one.temperature != 1]
    assert sum(loss - bare.log_loss for loss in losses) <= 0.005 * len(fitted)
    assert sum(loss > bare.log_loss + 0.01 for loss in losses) <= 2


@pytest.mark.parametrize("degrees", [0.3, 0.7, 1.6, 4.0])
def test_a_known_temperature_is_found_again(degrees: float) -> None:
    judged = rows(degrees, 4000)
    found = fitting.fit(judged)
    assert found.temperature == pytest.approx(degrees, rel=0.08)
    assert found.rows == 4000
    assert found.note == ""
    assert found.after.log_loss <= found.before.log_loss
    assert found.after.accuracy == found.before.accuracy
    assert found.after.calibration_error < 0.03


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.3, 3))
def test_fitting_never_makes_the_loss_worse(seed: int, degrees: float) -> None:
    found = fitting.fit(rows(degrees, LEAST_ROWS, seed))
    assert COOLEST <= found.temperature <= HOTTEST
    assert found.after.log_loss <= found.before.log_loss + 1e-6


def test_few_rows_leave_it_at_one() -> None:
    found = fitting.fit(rows(3.0, LEAST_ROWS - 1))
    assert found.temperature == 1
    assert found.before == found.after
    assert "fewer than 20" in found.note


@pytest.mark.parametrize(
    ("judged", "degrees", "note"),
    [
        ([Judged([3.0, 1.0], 0)] * 50, 1.0, "too few errors"),
        ([Judged([3.0, 1.0], 1)] * 50, HOTTEST, "no better than guessing"),
        ([Judged([1.0, 1.0], 0)] * 50, 1.0, "no other temperature"),
        ([Judged([1.0, 0.0], 1)] * 50, HOTTEST, "no better than guessing"),
    ],
    ids=["always right", "always wrong", "always undecided", "surely wrong"],
)
def test_where_rows_tell_nothing(judged: list[Judged], degrees: float, note: str) -> None:
    found = fitting.fit(judged)
    assert found.temperature == pytest.approx(degrees, rel=0.001)
    assert note in found.note
    assert math.isfinite(found.after.log_loss)


def test_figures_by_hand() -> None:
    judged = [Judged([0.9, 0.1], 0), Judged([0.9, 0.1], 1), Judged([2.0, 6.0], 1)]
    found = fitting.figures(judged, 1.0)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.log_loss == pytest.approx(-(math.log(0.9) + math.log(0.1) + math.log(0.75)) / 3)
    assert found.calibration_error == pytest.approx((2 * abs(0.5 - 0.9) + abs(1 - 0.75)) / 3)
    bins = fitting.reliability(judged, 1.0)
    assert [(number, one.rows) for number, one in enumerate(bins) if one.rows] == [(11, 1), (13, 2)]
    assert bins[13].confidence == pytest.approx(0.9)
    assert bins[13].accuracy == 0.5


# --- as a setting ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.3", (1.3, 1.3, 1.3)),
        ("1", (1, 1, 1)),
        ("choice=1.2,score=0.9,noul=1.5", (1.2, 0.9, 1.5)),
        (" noul = 2 ", (1, 1, 2)),
    ],
)
def test_forms(value: str, expected: tuple[float, float, float]) -> None:
    found = read_temperatures(value)
    assert (found.choice, found.score, found.noul) == expected
    assert read_temperatures(str(found)) == found


def test_a_file_names_itself_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text('{"model": "m", "temperatures": {"choice": 1.2, "noul": 0.9}, "added_later": 1}')
    found = read_temperatures(str(path))
    assert (found.choice, found.score, found.noul, found.model) == (1.2, 1, 0.9, "m")
    assert found.in_words() == f"Calibrated: choice T=1.20, noul T=0.90 (calibration {found.fingerprint})."
    assert len(found.fingerprint) == 8
    path.write_text(path.read_text() + "\n")
    assert read_temperatures(str(path)).fingerprint != found.fingerprint


def test_ones_are_not_worth_a_word() -> None:
    assert Temperatures().in_words() == read_temperatures("noul=1").in_words() == ""
    assert read_temperatures("score=2").in_words() == "Calibrated: score T=2.00."


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"{}",
        b'{"temperatures": 1}',
        b'{"temperatures": {"choice": "1"}}',
        b'{"temperatures": {"choice": 0}}',
        b'{"temperatures": {"choice": 1e9}}',
        b'{"temperatures": {"mood": 1}}',
        b'{"temperatures": {"choice": 1}, "model": 3}',
        b"\xff\xfe",
        b'{"temperatures": ' + b"[" * 100_000,
    ],
)
def test_bad_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a number from 0\.05 to 20"):
        read_temperatures(str(path))


@pytest.mark.parametrize("value", ["nowhere.json", ".", "\0", "x" * 10_000])
def test_what_is_no_file(value: str) -> None:
    with pytest.raises(ValueError, match=r"must be a number from 0\.05 to 20"):
        read_temperatures(value)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    fits = {"choice": fitting.fit(rows(2.0, 200)), "noul": fitting.fit(rows(2.0, 5))}
    degrees = {kind: one.temperature for kind, one in fits.items()}
    path = tmp_path / "calibration.json"
    path.write_bytes(fitting.Calibration("m", "k", "1", degrees, fits).encoded())
    found = read_temperatures(str(path))
    assert (found.choice, found.score, found.noul) == (fits["choice"].temperature, 1, 1)
    stored: Any = json.loads(path.read_text())
    assert stored["fits"]["choice"]["after"]["log_loss"] == fits["choice"].after.log_loss
    assert "fewer than 20" in stored["fits"]["noul"]["note"]
