"""A causal language model that is asked for one letter: prompts in tokens to a logit for each letter.

Any decoder that transformers knows. Where its layers let us, prompts run packed and share what was computed for their
state; a check at the start finds out, and where they do not, prompts run whole, in padded rows.
"""

import logging
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decided.engines.torch.attention import Segments, has_flash, takes
from decided.engines.torch.cuda_graphs import MOST_ROWS, CudaGraphCache
from decided.engines.torch.fusion import fuse_layers, fuse_mix, mix_parts
from decided.engines.torch.kv_cache import CachedState, KvCache, Shelf, gather
from decided.engines.torch.packing import Layout, Prompt, lay_out, pick_rows, target_rows
from decided.engines.torch.placement import Placement
from decided.engines.torch.shared_attention import AttentionPlan, SharedAttention
from decided.engines.torch.transfer import Floats, Ints, to_device, to_host

log = logging.getLogger("decided.engines")

_LEAST_FEATURES = 512
_STATES_ON_CPU = 2**30
_STATES_ON_GPU = 0.25
"""Of the memory that is free once the model is loaded."""


Read = Callable[[Tensor, Tensor], Tensor]
"""From the logits at the tokens picked, and the tokens that come next there, to what is brought back."""


class Decoder:
    def __init__(self, network: Any, placement: Placement, spellings: Sequence[Sequence[int]]) -> None:
        from transformers import AttentionInterface

        self._network = network.to(placement.device).eval().requires_grad_(False)
        self._placement = placement
        config = network.config.get_text_config()
        self._layers = int(config.num_hidden_layers)
        self.context = int(getattr(config, "max_position_embeddings", 0) or 2048)
        heads = int(getattr(config, "num_attention_heads", 1))
        width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        self.states = KvCache(0, 1)
        self._letters, self._unspelled = self._table(spellings)
        self._picks = takes(network.forward, "logits_to_keep")
        flash = has_flash(placement.device, placement.dtype, heads, width)
        self._attention = SharedAttention(flash, fuse_mix(placement, heads, width) if flash else mix_parts)
        self._compiles = self._attention.mix is not mix_parts
        self._recorder = CudaGraphCache() if flash else None
        self._window = getattr(config, "sliding_window", None) or sys.maxsize
        forget = self._recorder.clear if self._recorder else lambda: None
        self._of_batch, self._of_earlier = (Shelf(self._empty, forget) for _ in range(2))
        self._name = f"decided_{id(self)}"
        apart = torch.compiler.disable(self._attention) if self._compiles else self._attention
        AttentionInterface.register(self._name, apart)
        self.packed = self._can_be_packed()

    def letters(self, prompts: Sequence[Prompt]) -> Callable[[], Floats]:
        """Start one batch; what is returned waits for it and gives a logit for each prompt and letter."""
        with torch.inference_mode():
            return to_host(self._placement, self._answers(prompts, self._score_letters))

    def said(self, prompts: Sequence[Prompt]) -> Callable[[], Floats]:
        """Start one batch; what is returned gives the logarithm of the probability of each prompt's words."""
        starts = np.cumsum([0, *(prompt.reads for prompt in prompts[:-1])])
        with torch.inference_mode():
            wait = to_host(self._placement, self._answers(prompts, _score_followers))
        return lambda: np.add.reduceat(wait(), starts)

    def mass(self, prompt: Prompt, count: int) -> float:
        """How much of the probability of the next token stands on the first `count` letters."""
        with torch.inference_mode():
            logits = self._answers([prompt], _as_they_are).float()
            spelled = logits[:, self._letters[:count]] + self._unspelled[:count]
            return float((torch.logsumexp(spelled.flatten(1), -1) - torch.logsumexp(logits, -1)).exp())

    def describe(self, states: Sequence[tuple[bytes, Ints]], start: int) -> Callable[[], Floats]:
        """For each state, the mean of its tokens' values from `start` on, in layers of the middle: they are kept for
        the next question anyway. Of a long state it is the first part, which no question leaves out."""
        end = start + self.context // 4
        found = [self._values(key, ids[:end])[start:].mean(0, dtype=torch.float32) for key, ids in states]
        return to_host(self._placement, torch.stack(found))

    def _values(self, key: bytes, ids: Ints) -> Tensor:
        """By token, for as many layers as make a vector of some width."""
        known = self.states.find(key)
        if known is None:  # no room was left for it
            own = KvCache(len(ids), 1)
            self._packed([Prompt(key, ids, ids[-1:])], _as_they_are, own)
            known = own.find(key) or CachedState(0)
        top = max(1, 2 * self._layers // 3)
        count = -(-_LEAST_FEATURES // math.prod(self._attention.of_token))
        return known.whole()[max(0, top - count) : top, 1, : len(ids)].transpose(0, 1).flatten(1)

    def forget(self) -> None:
        """Let go of all memory that can be had again."""
        self.states.clear()
        self._of_batch.clear()
        self._of_earlier.clear()

    def _answers(self, prompts: Sequence[Prompt], read: Read) -> Tensor:
        found = self._packed(prompts, read) if self.packed else self._padded(prompts, read)
        return found[: sum(prompt.reads for prompt in prompts)]

    def _score_letters(self, logits: Tensor, targets: Tensor) -> Tensor:
        """A logit for each letter, however it may be spelled."""
        return torch.logsumexp(logits[:, self._letters].float() + self._unspelled, dim=-1)

    # --- packed: states once, questions behind them ---

    def _packed(self, prompts: Sequence[Prompt], read: Read, states: KvCache | None = None) -> Tensor:
        """What `read` makes of the logits behind each prompt; recorded, there are some more rows behind them."""
        layout = lay_out(prompts, self.states if states is None else states)
        try:
            if self._recorder is not None and self._may_be_recorded(rounded := layout.rounded_up()):
                layout = rounded
                memory, earlier = self._of_batch.take(layout.tokens), self._of_earlier.take(layout.earlier)
                recorder = self._recorder
            else:
                memory, earlier = (self._empty(size) for size in (layout.tokens * layout.keeps, layout.earlier))
                recorder = None
            gather((sheet.known for sheet in layout.sheets if sheet.start is None), earlier)
            arrays = to_device(self._placement, *layout.arrays)
            run = partial(self._run_packed, layout, memory, earlier, read)
            found = recorder.run((read, layout.shape), run, *arrays) if recorder else run(*arrays)
            for sheet in layout.sheets:  # what is kept must not hold on to the memory of its neighbours
                if sheet.keep and sheet.start is not None:
                    sheet.known.memory = memory[:, :, sheet.start : sheet.start + sheet.known.length].clone()
            return found
        except Exception:
            self.states.clear()  # some of what was to be kept may be half read
            raise

    def _run_packed(self, layout: Layout, memory: Tensor, earlier: Tensor, read: Read, *arrays: Tensor) -> Tensor:
        ids, positions, picks, targets, own, queries, keys = arrays
        self._attention.plan = AttentionPlan(
            layout.sheets, Segments(layout.lengths, own, layout.longest), queries, keys, layout.most_queries,
            layout.most_keys, earlier if layout.earlier else None, memory if layout.keeps else None,
        )  # fmt: skip
        try:
            # Compiled layers ask where in memory the positions stand: in memory of their own, always at its beginning.
            inputs = {"input_ids": ids[None], "position_ids": positions[None].clone()}
            return read(self._run(inputs, picks)[0], targets)
        finally:
            self._attention.plan = None

    def _empty(self, tokens: int) -> Tensor:
        """Memory for keys and values."""
        of_layers = (self._layers, 2, tokens, *self._attention.of_token)
        return torch.empty(of_layers, dtype=self._placement.dtype, device=self._placement.device)

    def _may_be_recorded(self, layout: Layout) -> bool:
        if not self._attention.of_token or max(layout.tokens, layout.earlier) > MOST_ROWS:
            return False
        return layout.most_keys + layout.longest <= self._window  # else some layers need what only the host can tell

    # --- padded: every prompt whole ---

    def _padded(self, prompts: Sequence[Prompt], read: Read) -> Tensor:
        rows = [np.concatenate((prompt.state, prompt.behind)) for prompt in prompts]
        longest = max(map(len, rows))
        ids, mask = (np.zeros((len(rows), longest), np.int32) for _ in range(2))
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        columns, of_picks = np.unique(pick_rows(prompts, [len(row) for row in rows]), return_inverse=True)
        of_rows = np.repeat(np.arange(len(rows)), [prompt.reads for prompt in prompts])
        arrays = (ids.ravel(), mask.ravel(), columns, of_picks, of_rows, target_rows(prompts))
        on_device = to_device(self._placement, *arrays)
        inputs = {"input_ids": on_device[0].view(ids.shape), "attention_mask": on_device[1].view(mask.shape)}
        logits = self._run(inputs, on_device[2])
        return read(logits[on_device[4], on_device[3]], on_device[5])

    def _run(self, inputs: dict[str, Tensor], picks: Tensor) -> Tensor:
        """Logits at the tokens picked: [rows, picks, vocabulary]."""
        if self._picks:
            logits: Tensor = self._network(**inputs, use_cache=False, logits_to_keep=picks.long()).logits
            return logits
        everywhere: Tensor = self._network(**inputs, use_cache=False).logits
        return everywhere[:, picks]

    # --- once, at the start ---

    def _can_be_packed(self) -> bool:
        """Whether packed prompts get the same answers as whole ones; without the flash kernel if need be."""
        draw = np.random.default_rng(0)
        states, rests = (
            [draw.integers(0, 100, length).astype(np.int32) for length in lengths] for lengths in ((7, 12), (5, 6, 9))
        )
        pairs = ((0, 0), (1, 1), (0, 2), (1, 0))
        prompts = [Prompt(states[s].tobytes(), states[s], rests[r]) for s, r in pairs]
        self._plain_attention()
        with torch.inference_mode():
            wanted = torch.log_softmax(self._padded(prompts, _as_they_are).float(), -1)
            for flash, compiled in self._ways():
                self._attention.flash = flash
                fuse_layers(self._network, self._layers, compiled)
                if self._agrees(prompts, wanted):
                    return True
                fuse_layers(self._network, self._layers, False)
        log.warning("this model's layers cannot share a state between questions: each question is read whole")
        self._plain_attention()
        return False

    def _ways(self) -> list[tuple[bool, bool]]:
        """With the flash kernel or not, with compiled layers or not: the fastest first."""
        fast = [(True, True), (True, False)] if self._compiles else [(True, False)]
        return [*fast, (False, False)] if self._attention.flash else [(False, False)]

    def _plain_attention(self) -> None:
        try:
            self._network.set_attn_implementation("sdpa")
        except ValueError:  # an old family, which has but one way
            self._network.set_attn_implementation("eager")

    def _agrees(self, prompts: Sequence[Prompt], wanted: Tensor) -> bool:
        tolerance = 1e-3 if self._placement.dtype is torch.float32 else 0.1
        try:
            self._network.set_attn_implementation(self._name)
            self.states = KvCache(0, 1)
            for number in range(7):  # nothing kept; then, new states and known ones, launched, recorded and replayed
                if number == 1:
                    self.states = self._room_for_states()
                if number == 4:
                    self.states.clear()
                found = torch.log_softmax(self._packed(prompts, _as_they_are)[: len(prompts)].float(), -1)
                if not (found.exp() - wanted.exp()).abs().max() < tolerance:
                    return False
        except Exception as error:
            log.info("packed prompts fail: %r", error)
            return False
        finally:
            self.forget()
        return True

    def _room_for_states(self) -> KvCache:
        free = torch.cuda.mem_get_info()[0] * _STATES_ON_GPU if self._placement.on_gpu else _STATES_ON_CPU
        return KvCache(int(free), self._empty(1).nbytes)

    def _table(self, spellings: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Token ids by letter and spelling, and minus infinity where a letter has fewer spellings than others."""
        width = max(map(len, spellings))
        ids = np.zeros((len(spellings), width), np.int64)
        missing = np.full((len(spellings), width), -np.inf, np.float32)
        for letter, tokens in enumerate(spellings):
            ids[letter, : len(tokens)], missing[letter, : len(tokens)] = tokens, 0.0
        return torch.from_numpy(ids).to(self._placement.device), torch.from_numpy(missing).to(self._placement.device)


def _as_they_are(logits: Tensor, targets: Tensor) -> Tensor:
    return logits


def _score_followers(logits: Tensor, targets: Tensor) -> Tensor:
    """The logarithm of the probability of each target."""
    chosen = logits.gather(-1, targets.long()[:, None])[:, 0].float()
    return chosen - torch.logsumexp(logits.float(), dim=-1)
