"""The ModernBERT encoder (also Ettin and mmBERT) over packed batches: all layers but attention see one long row.

Written anew, since the usual implementation pads. Its parameters have the names that they have in checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from decided.engines.torch.attention import Attention, Segments
from decided.engines.torch.fusion import ACTIVATIONS, Steps, rope
from decided.errors import ModelError


@dataclass(frozen=True, slots=True)
class Shape:
    """What the encoder's config says, in the old and in the new spelling."""

    vocabulary: int
    hidden: int
    inner: int
    heads: int
    positions: int
    layers: tuple[bool, ...]
    """For each layer, whether it is global: it sees all tokens, not only those near by."""
    window: int
    """How far a local layer sees, to either side."""
    theta_global: float
    theta_local: float
    eps: float
    activation: str
    biases: tuple[bool, bool, bool]
    """Of attention, of the feed-forward part, of the norms."""

    @property
    def width(self) -> int:
        return self.hidden // self.heads


def read_shape(config: Mapping[str, Any]) -> Shape:
    if config.get("model_type") != "modernbert":
        raise ModelError(f"the encoder is a {config.get('model_type')!r}; only ModernBERT and its kin are served")
    count = config["num_hidden_layers"]
    every = config.get("global_attn_every_n_layers", 3)
    kinds = config.get("layer_types") or ["full" if number % every == 0 else "sliding" for number in range(count)]
    rotary = config.get("rope_parameters") or {}
    for of_kind in (rotary.get("full_attention") or {}, rotary.get("sliding_attention") or {}):
        if of_kind.get("rope_type", "default") != "default":
            raise ModelError(f"rotary positions of type {of_kind['rope_type']!r} are not served")
    if config.get("hidden_activation", "gelu") not in ACTIVATIONS:
        raise ModelError(f"the activation {config['hidden_activation']!r} is not served")
    return Shape(
        vocabulary=config["vocab_size"],
        hidden=config["hidden_size"],
        inner=config["intermediate_size"],
        heads=config["num_attention_heads"],
        positions=config.get("max_position_embeddings", 8192),
        layers=tuple(kind.startswith("full") for kind in kinds),
        window=config.get("local_attention", 128) // 2,
        theta_global=_theta(rotary, "full_attention", config.get("global_rope_theta") or 160_000.0),
        theta_local=_theta(rotary, "sliding_attention", config.get("local_rope_theta") or 10_000.0),
        eps=config.get("norm_eps", 1e-5),
        activation=config.get("hidden_activation", "gelu"),
        biases=(
            config.get("attention_bias", False),
            config.get("mlp_bias", False),
            config.get("norm_bias", False),
        ),
    )


def _theta(rotary: Mapping[str, Any], kind: str, default: float) -> float:
    return float((rotary.get(kind) or {}).get("rope_theta") or rotary.get("rope_theta") or default)


class _Embeddings(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(shape.vocabulary, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, shape.eps, bias=shape.biases[2])


class _SelfAttention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.Wqkv = nn.Linear(shape.hidden, 3 * shape.hidden, bias=shape.biases[0])
        self.Wo = nn.Linear(shape.hidden, shape.hidden, bias=shape.biases[0])


class _FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.Wi = nn.Linear(shape.hidden, 2 * shape.inner, bias=shape.biases[1])
        self.Wo = nn.Linear(shape.inner, shape.hidden, bias=shape.biases[1])


class _Layer(nn.Module):
    def __init__(self, shape: Shape, first: bool) -> None:
        super().__init__()
        self.attn_norm = nn.Identity() if first else nn.LayerNorm(shape.hidden, shape.eps, bias=shape.biases[2])
        self.attn = _SelfAttention(shape)
        self.mlp_norm = nn.LayerNorm(shape.hidden, shape.eps, bias=shape.biases[2])
        self.mlp = _FeedForward(shape)


class Encoder(nn.Module):
    """Token ids of a packed batch to one vector per token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.steps = Steps()
        self.embeddings = _Embeddings(shape)
        self.layers = nn.ModuleList(_Layer(shape, number == 0) for number in range(len(shape.layers)))
        self.final_norm = nn.LayerNorm(shape.hidden, shape.eps, bias=shape.biases[2])

    def forward(self, ids: Tensor, positions: Tensor, segments: Segments, attention: Attention) -> Tensor:
        shape, steps = self.shape, self.steps
        near = rope(positions, shape.theta_local, shape.width, self.final_norm.weight.dtype)
        far = rope(positions, shape.theta_global, shape.width, self.final_norm.weight.dtype)
        x = normed = self.embeddings.norm(self.embeddings.tok_embeddings(ids))
        norms = [*(layer.attn_norm for layer in self.layers[1:]), self.final_norm]
        for layer, sees_all, next_norm in zip(self.layers, shape.layers, norms, strict=True):
            qkv = layer.attn.Wqkv(normed).view(-1, 3, shape.heads, shape.width)
            q, k = steps.rotate(qkv[:, :2], far if sees_all else near).unbind(1)
            seen = attention(q, k, qkv[:, 2], segments, None if sees_all else shape.window)
            x, normed = self._add_and_norm(x, layer.attn.Wo(seen.flatten(1)), layer.mlp_norm)
            inner = steps.apply_gate(layer.mlp.Wi(normed), shape.activation)
            x, normed = self._add_and_norm(x, layer.mlp.Wo(inner), next_norm)
        return normed

    def _add_and_norm(self, x: Tensor, more: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        return self.steps.add_and_norm(x, more, norm.weight, norm.bias, norm.eps)
