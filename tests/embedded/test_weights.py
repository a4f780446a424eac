"""Which embedded model is served: the best that is installed, or the one that is named."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

from decided.engines.embedded import weights
from decided.engines.embedded.weights import digest
from decided.errors import ModelError

SMALL = Path(weights.__file__).parents[2] / "weights"


def test_without_the_larger_package_there_is_the_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    assert weights.locate("") == weights.locate("small") == SMALL
    for name in ("base", "ensemble"):
        with pytest.raises(ModelError, match=f"embedded:{name} is not installed: run `make install`"):
            weights.locate(name)


def test_with_the_larger_package_both_answer_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    monkeypatch.setattr(weights, "files", lambda name: tmp_path if name == "decided_model_base" else SMALL.parent)
    for name in ("", "ensemble"):
        with pytest.raises(ModelError, match="an earlier release: run `make install`, or serve embedded:base"):
            weights.locate(name)
    (tmp_path / "ensemble").mkdir()
    assert weights.locate("") == weights.locate("ensemble") == tmp_path / "ensemble"
    assert weights.locate("base") == tmp_path
    assert weights.locate("small") == SMALL


def test_other_names_are_refused() -> None:
    with pytest.raises(ModelError, match="are embedded:ensemble, embedded:base, embedded:small"):
        weights.locate("large")


@pytest.mark.parametrize("name", ["small", "base"])
def test_what_was_learnt_belongs_to_all_that_an_answer_depends_on(name: str) -> None:
    """Profiles are of one model: whatever of it changes but the layout of its graphs, they are no longer."""
    card = json.loads((weights.locate(name) / "card.json").read_text())
    for file in card["sha256"]:
        other = deepcopy(card)
        other["sha256"][file] = "0" * 64
        assert (digest(other) == digest(card)) == file.endswith(".onnx")
    warmer = deepcopy(card)
    warmer["temperatures"]["noul"][0] += 0.1
    assert digest(warmer) != digest(card)
