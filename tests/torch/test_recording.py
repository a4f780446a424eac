"""Batches in rounded shapes, as recorded launches need them: what is added to fill them up changes no answer.

A CUDA graph cannot be recorded here. Everything around it can be run: the rounding, the shelves that stay where they
are, and the order in which inputs are put into their places (`tests/torch/test_gpu.py` records on a real device).
"""

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from decided.engines import api as engine
from decided.engines.torch.cuda_graphs import fill_up, round_up, round_up_by_doubling
from decided.engines.torch.kv_cache import KvCache
from decided.engines.torch.packing import Prompt, lay_out
from decided.settings import Settings
from tests.conformance import decide
from tests.support.questions import LONG, STATES, typed
from tests.torch import checkpoints, kernel

pytestmark = pytest.mark.torch

EQUAL = 1e-4


class Rerunner:
    """A recorder that records nothing: inputs go into places that stay, and the first function for a shape is run
    again, as a recording would be, whatever function comes with the same shape later."""

    def __init__(self) -> None:
        self.shapes: dict[Hashable, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {}
        self.runs = 0

    def run(self, key: Hashable, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        self.runs += 1
        first, slots = self.shapes.setdefault(key, (function, tuple(each.clone() for each in inputs)))
        for slot, each in zip(slots, inputs, strict=True):
            slot.copy_(each)
        return first(*slots)

    def clear(self) -> None:
        self.shapes.clear()


def loaded(folder: Path | str) -> Any:
    return engine.load(Settings(model=str(folder), device="cpu"))


def same(ours: list[Any], theirs: list[Any]) -> None:
    for here, there in zip(ours, theirs, strict=True):
        for one, other in zip(here, there, strict=True):
            assert one == pytest.approx(other, abs=EQUAL)


@pytest.mark.parametrize("family", ["opendecider", "laya"])
def test_an_encoder_gives_the_same_answers_in_rounded_shapes(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(getattr(checkpoints, family)(tmp_path))
    batches = [[*STATES, LONG], STATES, STATES[::-1], [LONG, LONG], STATES[:1]]
    wanted = [decide(model, states, typed(), True) for states in batches]
    monkeypatch.setattr("decided.engines.torch.attention.varlen", kernel.varlen)
    model.attention.flash, model.recorder = True, Rerunner()
    for _ in range(2):
        for states, answers in zip(batches, wanted, strict=True):
            same(decide(model, states, typed(), True), answers)
    assert model.recorder.runs == 2 * len(batches)
    assert len(model.recorder.shapes) < len(batches)  # two of them have one shape


@pytest.mark.parametrize("kind", ["causal", "worded"])
def test_a_decoder_gives_the_same_answers_in_rounded_shapes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(f"{kind}:{checkpoints.decoder(tmp_path, 'qwen3')}")
    batches = [STATES, [*STATES, "a new one"], STATES[:1], ["another", *STATES], STATES]
    wanted = [decide(model, states, typed(), True) for states in batches]
    monkeypatch.setattr("decided.engines.torch.shared_attention.varlen", kernel.varlen)
    decoder = model.decoder
    decoder._attention.flash, decoder._recorder = True, Rerunner()
    for shelf in (decoder._of_batch, decoder._of_earlier):
        shelf._moved = decoder._recorder.clear
    for forgets in (True, False, True, True):  # states that are new, known, and both
        if forgets:
            decoder.states.clear()
        for states, answers in zip(batches, wanted, strict=True):
            same(decide(model, states, typed(), True), answers)
    assert decoder._recorder.runs >= 4 * len(batches)
    assert decoder.states.hits > 0


@given(st.integers(1, 100_000))
def test_sizes_are_rounded_up_a_little_and_powers_of_two_stay(count: int) -> None:
    assert count <= round_up(count) <= max(64, count * (9 / 8 if count > 4096 else 5 / 4))
    assert round_up(round_up(count)) == round_up(count)
    assert count <= round_up_by_doubling(count) < 2 * count
    assert round_up(1 << 14) == round_up_by_doubling(1 << 14) == 1 << 14
    assert round_up_by_doubling(0) == 0
    assert round_up_by_doubling(3, least=128) == 128


def test_few_sizes_stand_for_many() -> None:
    assert len({round_up(count) for count in range(1, 16_385)}) < 45


def test_an_array_is_filled_with_its_last_number() -> None:
    assert fill_up(np.array([1, 5], np.int32), 4).tolist() == [1, 5, 5, 5]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=4)), min_size=1,
                     max_size=6),
    known=st.integers(0, 6),
)  # fmt: skip
def test_every_question_finds_its_state(lengths: list[tuple[int, list[int]]], known: int) -> None:
    """Whichever states were read before, in the layout and in its rounded form: the stretches of queries and keys lead
    each question to the keys of its own state."""
    draw = np.random.default_rng(0)
    states = KvCache(10_000, 1)
    prompts = []
    for number, (length, questions) in enumerate(lengths):
        state = np.full(length, number, np.int32)
        for size in questions:
            rest, said = draw.integers(100, 200, size, np.int32), draw.integers(200, 300, size % 3, np.int32)
            prompts.append(Prompt(bytes([number]), state, rest, said))
    before = [prompt for prompt in prompts if prompt.key[0] < known]
    if before:
        lay_out(before, states)
    plain = lay_out(prompts, states)
    for layout in (plain, plain.rounded_up()):
        earlier = [sheet.known.length for sheet in layout.sheets if sheet.start is None]
        of_known = list(range(min(known, len(lengths))))
        keys = np.concatenate([layout.ids, *(np.full(size, n) for n, size in zip(of_known, earlier, strict=True))])
        assert len(layout.queries) == len(layout.keys)
        assert all(len(array) >= 1 for array in layout.arrays)
        places = np.split(layout.picks, np.cumsum([prompt.reads for prompt in prompts]))
        for (*_, pick), prompt in zip(places, prompts, strict=False):
            stretch = int(np.searchsorted(layout.queries, pick, "right")) - 1
            seen = keys[layout.keys[stretch] : layout.keys[stretch + 1]]
            assert seen.tolist() == prompt.state.tolist()
            assert len(seen) <= layout.most_keys
            assert layout.queries[stretch + 1] - layout.queries[stretch] <= layout.most_queries
            assert layout.positions[pick] == len(prompt.state) + len(prompt.behind) - 1
            assert layout.ids[pick + 1 - len(prompt.behind) : pick + 1].tolist() == prompt.behind.tolist()
