"""The laya family: `[CLS] type and question [SEP] [MASK] option [MASK] option [SEP] state [SEP]`, two more layers over
all tokens, a scorer per marker, and temperatures per type and number of options.

Files: `rl_agent_config.json`, `model.safetensors` (encoder and head), `encoder/config.json`, `tokenizer/`.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from decided.contract.types import MAX_OPTIONS, Choice, Noul, Question, Score, type_of
from decided.engines.api import ModelCard
from decided.engines.checkpoint import Checkpoint, locate
from decided.engines.prompts import instructions, tokens
from decided.engines.tokenizer import Vocabulary, read_vocabulary
from decided.engines.torch.attention import Attention, Segments
from decided.engines.torch.base import card_of
from decided.engines.torch.encoder import MarkerEncoder, Packed, QuestionHead, Row, assemble
from decided.engines.torch.modernbert import Encoder, read_shape
from decided.engines.torch.placement import Placement, place
from decided.errors import ModelError
from decided.settings import Settings

log = logging.getLogger("decided.engines")

_TYPES = ("choice", "score", "noul")
_COOLEST, _HOTTEST = 0.5, 5.0
"""The family's own bounds: a checkpoint's temperature outside them is no calibration."""
_OPTION_TOKENS = 48
_LEAST_OPTION_TOKENS = 4
_LEAST_INSTRUCTION_TOKENS = 8
_HEAD_SPARE = 16


class _HeadLayer(nn.Module):
    """A transformer layer over all tokens, without positions; names as in the checkpoint."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.self_attn = _HeadAttention(hidden)
        self.linear1, self.linear2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor, segments: Segments, attention: Attention, wanted: Tensor | None = None) -> Tensor:
        """Of the last layer, only the tokens wanted go on: attention needs all, what follows does not."""
        x = x + self.self_attn(self.norm1(x), segments, attention)
        if wanted is not None:
            x = x[wanted]
        out: Tensor = x + self.linear2(F.relu(self.linear1(self.norm2(x))))
        return out


class _HeadAttention(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(nn.Linear(hidden, 3 * hidden).weight)
        self.in_proj_bias = nn.Parameter(nn.Linear(1, 3 * hidden).bias)
        self.out_proj = nn.Linear(hidden, hidden)
        self._heads = max(1, hidden // 64)

    def forward(self, x: Tensor, segments: Segments, attention: Attention) -> Tensor:
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias).view(len(x), 3, self._heads, -1)
        q, k, v = qkv.unbind(1)
        out: Tensor = self.out_proj(attention(q, k, v, segments).flatten(1))
        return out


class _Network(nn.Module):
    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.head = nn.ModuleDict({"layers": nn.ModuleList(_HeadLayer(hidden) for _ in range(layers))})
        self.type_emb = nn.Embedding(len(_TYPES), hidden)
        self.scorer = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, vectors: Tensor, batch: Packed, attention: Attention) -> Tensor:
        x = vectors + self.type_emb(batch.kinds)
        layers = list(self.head["layers"])
        for number, layer in enumerate(layers, 1):
            x = layer(x, batch.segments, attention, batch.markers if number == len(layers) else None)
        logits: Tensor = self.scorer(x if layers else x[batch.markers])
        return logits.squeeze(-1)


class Laya(MarkerEncoder):
    def __init__(
        self, card: ModelCard, placement: Placement, vocabulary: Vocabulary, encoder: Encoder, network: nn.Module,
        config: Mapping[str, Any],
    ) -> None:  # fmt: skip
        whole, self._longest_head = longest(config, encoder.shape.positions)
        super().__init__(card, placement, vocabulary, encoder, network, whole)
        self._temperatures = temperatures(config)
        self._mask_text = vocabulary.special["mask_token"]

    def head(self, question: Question) -> QuestionHead:
        texts = [" " + self.clean(text) for text in option_texts(question)]
        options = [tokens(self.vocabulary, text, "options", _OPTION_TOKENS) for text in texts]
        taken = sum(len(option.ids) + 1 for option in options)
        if self._longest_head - taken < _HEAD_SPARE:
            each = max(_LEAST_OPTION_TOKENS, (self._longest_head - _HEAD_SPARE) // len(options)) - 1
            options = [tokens(self.vocabulary, text, "options", min(each, _OPTION_TOKENS)) for text in texts]
            taken = sum(len(option.ids) + 1 for option in options)
        asked = f"{type_of(question)} question: {self.clean(instructions(question))}"
        limit = max(_LEAST_INSTRUCTION_TOKENS, self._longest_head - taken)
        return self.lay_out(question, tokens(self.vocabulary, asked, "instructions", limit), options)

    def clean(self, state: str) -> str:
        return state.replace(self._mask_text, " ")

    def kind_of(self, question: Question) -> int:
        return _TYPES.index(type_of(question))

    def score(self, vectors: Tensor, batch: Packed) -> Tensor:
        logits: Tensor = self.network(vectors, batch, self.attention)
        return logits

    def rescale(self, logits: NDArray[np.float32], rows: list[Row]) -> NDArray[np.float32]:
        own = [self._temperatures[bucket(row.question, len(row.markers))] for row in rows]
        divisors: NDArray[np.float32] = np.repeat(np.array(own, np.float32), [len(row.markers) for row in rows])
        return np.divide(logits, divisors)

    def in_order(self, question: Question, logits: Sequence[float]) -> list[float]:
        return list(reversed(logits)) if isinstance(question, Noul) else list(logits)


def option_texts(question: Question) -> list[str]:
    """Options as this family was trained to read them; of yes and no, no comes first."""
    options = question.options()
    if isinstance(question, Choice):
        return [f"{option.key}: {option.description}" if option.description else option.key for option in options]
    if isinstance(question, Score):
        return [f"level {option.key}: {option.description}" for option in options]
    yes, no = options
    return [
        f"false: {no.description or 'no, the statement does not hold'}",
        f"true: {yes.description or 'yes, the statement holds'}",
    ]


def bucket(question: Question, count: int) -> str:
    """The name under which a checkpoint keeps a temperature: type and number of options."""
    size = "2" if count <= 2 else "3-5" if count <= 5 else "6-10" if count <= 10 else "11+"
    return f"{type_of(question)}:{size}"


def temperatures(config: Mapping[str, Any]) -> dict[str, float]:
    """A temperature for every bucket: its own, or that of its type."""
    of_types = config.get("temperature", [1.0, 1.0, 1.0])
    if not isinstance(of_types, list) or len(of_types) != len(_TYPES):
        raise ModelError(f"rl_agent_config.json: temperature must be a list of {len(_TYPES)} numbers")
    own = config.get("temperature_by_options") or {}
    found = {
        f"{name}:{size}": own.get(f"{name}:{size}", of_type)
        for name, of_type in zip(_TYPES, of_types, strict=True)
        for size in ("2", "3-5", "6-10", "11+")
    }
    used = {name: _within_bounds(value) for name, value in found.items()}
    changed = ", ".join(f"{name} {found[name]} to {value:g}" for name, value in used.items() if value != found[name])
    if changed:
        log.warning("the checkpoint's temperatures are out of range and were clamped: %s", changed)
    return used


def _within_bounds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 1.0
    return min(_HOTTEST, max(_COOLEST, float(value)))


def longest(config: Mapping[str, Any], positions: int) -> tuple[int, int]:
    """The longest input, and how much of it a question may take."""
    whole = min(int(config.get("max_len", 512)), positions)
    return whole, int(config.get("head_max_len", 192))


def load(name: str, settings: Settings) -> Laya:
    checkpoint = locate(name, settings)
    config = checkpoint.json("rl_agent_config.json")
    if config.get("option_layout", "sequential") != "sequential":
        raise ModelError(f"laya checkpoints with the option layout {config['option_layout']!r} are not served")
    placement = place(settings)
    shape = read_shape(checkpoint.json("encoder/config.json"))
    layers = int(config.get("head_layers", 2))
    encoder, network = assemble(shape, lambda: _Network(shape.hidden, layers), _weights(checkpoint), placement)
    whole, _ = longest(config, shape.positions)
    most = min(MAX_OPTIONS, (whole - _LEAST_INSTRUCTION_TOKENS - 4) // _LEAST_OPTION_TOKENS)
    fitted = any(value != 1 for value in temperatures(config).values())
    description = f"A laya encoder that reads {whole:,} tokens and up to {most} options."
    calibration = "temperatures of the checkpoint" if fitted else "not calibrated"
    card = card_of(
        "laya", checkpoint.name, description, checkpoint.fingerprint(), placement, checkpoint.date(), most, calibration
    )
    model = Laya(card, placement, read_vocabulary(checkpoint, "tokenizer"), encoder, network, config)
    model.find_budget()
    return model


def _weights(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The encoder's weights and the head's; those of the part that decides whether to act at all are left out."""
    encoder, head = {}, {}
    for path in checkpoint.weight_files():
        for name, tensor in load_file(path).items():
            if name.startswith("encoder."):
                encoder[name.removeprefix("encoder.")] = tensor
            elif name.startswith(("head.", "type_emb.", "scorer.")):
                head[name] = tensor
    return encoder, head
