"""The nano family of opendecider: one marker per option before the state, and an MLP that scores each marker.

    [CLS] question: ... [SEP] [MASK] option [MASK] option [SEP] input: ... [SEP]

Files: `opendecider.json` (kind, longest input), the encoder and its tokenizer as usual, the MLP in `head.safetensors`.
"""

from collections.abc import Sequence

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from decided.contract.types import MAX_OPTIONS, Question
from decided.engines.checkpoint import Checkpoint, locate
from decided.engines.prompts import Tokens, instructions, named_options, tokens
from decided.engines.tokenizer import read_vocabulary
from decided.engines.torch.base import card_of
from decided.engines.torch.encoder import MarkerEncoder, Packed, QuestionHead, assemble
from decided.engines.torch.modernbert import read_shape
from decided.engines.torch.placement import place
from decided.errors import ModelError
from decided.settings import Settings

_LONGEST_INPUT = 2048
_ENCODER_PREFIX = "model."
_FRAME = 4
"""Special tokens around question, options and state."""


class OpenDecider(MarkerEncoder):
    state_prefix = "input: "

    def head(self, question: Question) -> QuestionHead:
        return self.lay_out(question, *self._within_the_input(question))

    def score(self, vectors: Tensor, batch: Packed) -> Tensor:
        logits: Tensor = self.network(vectors[batch.markers])
        return logits.squeeze(-1)

    def _within_the_input(self, question: Question) -> tuple[Tokens, list[Tokens]]:
        """Question and options in tokens. The state gives way first; only a question that would fill the whole input
        by itself is cut, to three quarters of it."""
        texts = [f" {text}" for text in named_options(question)]
        asked = f"question: {instructions(question)}"
        whole = self.longest
        about = tokens(self.vocabulary, asked, "instructions", whole)
        options = [tokens(self.vocabulary, text, "options", whole) for text in texts]
        if _length(about, options) <= self.longest:
            return about, options
        room = self.longest * 3 // 4 - _FRAME
        about = tokens(self.vocabulary, asked, "instructions", max(8, room // 3))
        each = max(1, (room - len(about.ids)) // len(options) - 1)
        return about, [tokens(self.vocabulary, text, "options", each) for text in texts]


def _length(about: Tokens, options: Sequence[Tokens]) -> int:
    return len(about.ids) + sum(len(option.ids) + 1 for option in options) + _FRAME


def _network(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, 1))


def load(name: str, settings: Settings) -> OpenDecider:
    checkpoint = locate(name, settings)
    meta = checkpoint.json("opendecider.json")
    if meta.get("kind", "nano") != "nano":
        raise ModelError(f"opendecider models of the kind {meta['kind']!r} are not served by this kind")
    placement = place(settings)
    shape = read_shape(checkpoint.json("config.json"))
    weights = (_encoder_weights(checkpoint), load_file(checkpoint.folder / "head.safetensors"))
    encoder, network = assemble(shape, lambda: _network(shape.hidden), weights, placement)
    longest = min(int(meta.get("max_len", _LONGEST_INPUT)), shape.positions)
    most = min(MAX_OPTIONS, longest // 8)
    name = str(meta.get("name") or checkpoint.name)
    description = f"An opendecider encoder that reads {longest:,} tokens and up to {most} options."
    card = card_of("opendecider", name, description, checkpoint.fingerprint(), placement, checkpoint.date(), most)
    model = OpenDecider(card, placement, read_vocabulary(checkpoint), encoder, network, longest)
    model.find_budget()
    return model


def _encoder_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in checkpoint.weight_files():
        if path.name != "head.safetensors":
            found |= load_file(path)
    return {name.removeprefix(_ENCODER_PREFIX): tensor for name, tensor in found.items()}
