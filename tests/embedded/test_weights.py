"""Which embedded model is served: the best that is installed, or the one that is named."""

from pathlib import Path

import pytest

from decided.engines.embedded import weights
from decided.errors import ModelError

SMALL = Path(weights.__file__).parents[2] / "weights"


def test_without_the_larger_package_there_is_the_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    assert weights.locate("") == weights.locate("small") == SMALL
    with pytest.raises(ModelError, match="make install"):
        weights.locate("base")


def test_with_the_larger_package_it_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    monkeypatch.setattr(weights, "files", lambda name: tmp_path if name == "decided_model_base" else SMALL.parent)
    assert weights.locate("") == weights.locate("base") == tmp_path
    assert weights.locate("small") == SMALL


def test_other_names_are_refused() -> None:
    with pytest.raises(ModelError, match="embedded:base and embedded:small"):
        weights.locate("large")
