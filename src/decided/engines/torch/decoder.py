"""A causal language model that is asked for one letter: prompts in tokens to a logit for each letter.

Any decoder that transformers knows. Where its layers let us, prompts run packed and share what was computed for their
state; a check at the start finds out, and where they do not, prompts run whole, in padded rows.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from decided.engines.torch.attention import Segments, has_flash, takes
from decided.engines.torch.placement import Placement
from decided.engines.torch.shared import Plan, SharedAttention, Sheet, edges
from decided.engines.torch.states import KnownState, States
from decided.engines.torch.transfer import Floats, Ints, fetch, ship

log = logging.getLogger("decided.engines")

_STATES_ON_CPU = 2**30
_STATES_ON_GPU = 0.25
"""Of the memory that is free once the model is loaded."""


class Prompt(NamedTuple):
    """A question about a state, in tokens: the state with all that stands before it, and the rest."""

    key: bytes
    state: Ints
    rest: Ints


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
        of_keys = int(getattr(config, "num_key_value_heads", None) or heads)
        self.states = States(self._memory_for_states(), 2 * self._layers * of_keys * width * placement.dtype.itemsize)
        self._letters, self._unspelled = self._table(spellings)
        self._picks = takes(network.forward, "logits_to_keep")
        self._attention = SharedAttention(has_flash(placement.device, placement.dtype, heads, width), self._layers)
        self._name = f"decided_{id(self)}"
        AttentionInterface.register(self._name, self._attention)
        self.packed = self._can_be_packed()

    def letters(self, prompts: Sequence[Prompt]) -> Callable[[], Floats]:
        """Start one batch; what is returned waits for it and gives a logit for each prompt and letter."""
        with torch.inference_mode():
            logits = self._packed(prompts) if self.packed else self._padded(prompts)
            spelled = logits[:, self._letters].float() + self._unspelled
            return fetch(self._placement, torch.logsumexp(spelled, dim=-1))

    def mass(self, prompt: Prompt, count: int) -> float:
        """How much of the probability of the next token stands on the first `count` letters."""
        with torch.inference_mode():
            logits = (self._packed([prompt]) if self.packed else self._padded([prompt])).float()
            spelled = logits[:, self._letters[:count]] + self._unspelled[:count]
            return float((torch.logsumexp(spelled.flatten(1), -1) - torch.logsumexp(logits, -1)).exp())

    # --- packed: states once, questions behind them ---

    def _packed(self, prompts: Sequence[Prompt]) -> Tensor:
        sheets, states, order = self._sheets(prompts)
        rests = [prompts[number].rest for number in order]
        lengths = [len(ids) for ids in (*states, *rests)]
        before = [len(prompts[number].state) for number in order]
        begins = edges(lengths)
        last = begins[len(states) + 1 :] - 1
        asked = edges([sum(part.stop - part.start for part in sheet.questions) for sheet in sheets])
        known = edges([sheet.known.length for sheet in sheets])
        ids, positions, picks, own, asked_on_device, known_on_device = ship(
            self._placement,
            np.concatenate((*states, *rests)),
            np.concatenate(
                [*(np.arange(len(ids)) for ids in states),
                 *(np.arange(start, start + len(ids)) for start, ids in zip(before, rests, strict=True))]
            ),
            last[np.argsort(order)],
            begins, asked, known,
        )  # fmt: skip
        self._attention.plan = Plan(
            sheets, Segments(lengths, own), sum(map(len, states)), asked_on_device, known_on_device,
            int(np.diff(asked).max()), int(np.diff(known).max()), any(sheet.keep for sheet in sheets),
        )  # fmt: skip
        try:
            logits = self._run({"input_ids": ids[None], "position_ids": positions[None]}, picks)[0]
            self._attention.plan.keep()
            return logits
        except Exception:
            self.states.clear()  # some of what was to be kept may be half read
            raise
        finally:
            self._attention.plan = None

    def _sheets(self, prompts: Sequence[Prompt]) -> tuple[list[Sheet], list[Ints], list[int]]:
        """The sheets, the states that must be read, and the prompts' numbers in the order in which they stand."""
        of_states: dict[bytes, list[int]] = {}
        for number, prompt in enumerate(prompts):
            of_states.setdefault(prompt.key, []).append(number)
        found = {key: self.states.find(key) for key in of_states}
        # New states first, in the order of their sheets: then their keys need not be moved for the flash kernel.
        keys = sorted(of_states, key=lambda key: found[key] is not None)
        sheets, states, start = [], [], 0
        for key in keys:
            ids = prompts[of_states[key][0]].state
            known = found[key]
            if known is not None:
                sheets.append(Sheet(known, None))
                continue
            known = KnownState(len(ids))
            sheets.append(Sheet(known, start, keep=self.states.keep(key, known)))
            states.append(ids)
            start += len(ids)
        order = [number for key in keys for number in of_states[key]]
        for key, sheet in zip(keys, sheets, strict=True):
            for number in of_states[key]:
                sheet.questions.append(slice(start, start := start + len(prompts[number].rest)))
        return sheets, states, order

    # --- padded: every prompt whole ---

    def _padded(self, prompts: Sequence[Prompt]) -> Tensor:
        rows = [np.concatenate((prompt.state, prompt.rest)) for prompt in prompts]
        longest = max(map(len, rows))
        ids, mask = (np.zeros((len(rows), longest), np.int32) for _ in range(2))
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        ends, place = np.unique([len(row) - 1 for row in rows], return_inverse=True)
        on_device = ship(self._placement, ids.ravel(), mask.ravel(), ends, place)
        inputs = {"input_ids": on_device[0].view(ids.shape), "attention_mask": on_device[1].view(mask.shape)}
        logits = self._run(inputs, on_device[2])
        return logits[torch.arange(len(rows), device=logits.device), on_device[3]]

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
            wanted = torch.log_softmax(self._padded(prompts).float(), -1)
            for flash in (True, False) if self._attention.flash else (False,):
                self._attention.flash = flash
                if self._agrees(prompts, wanted):
                    return True
        log.warning("this model's layers cannot share a state between questions: each question is read whole")
        self._plain_attention()
        return False

    def _plain_attention(self) -> None:
        try:
            self._network.set_attn_implementation("sdpa")
        except ValueError:  # an old family, which has but one way
            self._network.set_attn_implementation("eager")

    def _agrees(self, prompts: Sequence[Prompt], wanted: Tensor) -> bool:
        tolerance = 1e-3 if self._placement.dtype is torch.float32 else 0.1
        try:
            self._network.set_attn_implementation(self._name)
            for _ in range(2):  # the second time, the states are known
                found = torch.log_softmax(self._packed(prompts).float(), -1)
                if not (found.exp() - wanted.exp()).abs().max() < tolerance:
                    return False
        except Exception as error:
            log.info("packed prompts fail: %s", error)
            return False
        finally:
            self.states.clear()
        return True

    def _memory_for_states(self) -> int:
        if self._placement.on_gpu:
            return int(torch.cuda.mem_get_info()[0] * _STATES_ON_GPU)
        return _STATES_ON_CPU

    def _table(self, spellings: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Token ids by letter and spelling, and minus infinity where a letter has fewer spellings than others."""
        width = max(map(len, spellings))
        ids = np.zeros((len(spellings), width), np.int64)
        missing = np.full((len(spellings), width), -np.inf, np.float32)
        for letter, tokens in enumerate(spellings):
            ids[letter, : len(tokens)], missing[letter, : len(tokens)] = tokens, 0.0
        return torch.from_numpy(ids).to(self._placement.device), torch.from_numpy(missing).to(self._placement.device)
