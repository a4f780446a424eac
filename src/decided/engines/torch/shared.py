"""Causal attention over a packed batch in which questions share the states they are about.

    [state 1][state 2] [question about 1][question about 1][question about 2] [question about a state known before]

A state's tokens see the state up to themselves; a question's tokens see all of their state, and their question up to
themselves. So a state is read once, however many questions there are about it, and not at all when it is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from decided.engines.torch.attention import Segments, varlen
from decided.engines.torch.states import KnownState
from decided.engines.torch.transfer import Ints


@dataclass
class Sheet:
    """A state in a batch, and where its questions stand."""

    known: KnownState
    start: int | None
    """Where the state stands in the batch; None when it was read before."""
    questions: list[slice] = field(default_factory=list)
    keep: bool = False


@dataclass
class Plan:
    """Who sees whom in one batch. The numbers for the flash kernel are on the device."""

    sheets: list[Sheet]
    own: Segments
    """All states and questions, each as a sequence."""
    asked_from: int
    """Where the questions begin: behind all states."""
    asked: Tensor
    known: Tensor
    """Where each sheet's questions begin, and where its state's keys begin, in int32."""
    most_asked: int
    most_known: int
    keeps: bool
    """Whether some of the states that are read are to be kept."""
    memory: Tensor | None = None
    """Keys and values of all states read in this batch, by layer."""

    def remember(self, layer: int, layers: int, keys: Tensor, values: Tensor) -> None:
        if self.memory is None:
            self.memory = keys.new_empty((layers, 2, self.asked_from, *keys.shape[1:]))
        self.memory[layer, 0] = keys[: self.asked_from]
        self.memory[layer, 1] = values[: self.asked_from]

    def keep(self) -> None:
        """Give each state its own memory: what is kept must not hold on to that of its neighbours."""
        for sheet in self.sheets:
            if self.memory is not None and sheet.keep and sheet.start is not None:
                sheet.known.memory = self.memory[:, :, sheet.start : sheet.start + sheet.known.length].clone()


def edges(lengths: Sequence[int]) -> Ints:
    found = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=found[1:])
    return found


class Unserved(Exception):
    """The model asks of attention what this cannot give."""


class SharedAttention:
    """In the form in which transformers calls an attention function."""

    def __init__(self, flash: bool, layers: int) -> None:
        self.flash = flash
        self.plan: Plan | None = None
        self._layers = layers

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *,
        scaling: float | None = None, sliding_window: int | None = None, **more: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        plan = self.plan
        if plan is None or any(more.get(name) is not None for name in ("softcap", "s_aux")):
            raise Unserved("attention with a cap or a sink")
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        if plan.keeps:
            plan.remember(module.layer_idx, self._layers, k, v)
        whole = plan.most_known + plan.own.longest
        if self.flash and (sliding_window is None or whole <= sliding_window):
            out = _flash(q, k, v, plan, module.layer_idx, scaling)
        else:
            out = _plain(q, k, v, plan, module.layer_idx, scaling, sliding_window)
        return out[None], None


def _plain(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, layer: int, scaling: float | None, window: int | None
) -> Tensor:
    out = torch.empty_like(q)
    for sheet in plan.sheets:
        if sheet.start is not None:
            part = slice(sheet.start, sheet.start + sheet.known.length)
            out[part] = _dense(q[part], k[part], v[part], scaling, window)
        keys, values = sheet.known.of(layer) if sheet.start is None else (k[part], v[part])
        for part in sheet.questions:
            out[part] = _dense(q[part], torch.cat((keys, k[part])), torch.cat((values, v[part])), scaling, window)
    return out


def _dense(q: Tensor, k: Tensor, v: Tensor, scaling: float | None, window: int | None) -> Tensor:
    """The queries are the last tokens of the keys; each sees those before it, or the last `window` of them."""
    before = len(k) - len(q)
    near = None
    if before or window is not None:
        distance = torch.arange(before, len(k), device=q.device)[:, None] - torch.arange(len(k), device=q.device)
        near = (distance >= 0) if window is None else (distance >= 0) & (distance < window)
    mixed = F.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)),
        attn_mask=near, is_causal=near is None, scale=scaling, enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return mixed[0].transpose(0, 1)


def _flash(q: Tensor, k: Tensor, v: Tensor, plan: Plan, layer: int, scaling: float | None) -> Tensor:
    """Each sequence by itself, then the questions over their states, and the two mixed by how much they weigh."""
    starts, longest = plan.own.starts, plan.own.longest
    own, own_weight = varlen(q, k, v, starts, starts, longest, longest, (-1, 0), scaling)
    asked = slice(plan.asked_from, None)
    read = slice(0, plan.asked_from)
    known = [sheet.known.of(layer) for sheet in plan.sheets if sheet.start is None]  # behind those that are read
    keys, values = (
        torch.cat([new[read], *(each[side] for each in known)]) if known else new[read]
        for side, new in enumerate((k, v))
    )
    far, far_weight = varlen(
        q[asked], keys, values, plan.asked, plan.known, plan.most_asked, plan.most_known, (-1, -1), scaling
    )
    share = torch.sigmoid(far_weight - own_weight[asked])[..., None].to(q.dtype)
    own[asked] = torch.lerp(own[asked], far, share)
    return own
