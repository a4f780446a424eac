"""Decision encoders against the packages of their authors: the same questions, the same probabilities."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided.contract.types import Noul
from decided.engines import api as engine
from decided.engines.torch import attention
from decided.settings import Settings
from tests.conformance import decide
from tests.support.questions import LONG, STATES, typed
from tests.torch import checkpoints, kernel, references

pytestmark = pytest.mark.torch

EQUAL = 1e-4


@pytest.fixture(scope="module")
def opendecider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.opendecider(tmp_path_factory.mktemp("tiny-nano"))


@pytest.fixture(scope="module")
def laya(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.laya(tmp_path_factory.mktemp("tiny-laya"))


def loaded(folder: Path, **settings: Any) -> Any:
    return engine.load(Settings(model=str(folder), device="cpu", **settings))


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a mixed batch"])
@pytest.mark.parametrize("family", ["opendecider", "laya"])
def test_probabilities_are_those_of_the_authors(family: str, together: bool, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(family)
    states = [*STATES, LONG]
    says = {"opendecider": references.opendecider, "laya": references.laya}[family](folder)
    spread = 0.0
    for state, answers in zip(states, decide(loaded(folder), states, typed(), together), strict=True):
        for question, our in zip(typed(), answers, strict=True):
            their = says(state, question)
            assert our == pytest.approx(their, abs=EQUAL)
            spread = max(spread, max(their) - min(their))
    assert spread > 0.2  # else anything would be equal


@pytest.mark.parametrize("family", ["opendecider", "laya"])
def test_the_flash_kernel_is_handed_the_right_sequences(
    family: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(request.getfixturevalue(family))
    wanted = decide(model, [*STATES, LONG], typed(), True)
    monkeypatch.setattr("decided.engines.torch.attention.varlen", kernel.varlen)
    model.attention.flash = True
    for ours, theirs in zip(decide(model, [*STATES, LONG], typed(), True), wanted, strict=True):
        for our, their in zip(ours, theirs, strict=True):
            assert our == pytest.approx(their, abs=EQUAL)


def test_pytorch_has_the_flash_kernel_in_the_form_in_which_it_is_called() -> None:
    """Without a GPU it cannot run; that it would be accepted, and what shape it gives, can be asked."""
    q, k = torch.empty(9, 4, 64, device="meta"), torch.empty(20, 2, 64, device="meta")
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    mixed, weight = attention.varlen(q, k, k, starts, starts, 5, 12, (-1, 0), 0.1)
    assert mixed.shape == (9, 4, 64)
    assert weight.shape == (9, 4)


def test_what_is_cut_is_what_the_authors_cut(opendecider: Path, laya: Path) -> None:
    for folder in (opendecider, laya):
        model = loaded(folder)
        reading = model.encode(model.prepare(typed()), LONG)
        assert all(cuts and cuts[0].part == "state" for cuts in reading.cuts)
        assert all(len(item.payload.ids) == 256 for item in reading.items)
        assert not any(model.encode(model.prepare(typed()), "short").cuts)


def test_a_question_longer_than_the_input_is_cut_and_says_so(opendecider: Path, laya: Path) -> None:
    for folder in (opendecider, laya):
        model = loaded(folder)
        reading = model.encode(model.prepare([Noul("Is it so? " * 500)]), "A state.")
        assert [cut.part for cut in reading.cuts[0]] == ["instructions"]
        assert len(reading.items[0].payload.ids) <= 256


def test_special_tokens_in_a_text_are_text(opendecider: Path) -> None:
    model = loaded(opendecider)
    reading = model.encode(model.prepare(typed()), "[MASK] [SEP] [CLS]")
    for item, question in zip(reading.items, typed(), strict=True):
        mask = model.vocabulary.id_of("mask_token")
        assert (item.payload.ids == mask).sum() == len(question.keys())


def test_cards_say_what_the_models_are(opendecider: Path, laya: Path) -> None:
    nano, other = loaded(opendecider).card, loaded(laya).card
    assert (nano.name, nano.kind, nano.device) == ("tiny-nano", "opendecider", "cpu")
    assert "256 tokens" in nano.description
    assert "float32" in nano.provenance
    assert other.kind == "laya"
    assert "temperatures of the checkpoint" in other.provenance
    assert other.max_options == 61
