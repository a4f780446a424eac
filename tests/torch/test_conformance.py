"""The shared conformance test on every kind that needs PyTorch, and out-of-memory, provoked."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided.engines import api as engine
from decided.engines.api import KINDS, Item
from decided.settings import Settings
from tests import conformance
from tests.support.questions import LONG, STATES, typed
from tests.torch import checkpoints, references

pytestmark = pytest.mark.torch

SAYS: dict[str, Callable[[Path], conformance.Says]] = {
    "opendecider": references.opendecider,
    "laya": references.laya,
    "causal": references.Lettered,
    "nli": references.cross_encoder,
    "gliclass": references.gliclass,
    "worded": references.Worded,
}
MAKERS: dict[str, Callable[[Path], Path]] = {
    "opendecider": checkpoints.opendecider,
    "laya": checkpoints.laya,
    "causal": lambda folder: checkpoints.decoder(folder, "qwen3"),
    "nli": lambda folder: checkpoints.cross_encoder(folder, "bert", ("entailment", "neutral", "contradiction")),
    "gliclass": checkpoints.gliclass,
    "worded": lambda folder: checkpoints.decoder(folder, "llama"),
}

FORCED = {"worded"}


@pytest.fixture(scope="module", params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[kind](tmp_path_factory.mktemp(kind))


@pytest.fixture(scope="module")
def model(kind: str, folder: Path) -> Any:
    forced = f"{kind}:" if kind in FORCED else ""
    model = engine.load(Settings(model=f"{forced}{folder}", device="cpu"))
    assert model.card.kind == kind  # else recognised from its files
    return model


def test_every_kind_has_a_maker() -> None:
    assert (
        set(MAKERS)
        == set(SAYS)
        == {kind for kind, module in KINDS.items() if module.startswith("decided.engines.torch.")}
    )


def test_it_conforms(model: Any, kind: str, folder: Path) -> None:
    conformance.hold(model, says=SAYS[kind](folder))


def test_it_says_what_it_is(model: Any) -> None:
    assert f"up to {model.card.max_options}" in model.card.description
    assert "tokens" in model.card.description
    assert "float32" in model.card.provenance
    assert model.card.device == "cpu"
    assert 2 <= model.card.max_options <= 256


def test_out_of_memory_is_survived(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with room for so many tokens: batches above it fail, until they are small enough."""
    states = [*STATES, LONG[:400]] * 3
    wanted = conformance.decide(model, states, typed(), together=True)
    inner = "_labels" if model.card.kind == "nli" else "forward"  # a question of many pairs is run in parts
    real, sizes = getattr(model, inner), []

    def cramped(batch: Sequence[Any]) -> Any:
        sizes.append(sum(len(each[0]) if inner == "_labels" else each.cost for each in batch))
        if sizes[-1] > 1500:
            raise torch.OutOfMemoryError("no room")
        return real(batch)

    monkeypatch.setattr(model, inner, cramped)
    model.forget()
    model.token_budget = 20_000
    found = conformance.decide(model, states, typed(), together=True)
    assert max(sizes) > 1500
    assert model.token_budget < 20_000
    for one, other in zip(found, wanted, strict=True):
        for here, there in zip(one, other, strict=True):
            assert here == pytest.approx(there, abs=conformance.ALIKE)


def test_one_question_that_fits_nowhere_fails_with_what_happened(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(items: Sequence[Item]) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(model, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        conformance.decide(model, STATES[:1], typed()[:1], together=True)
