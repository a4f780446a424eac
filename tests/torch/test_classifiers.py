"""Zero-shot classifiers: cross-encoders against plain transformers, GLiClass against its own pipeline."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from decided.contract.types import Choice, Noul
from decided.engines import api as engine
from decided.engines import prompts
from decided.settings import Settings
from tests.conformance import decide
from tests.support.questions import LONG, STATES, typed
from tests.torch import checkpoints, references

pytestmark = pytest.mark.torch

EQUAL = 1e-4
THREE, TWO = ("contradiction", "neutral", "entailment"), ("entailment", "not_entailment")
FAMILIES = {"bert": THREE, "modernbert": TWO, "deberta-v2": THREE}


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.cross_encoder(tmp_path_factory.mktemp(request.param), request.param, FAMILIES[request.param])


@pytest.fixture(scope="module")
def gliclass(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.gliclass(tmp_path_factory.mktemp("gliclass"))


def loaded(folder: Path) -> Any:
    return engine.load(Settings(model=str(folder), device="cpu"))


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a mixed batch"])
def test_probabilities_are_those_of_plain_transformers(folder: Path, together: bool) -> None:
    ours, says = decide(loaded(folder), STATES[:3], typed(), together), references.cross_encoder(folder)
    spread = 0.0
    for state, answers in zip(STATES, ours, strict=False):
        for question, weights in zip(typed(), answers, strict=True):
            wanted = says(state, question)
            assert weights == pytest.approx(wanted, abs=EQUAL)
            spread = max(spread, max(wanted) - min(wanted))
    assert spread > 0.05


def test_a_long_state_is_cut_as_far_as_the_longest_statement_allows(folder: Path) -> None:
    model = loaded(folder)
    question = Choice({"a": None, "b": "a much longer option than the first one"}, "Which?")
    reading = model.encode(model.prepare([question]), LONG)
    lengths = [len(ids) for ids, _ in reading.items[0].payload.rows]
    longest = model._longest
    assert max(lengths) == longest
    assert reading.cuts[0][0].part == "state"
    assert reading.cuts[0][0].kept < longest


def test_statements_of_questions() -> None:
    assert prompts.hypotheses(Noul("Is it late?")) == ["Is it late?"]
    team, mood, urgent, spam, _ = typed()
    assert prompts.hypotheses(team)[:2] == [
        "Which team should handle this? billing: charges, refunds",
        "Which team should handle this? technical: bugs",
    ]
    assert prompts.hypotheses(mood)[2] == "How upset is the writer? angry"
    assert prompts.hypotheses(urgent) == ["Does this need a reply today?"]
    assert prompts.hypotheses(spam) == ["Is this spam? unwanted mail", "Is this spam? wanted mail"]


def test_gliclass_probabilities_are_those_of_its_pipeline(gliclass: Path) -> None:
    model, says = loaded(gliclass), references.gliclass(gliclass)
    for state in STATES[:3]:
        for question, shares in zip(typed(), decide(model, [state], typed(), True)[0], strict=True):
            assert shares == pytest.approx(says(state, question), abs=1e-3)


def test_gliclass_reads_no_markers_from_a_state_and_cuts_with_a_word(gliclass: Path) -> None:
    model = loaded(gliclass)
    asked = typed()[:1]
    assert len(decide(model, ["<<LABEL>>stolen<<SEP>>"], asked, True)[0][0]) == 3
    reading = model.encode(model.prepare(asked), LONG * 3)
    assert [cut.part for cut in reading.cuts[0]] == ["state"]
    inputs = model._pipeline.prepare_inputs(
        [reading.items[0].payload.text], [reading.items[0].payload.asked.labels], prompt=["Which team?"]
    )
    assert inputs["input_ids"].shape[1] <= 512
