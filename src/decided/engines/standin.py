"""A stand-in until the embedded model lands: options scored by their likeness to the state.

Static word vectors (WordLlama, 256 numbers a token, MIT) are averaged over the state and over each option, and
compared. It reads the text, in microseconds, and understands none of it: fine for a first try, not for decisions.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from decided import prompts
from decided.contract import Noul, Question
from decided.engine import Cut, Item, ModelCard, Reading
from decided.errors import ModelError
from decided.settings import Settings

Vectors = NDArray[np.float32]

_STATE_TOKENS = 4096
_INSTRUCTION_TOKENS = 512
_OPTION_TOKENS = 256
_SHARPNESS = 12.0
_YES_AT = 0.25


class _Asked(NamedTuple):
    """A question in vectors: one per option, and where a yes/no has no described outcomes, its own."""

    options: Vectors
    statement: Vectors | None
    tokens: int
    cuts: tuple[Cut, ...]


class _Vocabulary:
    """Text to token ids."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


class Standin:
    """Cosine likeness of averaged word vectors."""

    token_budget = 8192

    def __init__(self, vectors: Vectors, vocabulary: _Vocabulary) -> None:
        self.card = ModelCard(
            name="standin",
            description="A stand-in: likeness of word vectors, no understanding. Not for real decisions.",
            release_date="2026-11-15",
            kind="standin",
            device="cpu",
        )
        self._vectors = vectors
        self._vocabulary = vocabulary

    def prepare(self, questions: Sequence[Question]) -> list[_Asked]:
        return [self._ask(question) for question in questions]

    def read(self, prepared: list[_Asked], state: str) -> Reading:
        ids, cuts = prompts.tokens(self._vocabulary, state, "state", _STATE_TOKENS)
        input_tokens = len(ids) + sum(asked.tokens for asked in prepared)
        item = Item(range(len(prepared)), input_tokens, (self._mean(ids), prepared))
        return Reading([item], input_tokens, [(*cuts, *asked.cuts) for asked in prepared])

    def run(self, items: Sequence[Item]) -> list[list[Vectors]]:
        return [
            [_weights(state, asked) for asked in questions] for state, questions in (item.payload for item in items)
        ]

    def _ask(self, question: Question) -> _Asked:
        options = question.options()
        about = prompts.tokens(self._vocabulary, prompts.instructions(question), "instructions", _INSTRUCTION_TOKENS)
        texts = [
            prompts.tokens(self._vocabulary, prompts.option_text(option), "options", _OPTION_TOKENS)
            for option in options
        ]
        bare = isinstance(question, Noul) and not any(option.description for option in options)
        return _Asked(
            np.stack([self._mean(text.ids) for text in texts]),
            self._mean(about.ids) if bare else None,
            len(about.ids) + sum(len(text.ids) for text in texts),
            about.cuts + prompts.joined([text.cuts for text in texts]),
        )

    def _mean(self, ids: list[int]) -> Vectors:
        if not ids:
            return np.zeros(self._vectors.shape[1], np.float32)
        mean: Vectors = self._vectors[ids].mean(axis=0, dtype=np.float32)
        return mean / np.float32(max(float(np.linalg.norm(mean)), 1e-6))


def _weights(state: Vectors, asked: _Asked) -> Vectors:
    if asked.statement is not None:
        lean = _SHARPNESS * (float(state @ asked.statement) - _YES_AT)
        likeness = np.array([lean, 0.0], np.float32)
    else:
        likeness = _SHARPNESS * (asked.options @ state)
    weights: Vectors = np.exp(likeness - likeness.max())
    return weights


def load(name: str, settings: Settings) -> Standin:
    """The stand-in; it has one size, one precision and one device."""
    if name or settings.device not in ("auto", "cpu") or settings.dtype not in ("auto", "float32"):
        raise ModelError("the stand-in has no other names, devices or precisions: leave --device and --dtype at auto")
    package: Any = files("wordllama")
    weights = load_file(package / "weights" / "l2_supercat_256.safetensors")
    vectors = next(iter(weights.values())).astype(np.float32)
    return Standin(vectors, _Vocabulary(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
