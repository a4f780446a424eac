"""The decision network: a BERT-style encoder in which questions read the state and the state never reads a question.

Who sees whom (within one row): a state token its own window; an instruction token the state and the instructions; an
option token also its own option; an option's marker also the other markers. One logit per marker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from training.architecture import DISTANCES, POSITIONS, Architecture
from training.batches import BLOCK, ROOM, Batch, Shape
from training.weights import Arrays, load


def visible(own: Tensor, reads: Tensor, given: Tensor, mark: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The attention rule above: may token q see token k?"""
    read = reads[q]
    return (own[q] == own[k]) | (read == given[k]) | (read & -ROOM == given[k]) | (mark[q] == mark[k])


def who_sees(slot: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the rule asks of each token."""
    return slot["own"], slot["reads"], slot["given"], slot["mark"]


def _after(x: Tensor, y: Tensor, w: list[Tensor], epsilon: float, rate: float, training: bool) -> Tensor:
    """Everything after attention: projection, residual, norm, feed-forward, residual, norm."""
    shape = (x.shape[-1],)
    x = F.layer_norm(x + F.dropout(F.linear(y, w[0], w[1]), rate, training), shape, w[2], w[3], epsilon)
    inner = F.gelu(F.linear(x, w[4], w[5]))
    return F.layer_norm(x + F.dropout(F.linear(inner, w[6], w[7]), rate, training), shape, w[8], w[9], epsilon)


class Squares(NamedTuple):
    """How the sparse attention goes over the pairs of tokens: in squares of so many tokens, and whether those that are
    seen whole are spared the rule. A kernel takes whole squares, so small ones leave out more of what nobody sees."""

    size: int
    full: bool = True


LARGE = Squares(128)


def pooled(blocks: Tensor, times: int, whole: bool) -> Tensor:
    """Squares of so many blocks a side: those of which a block, or the whole of them, is marked."""
    parts = blocks.unflatten(1, (-1, times)).unflatten(0, (-1, times))
    return parts.all(3).all(1) if whole else parts.any(3).any(1)


class Kernels:
    """The two hot functions: compiled with block-sparse attention on a GPU, plain and dense elsewhere."""

    def __init__(self, device: torch.device, shape: Shape, squares: Squares = LARGE) -> None:
        self.device, self.shape, self.squares = device, shape, squares
        self.after: Callable[..., Tensor] = _after
        self.slot: Batch = {}
        self.mask: Any = None
        self.blocks: list[Tensor] = []
        self._moved: dict[int, Callable[..., Tensor]] = {}
        self._biases: dict[int, Tensor] = {}
        if device.type == "cuda":
            from torch.nn.attention.flex_attention import flex_attention

            self.after = torch.compile(_after, dynamic=False)
            # For small squares the default tiles are too large; of those that fit the fastest is taken.
            options: dict[str, Any] = {"max_autotune": squares.size < LARGE.size}
            self._flex = torch.compile(flex_attention, dynamic=False, options=options)

    def load(self, batch: Batch) -> Batch:
        """The batch on the device, in the same memory every time: the compiled mask reads it from there."""
        if not self.slot:
            self.slot = {name: t.to(self.device) for name, t in batch.items()}
        else:
            for name, t in batch.items():
                self.slot[name].copy_(t, non_blocking=True)
        if self.device.type == "cuda":
            self._list_blocks()
        else:
            every = torch.arange(self.shape.tokens)
            self._biases.clear()
            self.mask = visible(*who_sees(self.slot), every[:, None], every[None])
        return self.slot

    def _list_blocks(self) -> None:
        """Which blocks of keys each block of queries must look at, and the other way round.

        Blocks all of whose tokens see each other need no rule.
        """
        times = self.squares.size // BLOCK
        near = pooled(self.slot["near"], times, whole=False)
        full = pooled(self.slot["full"], times, whole=True) & self.squares.full
        found = []
        for pairs in (near & ~full, full):
            for way in (pairs, pairs.T):
                found.append(way.sum(1, dtype=torch.int32)[None, None])
                found.append(way.int().argsort(dim=1, descending=True, stable=True).int()[None, None].contiguous())
        if self.blocks:
            torch._foreach_copy_(self.blocks, found)
        else:
            self.blocks = found
            self.mask = self._block_mask()

    def _block_mask(self) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        tokens = self.shape.tokens
        own, reads, given, mark = who_sees(self.slot)
        some, some_q, full, full_q = (self.blocks[i : i + 2] for i in range(0, 8, 2))

        def rule(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return visible(own, reads, given, mark, q, k)

        return BlockMask(
            seq_lengths=(tokens, tokens), kv_num_blocks=some[0], kv_indices=some[1], full_kv_num_blocks=full[0],
            full_kv_indices=full[1], q_num_blocks=some_q[0], q_indices=some_q[1], full_q_num_blocks=full_q[0],
            full_q_indices=full_q[1], BLOCK_SIZE=(self.squares.size, self.squares.size), mask_mod=rule,
        )  # fmt: skip

    def _mover(self, relative: Tensor) -> Callable[..., Tensor]:
        """The rule that adds the bias of two positions to their score, one for each table."""
        place = self.slot["position"]

        def moved(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score + relative[h, place[q] - place[k] + (POSITIONS - 1)]

        return self._moved.setdefault(relative.data_ptr(), moved)

    def _masked_bias(self, relative: Tensor) -> Tensor:
        """What is added to the scores where there is no compiled rule: made once a batch, for all layers."""
        key, place = relative.data_ptr(), self.slot["position"]
        if key not in self._biases:
            bias = relative[:, place[:, None] - place[None] + (POSITIONS - 1)]
            self._biases[key] = bias.masked_fill(~self.mask, -torch.inf)[None]
        return self._biases[key]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, relative: Tensor | None) -> Tensor:
        """q, k, v of shape [1, heads, tokens, width]; relative of shape [heads, distances]."""
        if self.device.type == "cuda":
            moved = None if relative is None else self._mover(relative)
            out: Tensor = self._flex(q, k, v, score_mod=moved, block_mask=self.mask)
            return out
        if relative is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self._masked_bias(relative))


class Layer(nn.Module):
    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.a = a
        self.qkv = nn.Linear(a.hidden, 3 * a.hidden)
        self.out = nn.Linear(a.hidden, a.hidden)
        self.norm1 = nn.LayerNorm(a.hidden, a.epsilon)
        self.up = nn.Linear(a.hidden, a.inner)
        self.down = nn.Linear(a.inner, a.hidden)
        self.norm2 = nn.LayerNorm(a.hidden, a.epsilon)

    def forward(self, x: Tensor, kernels: Kernels, relative: Tensor | None, rate: float) -> Tensor:
        a, tokens = self.a, x.shape[0]
        q, k, v = self.qkv(x).view(1, tokens, 3, a.heads, a.width).permute(2, 0, 3, 1, 4).unbind(0)
        y = kernels.attend(q, k, v, relative).transpose(1, 2).reshape(tokens, a.hidden)
        parts = (self.out, self.norm1, self.up, self.down, self.norm2)
        return kernels.after(x, y, [t for p in parts for t in (p.weight, p.bias)], a.epsilon, rate, self.training)


class Network(nn.Module):
    def __init__(self, a: Architecture, dropout: float = 0.0) -> None:
        super().__init__()
        self.architecture, self.dropout = a, dropout
        self.word = nn.Parameter(torch.randn(a.vocabulary, a.hidden) * 0.02)
        self.position = nn.Parameter(torch.randn(POSITIONS, a.hidden) * 0.02)
        self.segment = nn.Parameter(torch.randn(2, a.hidden) * 0.02)
        self.relative: Tensor | None
        self.register_buffer("relative", torch.randn(a.heads, DISTANCES) if a.relative else None)
        self.norm = nn.LayerNorm(a.hidden, a.epsilon)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.head = nn.Sequential(
            nn.Linear(a.hidden, a.hidden), nn.GELU(), nn.LayerNorm(a.hidden), nn.Linear(a.hidden, 1)
        )

    def forward(self, batch: Batch, kernels: Kernels) -> Tensor:
        """Logits of the batch's markers, float32."""
        zero, one = self.segment
        x = F.embedding(batch["ids"], self.word) + F.embedding(batch["position"], self.position)
        x = self.norm(x + zero + batch["segment"][:, None] * (one - zero))
        rate = self.dropout if self.training else 0.0
        x = F.dropout(x, rate, self.training)
        for layer in self.layers:
            x = layer(x, kernels, self.relative, rate)
        logits: Tensor = self.head(x.index_select(0, batch["mark_at"])).squeeze(-1)
        return logits.float()

    def load_arrays(self, arrays: Arrays) -> list[str]:
        """Takes weights by name and returns the names that were not given."""
        missing = []
        with torch.no_grad():
            for name, tensor in self.state_dict().items():
                if name in arrays:
                    tensor.copy_(torch.from_numpy(np.asarray(arrays[name], np.float32)))
                else:
                    missing.append(name)
        return missing


def log_softmax(logits: Tensor, batch: Batch) -> Tensor:
    """Log-probabilities over the options of each row, flat over all markers."""
    row, rows = batch["mark_row"], batch["row_kind"].shape[0]
    top = torch.full((rows,), -1e30, device=logits.device).scatter_reduce(0, row, logits.detach(), "amax")
    shifted = logits - top[row]
    total = torch.zeros(rows, device=logits.device).index_add(0, row, shifted.exp())
    return shifted - total.log()[row]


def restored(path: Path, dropout: float = 0.0) -> Network:
    """A network with all its weights from a file that training wrote."""
    architecture, arrays = load(path)
    net = Network(architecture, dropout)
    if missing := net.load_arrays(arrays):
        raise SystemExit(f"{path} has no {', '.join(missing)}")
    return net
