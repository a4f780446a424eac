"""More test engines: one that is remote, one that cuts questions, and two that break.

fake-remote   a remote engine; it can be reached while the file named by the model exists
odd           every question about its state, and every look at its queue, ends in an unforeseen error
cold          it loads, but it cannot run
picky         of instructions with more than five words it reads the first five
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from decided.cli import main
from decided.contract.types import MAX_REMOTE_OPTIONS, Question
from decided.engines.api import KINDS, NOBODY, Caller, Cut, Emit, Encoded, Item, ModelCard, Verdict
from decided.errors import Unavailable
from decided.settings import Settings
from tests.support.fake_model import FakeModel

HOME = "tests.spec.engines"
NAMES = ("fake-remote", "odd", "picky", "cold")
OUTPUT_TOKENS = 7
SECRET = "the-inside-of-the-service"


class RemoteEngine:
    remote = True
    card = ModelCard(
        name="far",
        description="For tests only.",
        release_date="2026-01-01",
        kind="fake-remote",
        device="remote",
        max_options=MAX_REMOTE_OPTIONS,
    )

    def __init__(self, alive: Path) -> None:
        self._alive = alive

    async def start(self) -> None:
        return None

    async def decide(
        self, states: Sequence[str], questions: Sequence[Question], *, caller: Caller = NOBODY
    ) -> list[Verdict]:
        weights: list[Sequence[float]] = [[1.0] * len(question.keys()) for question in questions]
        return [Verdict(weights, input_tokens=3, output_tokens=OUTPUT_TOKENS) for _ in states]

    async def decide_each(
        self, states: Sequence[str], questions: Sequence[Question], tell: Emit, *, caller: Caller = NOBODY
    ) -> None:
        for index, verdict in enumerate(await self.decide(states, questions)):
            tell(index, verdict)

    async def check(self) -> None:
        if not self._alive.exists():
            raise Unavailable("the remote engine cannot be reached")

    def queue_depth(self) -> int:
        return 0

    async def close(self) -> None:
        return None


class OddEngine(RemoteEngine):
    remote = False
    card = ModelCard(name="odd", description="Odd.", release_date="2026-01-01", kind="odd", device="cpu")

    async def decide(
        self, states: Sequence[str], questions: Sequence[Question], *, caller: Caller = NOBODY
    ) -> list[Verdict]:
        raise RuntimeError(SECRET)

    def queue_depth(self) -> int:
        raise KeyError(SECRET)


class ColdModel(FakeModel):
    def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
        raise RuntimeError("it does not run here")


class PickyModel(FakeModel):
    def encode(self, prepared: Sequence[Question], state: str) -> Encoded:
        reading = super().encode(prepared, state)
        words = [len(str(question.instructions).split()) for question in prepared]
        own = [(Cut("instructions", 5, count),) if count > 5 else () for count in words]
        cuts = [(*first, *second) for first, second in zip(reading.cuts, own, strict=True)]
        return Encoded(reading.items, reading.input_tokens, cuts)


def load(name: str, settings: Settings) -> RemoteEngine | FakeModel:
    match settings.model.partition(":")[0]:
        case "fake-remote":
            return RemoteEngine(Path(name))
        case "odd":
            return OddEngine(Path(name))
        case "picky":
            return PickyModel()
    return ColdModel()


if __name__ == "__main__":
    KINDS |= dict.fromkeys(NAMES, HOME)
    sys.exit(main())
