"""The decision network: a BERT-style encoder in which questions read the state and the state never reads a question.

Who sees whom (within one row): a state token its own window; an instruction token the state and the instructions; an
option token also its own option; an option's marker also the other markers. One logit per marker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from training.batches import BLOCK, Batch, Shape

HIDDEN, INNER, HEADS, LAYERS = 384, 1536, 12, 12
VOCABULARY, POSITIONS = 30522, 512
EPSILON = 1e-12

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def _visible(doc_q: Tensor, doc_k: Tensor, part_q: Tensor, part_k: Tensor, mark_q: Tensor, mark_k: Tensor) -> Tensor:
    """The attention rule above, elementwise."""
    own = part_q == part_k
    reads = own | (part_k <= 0) | ((mark_q + mark_k) == 2)
    return (doc_q == doc_k) & torch.where(part_q < 0, own, reads)


def _after(x: Tensor, y: Tensor, w: list[Tensor], rate: float, training: bool) -> Tensor:
    """Everything after attention: projection, residual, norm, feed-forward, residual, norm."""
    shape = (HIDDEN,)
    x = F.layer_norm(x + F.dropout(F.linear(y, w[0], w[1]), rate, training), shape, w[2], w[3], EPSILON)
    inner = F.gelu(F.linear(x, w[4], w[5]))
    return F.layer_norm(x + F.dropout(F.linear(inner, w[6], w[7]), rate, training), shape, w[8], w[9], EPSILON)


class Kernels:
    """The two hot functions: compiled with block-sparse attention on a GPU, plain and dense elsewhere."""

    def __init__(self, device: torch.device, shape: Shape) -> None:
        self.device, self.shape = device, shape
        self.after: Callable[..., Tensor] = _after
        self.slot: Batch = {}
        self.mask: Any = None
        if device.type == "cuda":
            from torch.nn.attention.flex_attention import flex_attention

            self.after = torch.compile(_after, dynamic=False)
            self._flex = torch.compile(flex_attention, dynamic=False)

    def load(self, batch: Batch) -> Batch:
        """The batch on the device, in the same memory every time: the compiled mask reads it from there."""
        if not self.slot:
            self.slot = {name: t.to(self.device) for name, t in batch.items()}
            if self.device.type == "cuda":
                self.mask = self._block_mask()
        else:
            for name, t in batch.items():
                self.slot[name].copy_(t, non_blocking=True)
        if self.device.type != "cuda":
            s = self.slot
            pairs = [(s[n][:, None], s[n][None]) for n in ("doc", "part", "mark")]
            self.mask = _visible(*(t for pair in pairs for t in pair))
        return self.slot

    def _block_mask(self) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        doc, part, mark = self.slot["doc"], self.slot["part"], self.slot["mark"]

        def rule(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return _visible(doc[q], doc[k], part[q], part[k], mark[q], mark[k])

        near, reach = self.slot["near"][None, None], self.slot["reach"][None, None]
        # The relation between blocks is symmetric, so the transposed lists that the backward pass needs are the same.
        return BlockMask(
            seq_lengths=(self.shape.tokens, self.shape.tokens), kv_num_blocks=near, kv_indices=reach,
            full_kv_num_blocks=None, full_kv_indices=None, q_num_blocks=near, q_indices=reach,
            full_q_num_blocks=None, full_q_indices=None, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=rule,
        )  # fmt: skip

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v of shape [1, heads, tokens, width]."""
        if self.device.type == "cuda":
            out: Tensor = self._flex(q, k, v, block_mask=self.mask)
            return out
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.norm1 = nn.LayerNorm(HIDDEN, EPSILON)
        self.up = nn.Linear(HIDDEN, INNER)
        self.down = nn.Linear(INNER, HIDDEN)
        self.norm2 = nn.LayerNorm(HIDDEN, EPSILON)

    def forward(self, x: Tensor, kernels: Kernels, rate: float) -> Tensor:
        tokens = x.shape[0]
        q, k, v = self.qkv(x).view(1, tokens, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        y = kernels.attend(q, k, v).transpose(1, 2).reshape(tokens, HIDDEN)
        parts = (self.out, self.norm1, self.up, self.down, self.norm2)
        return kernels.after(x, y, [t for p in parts for t in (p.weight, p.bias)], rate, self.training)


class Network(nn.Module):
    def __init__(self, dropout: float = 0.1, depth: int = LAYERS) -> None:
        super().__init__()
        self.dropout = dropout
        self.word = nn.Parameter(torch.randn(VOCABULARY, HIDDEN) * 0.02)
        self.position = nn.Parameter(torch.randn(POSITIONS, HIDDEN) * 0.02)
        self.segment = nn.Parameter(torch.randn(2, HIDDEN) * 0.02)
        self.norm = nn.LayerNorm(HIDDEN, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 1))

    def forward(self, batch: Batch, kernels: Kernels) -> Tensor:
        """Logits of the batch's markers, float32."""
        zero, one = self.segment
        x = F.embedding(batch["ids"], self.word) + F.embedding(batch["position"], self.position)
        x = self.norm(x + zero + batch["segment"][:, None] * (one - zero))
        rate = self.dropout if self.training else 0.0
        x = F.dropout(x, rate, self.training)
        for layer in self.layers:
            x = layer(x, kernels, rate)
        logits: Tensor = self.head(x.index_select(0, batch["mark_at"])).squeeze(-1)
        return logits.float()

    def load_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[str]:
        """Takes weights by name and returns the names that were not given."""
        missing = []
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name in arrays:
                    parameter.copy_(torch.from_numpy(np.asarray(arrays[name], np.float32)))
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


def save(path: Path, arrays: Mapping[str, Tensor]) -> None:
    """Half precision, rounded to 8 bits of mantissa: 8-bit export keeps no more, and zeros compress away."""
    halves = {n: t.detach().cpu().numpy().astype(np.float16) for n, t in arrays.items()}
    rounded: dict[str, Any] = {n: ((h.view(np.uint16) + 2) & 0xFFFC).view(np.float16) for n, h in halves.items()}
    np.savez(path, **rounded)


def load(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    with np.load(path) as archive:
        return {name: archive[name].astype(np.float32) for name in archive.files}
