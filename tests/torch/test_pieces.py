"""However many options a question has, and however often it is asked: no run takes much more than the token budget."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided.contract.types import Choice, Question
from decided.engines.api import Item, More, run_to_end
from decided.engines.torch import causal, nli, worded
from decided.engines.torch.base import TorchModel
from decided.errors import DeviceLost
from decided.settings import Settings
from tests.support.questions import STATES, typed
from tests.torch import checkpoints

pytestmark = pytest.mark.torch

MANY: list[Question] = [Choice({f"order {number}": "a thing" for number in range(60)}, "Which order is it?")]


def made(kind: str, folder: Path) -> TorchModel:
    if kind == "nli":
        checkpoints.cross_encoder(folder, "bert", ("contradiction", "neutral", "entailment"))
        return nli.load(str(folder), Settings(device="cpu"))
    checkpoints.decoder(folder, "qwen3")
    load = causal.load if kind == "causal" else worded.load
    return load(str(folder), Settings(device="cpu"))


@pytest.mark.parametrize("kind", ["nli", "causal", "worded"])
def test_a_question_with_many_options_runs_in_pieces_with_the_same_answer(kind: str, tmp_path: Path) -> None:
    model = made(kind, tmp_path)
    model.token_budget = 100_000
    whole = run_to_end(model, model.encode(model.prepare(MANY), STATES[0]).items)
    model.token_budget = 512
    (item,) = model.encode(model.prepare(MANY), STATES[0]).items
    longest = 512 + len(getattr(item.payload, "state", ()))
    costs, result = [item.cost], model.run([item])[0]
    while isinstance(result, More):
        costs.append(result.cost)
        result = model.run([item])[0]
    assert len(costs) > 3
    assert max(costs) <= longest
    assert result[0] == pytest.approx(whole[0][0], abs=1e-4)
    assert run_to_end(model, [item])[0][0] == pytest.approx(whole[0][0], abs=1e-4)  # nothing is left of the first time


def test_a_device_that_refuses_everything_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("nli", tmp_path)
    items = model.encode(model.prepare(typed()), STATES[0]).items

    def broken(items: list[Item]) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    model.forward = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(RuntimeError):
        model.run(items)
    monkeypatch.setattr(type(model.placement), "on_gpu", True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.raises(RuntimeError):
        model.run(items)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: broken([]))
    with pytest.raises(DeviceLost):
        model.run(items)
