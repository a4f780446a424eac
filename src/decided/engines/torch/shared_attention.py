"""Causal attention over a packed batch in which questions share their states (see `packing.py`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from decided.engines.torch.attention import Segments, varlen
from decided.engines.torch.packing import Sheet


@dataclass
class AttentionPlan:
    """Who sees whom in one batch."""

    sheets: Sequence[Sheet]
    own: Segments
    """All states and questions, each as a sequence."""
    queries: Tensor
    keys: Tensor
    """Where each sheet's questions begin, and where its state's keys do, in int32."""
    most_queries: int
    most_keys: int
    earlier: Tensor | None
    """Keys and values of the states read before, [layers, 2, tokens, heads, width]."""
    memory: Tensor | None
    """Where keys and values of this batch go, so that its states can be kept."""


class Unserved(Exception):
    """The model asks of attention what this cannot give."""


class SharedAttention:
    """In the form in which transformers calls an attention function."""

    def __init__(self, flash: bool, mix: Callable[..., Tensor]) -> None:
        self.flash = flash
        self.plan: AttentionPlan | None = None
        self.of_token: tuple[int, ...] = ()
        """The shape of a token's keys in a layer, heads and width: as soon as the network has run."""
        self.mix = mix

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *,
        scaling: float | None = None, sliding_window: int | None = None, **more: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        plan, layer = self.plan, module.layer_idx
        if plan is None or any(more.get(name) is not None for name in ("softcap", "s_aux")):
            raise Unserved("attention with a cap or a sink")
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        self.of_token = tuple(k.shape[1:])
        if plan.memory is not None:
            plan.memory[layer, 0], plan.memory[layer, 1] = k, v
        if self.flash and (sliding_window is None or plan.most_keys + plan.own.longest <= sliding_window):
            out = self._flash(q, k, v, plan, layer, scaling)
        else:
            out = _plain(q, k, v, plan, layer, scaling, sliding_window)
        return out[None], None

    def _flash(self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, layer: int, scaling: float | None) -> Tensor:
        """Each sequence by itself, then the questions over their states, and the two mixed by how much they weigh."""
        starts, longest = plan.own.starts, plan.own.longest
        own, own_weight = varlen(q, k, v, starts, starts, longest, longest, (-1, 0), scaling)
        if plan.earlier is not None:
            k, v = (torch.cat(both) for both in zip((k, v), plan.earlier[layer], strict=True))
        far, far_weight = varlen(q, k, v, plan.queries, plan.keys, plan.most_queries, plan.most_keys, (-1, -1), scaling)
        return self.mix(own, own_weight, far, far_weight, plan.queries[0])


def _plain(
    q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, layer: int, scaling: float | None, window: int | None
) -> Tensor:
    out = torch.empty_like(q)
    for sheet in plan.sheets:
        if sheet.start is not None:
            part = slice(sheet.start, sheet.start + sheet.known.length)
            out[part] = _dense(q[part], k[part], v[part], scaling, window)
        keys, values = sheet.known.whole()[layer] if sheet.start is None else (k[part], v[part])
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
