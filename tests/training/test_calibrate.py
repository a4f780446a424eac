"""Temperatures and the figures that runs are judged by."""

from pathlib import Path

import numpy as np
import pytest

from training.calibrate import apply, bucket, fit, judged, left_out, load_answers, save_answers, weighed
from training.metrics import Answer, decided_share, expected_error, report


def answers(task: str, scale: float, count: int = 400, seed: int = 1) -> list[Answer]:
    """Answers whose logits are `scale` times what they should be."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        logits = rng.normal(size=3)
        chance = np.exp(logits) / np.exp(logits).sum()
        found.append(Answer(task, 0, logits * scale, int(rng.choice(3, p=chance))))
    return found


def test_a_temperature_undoes_what_makes_a_model_too_sure() -> None:
    found = fit(judged(answers("a", 3.0)))
    assert found.temperatures["choice"][bucket(3)] == pytest.approx(3.0, rel=0.3)
    assert found.steepness["choice"] == 0
    assert found.temperatures["noul"] == [1.0] * 4  # nothing to go by
    raw, scaled = report(answers("a", 3.0)), report(apply(answers("a", 3.0), found))
    assert scaled.calibration_error < raw.calibration_error
    assert scaled.micro == raw.micro


def test_a_model_that_is_right_only_where_it_is_surest_becomes_steeper() -> None:
    rng = np.random.default_rng(2)
    margins = rng.uniform(0, 4, 20_000)
    right = rng.random(len(margins)) < 1 / (1 + np.exp(-(margins**1.75) / 4))  # flat in the middle
    rows = enumerate(zip(margins, right, strict=True))
    found = [Answer(f"task {n % 100}", 2, np.array([m, 0.0]), int(not hit)) for n, (m, hit) in rows]
    fitted = fit(judged(found))
    assert fitted.steepness["noul"] == 0.75
    assert fitted.temperatures["noul"][0] == pytest.approx(4, rel=0.1)
    assert report(apply(found, fitted)).calibration_error < 0.02 < report(found).calibration_error


def test_dev_tasks_weigh_more_than_held_out_ones() -> None:
    rows = weighed(answers("sibling", 1.0), answers("dev", 3.0), [])
    assert fit(rows).temperatures["choice"][bucket(3)] > 2
    apart = left_out(rows, answers("dev", 3.0))
    assert report(apart).calibration_error > report(apply(answers("dev", 3.0), fit(rows))).calibration_error


def test_answers_come_back_as_they_were_saved(tmp_path: Path) -> None:
    before = [*answers("a", 1.0, 20), Answer("b", 2, np.array([0.5, -1.0]), 1)]
    save_answers(tmp_path / "a.npz", before)
    for old, new in zip(before, load_answers(tmp_path / "a.npz"), strict=True):
        assert (old.task, old.kind, old.gold) == (new.task, new.kind, new.gold)
        assert np.allclose(old.logits, new.logits)


def test_the_share_that_can_be_decided_takes_the_surest_first() -> None:
    chance = np.array([0.9, 0.8, 0.7, 0.6])
    assert decided_share(chance, np.array([1.0, 1.0, 0.0, 1.0])) == 0.5
    assert decided_share(chance, np.array([0.0, 1.0, 1.0, 1.0])) == 0.0
    assert decided_share(chance, np.array([1.0, 1.0, 1.0, 1.0])) == 1.0


def test_an_honest_model_has_no_calibration_error() -> None:
    assert expected_error(np.full(10, 0.7), np.array([1.0] * 7 + [0.0] * 3)) == pytest.approx(0, abs=1e-9)
    assert expected_error(np.full(10, 0.95), np.zeros(10)) == pytest.approx(0.95)
