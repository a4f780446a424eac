"""Decision encoders against the packages of their authors: the same questions, the same probabilities."""

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided import engine
from decided.contract import Noul
from decided.engines.torch import attention
from decided.settings import Settings
from tests.conformance import decide
from tests.support.questions import LONG, QUESTIONS, STATES, typed
from tests.torch import checkpoints, kernel

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


def opendecider_says(folder: Path, states: list[str]) -> list[list[list[float]]]:
    import opendecider

    model = opendecider.load(str(folder), device="cpu")
    replies = [model.system_one(state, QUESTIONS)["answers"] for state in states]
    return [[list(answer["probabilities"].values()) for answer in reply.values()] for reply in replies]


def laya_says(folder: Path, states: list[str]) -> list[list[list[float]]]:
    import laya

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = laya.load(str(folder), device="cpu")
        replies = [agent.system_one(state, QUESTIONS)["answers"] for state in states]
    return [[_in_our_form(answer) for answer in reply.values()] for reply in replies]


def _in_our_form(answer: dict[str, Any]) -> list[float]:
    if answer["type"] == "noul":
        return [answer["noul"], 1 - answer["noul"]]
    return list(answer["probabilities"].values())


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a mixed batch"])
@pytest.mark.parametrize("family", ["opendecider", "laya"])
def test_probabilities_are_those_of_the_authors(family: str, together: bool, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(family)
    states = [*STATES, LONG]
    theirs = {"opendecider": opendecider_says, "laya": laya_says}[family](folder, states)
    ours = decide(loaded(folder), states, typed(), together)
    spread = 0.0
    for our_state, their_state in zip(ours, theirs, strict=True):
        for our, their in zip(our_state, their_state, strict=True):
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
        reading = model.read(model.prepare(typed()), LONG)
        assert all(cuts and cuts[0].part == "state" for cuts in reading.cuts)
        assert all(len(item.payload.ids) == 256 for item in reading.items)
        assert not any(model.read(model.prepare(typed()), "short").cuts)


def test_a_question_longer_than_the_input_is_cut_and_says_so(opendecider: Path, laya: Path) -> None:
    for folder in (opendecider, laya):
        model = loaded(folder)
        reading = model.read(model.prepare([Noul("Is it so? " * 500)]), "A state.")
        assert [cut.part for cut in reading.cuts[0]] == ["instructions"]
        assert len(reading.items[0].payload.ids) <= 256


def test_special_tokens_in_a_text_are_text(opendecider: Path) -> None:
    model = loaded(opendecider)
    reading = model.read(model.prepare(typed()), "[MASK] [SEP] [CLS]")
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
