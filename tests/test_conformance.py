"""The shared conformance test on the kinds of the base install, and on the worked example of docs/kinds.md."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from decided import engine
from decided.engine import KINDS, is_model
from decided.settings import Settings
from tests import conformance
from tests.test_docs import blocks

PAGE = Path(__file__).parents[1] / "docs" / "kinds.md"


def test_the_embedded_model_conforms() -> None:
    model = engine.load(Settings(model="embedded"))
    assert is_model(model)
    conformance.hold(model)


def test_the_worked_example_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block.text for block in blocks(PAGE) if block.language == "python kind"]
    module = ModuleType("worked_example")
    exec(compile(code, "docs/kinds.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "worked_example", module)
    monkeypatch.setitem(KINDS, "overlap", "worked_example")
    model = engine.load(Settings(model="overlap:words"))
    assert is_model(model)
    assert model.card.kind == "overlap"
    conformance.hold(model)
