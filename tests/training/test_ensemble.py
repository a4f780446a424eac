"""Two models that answer together, as training makes them: the mean of their answers, and the card that is shipped."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from decided.engines.embedded.weights import locate, read_card
from training import ensemble
from training.calibrate import load_answers, save_answers
from training.metrics import Answer

ROOT = Path(__file__).parents[2]


def answers(*rows: list[float], gold: int = 0) -> list[Answer]:
    return [Answer("task", 0, np.array(row), gold) for row in rows]


def test_the_mean_has_so_much_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, small, out = (tmp_path / f"{name}.npz" for name in ("base", "small", "out"))
    save_answers(base, answers([1.0, 0.0], [0.0, 4.0, 0.0]))
    save_answers(small, answers([0.0, 1.0], [2.0, 0.0, 0.0]))
    monkeypatch.setattr(sys, "argv", ["ensemble", "answers", *map(str, (base, small, out)), "--share", "0.75"])
    ensemble.main()
    assert [a.logits.tolist() for a in load_answers(out)] == [[0.75, 0.25], [0.5, 3.0, 0.0]]


def test_answers_to_other_rows_have_no_mean() -> None:
    with pytest.raises(SystemExit, match="not answers to the same rows"):
        ensemble.mean(answers([1.0, 0.0]), answers([1.0, 0.0], gold=1), 0.5)


def test_the_shipped_card_is_what_the_command_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = read_card(locate("ensemble"))
    fitted = {name: value for name, value in shipped["temperatures"].items() if name != "option_count_edges"}
    temperatures, out = tmp_path / "temperatures.json", tmp_path / "ensemble" / "card.json"
    temperatures.write_text(json.dumps(fitted))
    about, share = ROOT / "training/about-ensemble.json", str(shipped["members"]["base"]["share"])
    places = [str(locate("base")), str(locate("small")), str(out)]
    given = ["--share", share, "--temperatures", str(temperatures), "--about", str(about)]
    monkeypatch.setattr(sys, "argv", ["ensemble", "card", *places, *given])
    ensemble.main()
    assert out.read_bytes() == (locate("ensemble") / "card.json").read_bytes()
