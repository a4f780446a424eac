"""The shared conformance test on the kinds of the base install, and on the worked example of docs/kinds.md."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from decided.engines import api as engine
from decided.engines.api import KINDS, Model, is_model
from decided.settings import Settings
from tests import conformance
from tests.support.fake_model import FakeModel, WholeModel
from tests.test_docs import blocks

PAGE = Path(__file__).parents[1] / "docs" / "kinds.md"


def test_the_embedded_model_conforms() -> None:
    """The small one: how it works is the same as with two, which `tests/embedded/test_ensemble.py` adds up."""
    model = engine.load(Settings(model="embedded:small"))
    assert is_model(model)
    conformance.hold(model)


@pytest.mark.parametrize("fake", [FakeModel, WholeModel])
def test_the_fakes_of_the_other_tests_conform(fake: type[FakeModel]) -> None:
    """So that what is shown with them holds for real ones; however they cut their work, they say the same."""
    conformance.hold(
        fake(), says=lambda state, question: conformance.decide(FakeModel(), [state], [question], True)[0][0]
    )


def worked_example(monkeypatch: pytest.MonkeyPatch) -> Model:
    """The kind that docs/kinds.md makes, loaded as any other."""
    (code,) = [block.text for block in blocks(PAGE) if block.language == "python kind"]
    module = ModuleType("worked_example")
    exec(compile(code, "docs/kinds.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "worked_example", module)
    monkeypatch.setitem(KINDS, "overlap", "worked_example")
    model = engine.load(Settings(model="overlap:words"))
    assert is_model(model)
    return model


def test_the_worked_example_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    model = worked_example(monkeypatch)
    assert model.card.kind == "overlap"
    conformance.hold(model)
