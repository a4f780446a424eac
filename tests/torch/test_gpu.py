"""On a real GPU: recorded launches, compiled steps, the flash kernel, batches launched ahead, memory that runs out.

Skipped where there is none. On a machine without this project's environment:
`python -m pytest --noconftest -c /dev/null tests/torch/test_gpu.py`
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided.engines import api as engine
from decided.engines.torch.fusion import apply_gate
from decided.serving.worker import Worker
from decided.settings import Settings
from tests.conformance import decide
from tests.support.questions import LONG, STATES, typed
from tests.torch import checkpoints

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]

NEAR = 0.02
"""In bfloat16, which has three digits: sums of other lengths are rounded in another order."""


@pytest.fixture(scope="module", params=["opendecider", "causal"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    return checkpoints.opendecider(place) if request.param == "opendecider" else checkpoints.decoder(place, "qwen3")


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[Any]:
    model = loaded(folder, device="cuda")
    yield model
    model.free()


def loaded(folder: Path, **settings: Any) -> Any:
    return engine.load(Settings(model=str(folder), **settings))


def recorder_of(model: Any) -> Any:
    return model.recorder if model.card.kind == "opendecider" else model.decoder._recorder


def difference(ours: list[Any], theirs: list[Any]) -> float:
    return max(
        abs(float(one) - float(other))
        for here, there in zip(ours, theirs, strict=True)
        for mine, yours in zip(here, there, strict=True)
        for one, other in zip(mine, yours, strict=True)
    )


def test_everything_fast_is_used(model: Any) -> None:
    assert model.overlaps
    if model.card.kind == "opendecider":
        assert model.attention.flash
        assert model.encoder.steps.apply_gate is not apply_gate
    else:
        assert model.decoder.packed
        assert model.decoder._attention.flash
        assert model.decoder._compiles


def test_recorded_launches_answer_as_others_do(model: Any) -> None:
    batches = [STATES, [*STATES, LONG], [LONG], STATES[::-1], ["a new one", *STATES]]
    recorder = recorder_of(model)
    recorder.clear()
    found: list[list[Any]] = []
    for _ in range(4):  # seen, recorded, replayed
        model.forget()
        found.append([decide(model, states, typed(), True) for states in batches])
    assert recorder.works
    assert len(recorder._recordings) >= 3
    for answers in found[1:]:
        for states, first, later in zip(batches, found[0], answers, strict=True):
            assert difference(first, later) < NEAR, states


def test_in_full_precision_it_answers_as_a_cpu_does(folder: Path) -> None:
    on_cpu, on_gpu = (
        decide(loaded(folder, device=device, dtype="float32"), STATES, typed(), True) for device in ("cpu", "cuda")
    )
    assert difference(on_cpu, on_gpu) < 1e-3


def test_alone_is_as_in_company(model: Any) -> None:
    alone, together = (decide(model, [*STATES, LONG], typed(), company) for company in (False, True))
    assert difference(alone, together) < NEAR


def test_clients_at_a_time_get_their_own_answers(model: Any) -> None:
    states = [f"{number}: {state}" for number in range(40) for state in STATES]
    wanted = decide(model, states, typed(), False)

    async def main() -> list[Any]:
        worker = Worker(model, 60.0)
        await worker.start()
        verdicts = await asyncio.gather(*(worker.decide([state], typed()) for state in states))
        await worker.close()
        return [[list(weights) for weights in of_state[0].weights] for of_state in verdicts]

    assert difference(asyncio.run(main()), wanted) < NEAR


def test_memory_that_runs_out_costs_speed_and_no_answer(model: Any) -> None:
    states = [f"{number} {LONG}" for number in range(120)]
    wanted = decide(model, states, typed(), False)
    model.free()
    budget, model.token_budget = model.token_budget, 1_000_000
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 24 * 2**20) / whole)
    try:
        found = decide(model, states, typed(), True)
        assert model.token_budget < 1_000_000
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        model.free()
        model.token_budget = budget
    assert difference(found, wanted) < NEAR
