"""A weightless, deterministic model for tests. Words in the state steer it:

SLEEP=0.5     running it takes that many seconds
FAIL          running it fails
FAIL-READ     reading it fails
NAN           it answers with NaN
SHORT         it answers fewer questions than it was asked
DIE           the thread that runs it ends
"""

import os
import re
import sys
import time
import zlib
from collections.abc import Sequence
from typing import Any

from decided import prompts
from decided.contract import Question, compact
from decided.engine import Item, ModelCard, Reading
from decided.settings import Settings

STATE_TOKENS = 1000


class _Words:
    def encode(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) for word in text.split()]


class FakeModel:
    card = ModelCard(name="fake", description="For tests only.", release_date="2026-01-01", kind="fake", device="cpu")
    token_budget = int(os.environ.get("FAKE_TOKEN_BUDGET", "256"))

    def __init__(self) -> None:
        self.reads = 0
        self.batches: list[int] = []

    def prepare(self, questions: Sequence[Question]) -> Sequence[Question]:
        return questions

    def read(self, prepared: Sequence[Question], state: str) -> Reading:
        self.reads += 1
        if "FAIL-READ" in state:
            raise ValueError("told to fail while reading")
        ids, cuts = prompts.tokens(_Words(), state, "state", STATE_TOKENS)
        items = [Item([number], 10, (state, question)) for number, question in enumerate(prepared)]
        return Reading(items, len(ids) + 10 * len(items), [cuts] * len(items))

    def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
        self.batches.append(len(items))
        states = {item.payload[0] for item in items}
        time.sleep(sum(float(seconds) for state in states for seconds in re.findall(r"SLEEP=([\d.]+)", state)))
        if any("FAIL" in state for state in states):
            raise ValueError("told to fail, with a secret inside")
        if any("DIE" in state for state in states):
            raise SystemExit
        return [_weights(*item.payload) for item in items]


def _weights(state: str, question: Any) -> list[list[float]]:
    keys = question.keys()
    if "SHORT" in state:
        return []
    if "NAN" in state:
        return [[float("nan")] * len(keys)]
    seed = state + compact(question.instructions)
    return [[1 + zlib.crc32(f"{seed}{key}".encode()) % 1000 for key in keys]]


def load(name: str, settings: Settings) -> FakeModel:
    if name == "broken":
        raise OSError("no such weights")
    if name == "slow":
        print("loading", file=sys.stderr, flush=True)
        time.sleep(30)
    return FakeModel()
