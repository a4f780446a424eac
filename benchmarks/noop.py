"""The command line of `decided` with two more kinds of model, for measuring all that is not the model.

`noop` answers at once with equal weights. `paced:TOKENS_PER_SECOND` or `paced:TOKENS_PER_SECOND:BUDGET` takes as long
as a device of that speed would: it sleeps, which leaves the interpreter to the other threads as a real engine does.

    python benchmarks/noop.py serve --model noop --host 127.0.0.1 --port 8000
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from decided.contract.types import Question
from decided.engines.api import KINDS, Encoded, Item, ModelCard
from decided.settings import Settings

Weights = list[list[float]]


def _card(kind: str, description: str) -> ModelCard:
    return ModelCard(name=kind, description=description, release_date="2026-01-01", kind=kind, device="cpu")


class NoopModel:
    """No tokens, no work: each state is one item with all its questions."""

    token_budget = 1024

    def __init__(self) -> None:
        self.card = _card("noop", "answers at once with equal weights; for benchmarks")

    def prepare(self, questions: Sequence[Question]) -> Weights:
        return [[1.0] * len(question.keys()) for question in questions]

    def encode(self, prepared: Weights, state: str) -> Encoded:
        return Encoded([Item(range(len(prepared)), 1, prepared)], 0)

    def run(self, items: Sequence[Item]) -> list[Weights]:
        return [item.payload for item in items]


@dataclass(slots=True)
class EncodedQuestion:
    weights: list[float]
    tokens: int


class PacedModel:
    """A cross-encoder on a device of known speed: each question is read together with the state, a word is a token."""

    def __init__(self, tokens_per_second: float, budget: int) -> None:
        self.card = _card("paced", f"sleeps as long as {tokens_per_second:g} tokens a second take; for benchmarks")
        self.token_budget = budget
        self._speed = tokens_per_second
        self._ready = 0.0

    def prepare(self, questions: Sequence[Question]) -> list[EncodedQuestion]:
        return [
            EncodedQuestion([1.0] * len(keys), len(str(question.instructions).split()) + 4 * len(keys))
            for question in questions
            if (keys := question.keys())
        ]

    def encode(self, prepared: Sequence[EncodedQuestion], state: str) -> Encoded:
        words = len(state.split())
        items = [Item((number,), words + asked.tokens, asked.weights) for number, asked in enumerate(prepared)]
        return Encoded(items, words + sum(asked.tokens for asked in prepared))

    def run(self, items: Sequence[Item]) -> list[Weights]:
        # From one batch to the next without a gap, the device goes on where it stopped: sleeps that run over by some
        # microseconds do not add up.
        now = monotonic()
        begin = self._ready if now - self._ready < 0.001 else now
        self._ready = begin + sum(item.cost for item in items) / self._speed
        sleep(max(0.0, self._ready - monotonic()))
        return [[item.payload] for item in items]


def load(name: str, settings: Settings) -> NoopModel | PacedModel:
    if not name:
        return NoopModel()
    speed, _, budget = name.partition(":")
    return PacedModel(float(speed), int(budget or 256))


def main() -> None:
    from decided.cli import main as command

    KINDS.update(noop="noop", paced="noop")  # this module, which `load` imports by name
    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
