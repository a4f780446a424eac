"""A weightless, deterministic model for tests. Words in the state steer it:

GATE=/folder  running it takes until the folder is gone: tests/support/gate.py
SLEEP=0.5     running it takes at least that many seconds
FAIL          running it fails
FAIL-READ     reading it fails
NAN           it answers with NaN
SHORT         it answers fewer questions than it was asked
DIE           the thread that runs it ends

`fake` makes an item of every question, as cross-encoders do. `fake:whole` makes one of a state with all its questions,
which runs in pieces of a token budget, on two threads, as the embedded model does. `fake:contrary` likes least what the
others like best.
"""

import os
import re
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from decided.contract.types import Question, compact
from decided.engines import prompts
from decided.engines.api import Encoded, Item, ModelCard, More
from decided.settings import Settings
from tests.support.gate import wait_at

STATE_TOKENS = 1000
TOKENS = 10  # of a question


class _Words:
    def encode(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) for word in text.split()]


class FakeModel:
    card = ModelCard(name="fake", description="For tests only.", release_date="2026-01-01", kind="fake", device="cpu")
    gives_features = True
    token_budget = int(os.environ.get("FAKE_TOKEN_BUDGET", "256"))

    def __init__(self) -> None:
        self.reads = 0

    def prepare(self, questions: Sequence[Question]) -> Sequence[Question]:
        return questions

    def encode(self, prepared: Sequence[Question], state: str) -> Encoded:
        self.reads += 1
        if "FAIL-READ" in state:
            raise ValueError("told to fail while reading")
        ids, cuts = prompts.tokens(_Words(), state, "state", STATE_TOKENS)
        items = [Item([number], TOKENS, (state, question)) for number, question in enumerate(prepared)]
        return Encoded(items, len(ids) + TOKENS * len(items), [cuts] * len(items))

    def run(self, items: Sequence[Item]) -> list[Any]:
        _obey({item.payload[0] for item in items})
        for item in items:
            if item.wants_features:
                item.features = features(item.payload[0])
        return [[_weights(*item.payload)] if "SHORT" not in item.payload[0] else [] for item in items]


class ContraryModel(FakeModel):
    card = replace(FakeModel.card, name="contrary", max_options=26)

    def run(self, items: Sequence[Item]) -> list[Any]:
        return [[[1001 - weight for weight in of_options] for of_options in result] for result in super().run(items)]


class WholeModel(FakeModel):
    """Cuts its work as the embedded model does."""

    runners = 2
    room = 2**20

    def encode(self, prepared: Sequence[Question], state: str) -> Encoded:
        reading = super().encode(prepared, state)
        item = Item(range(len(prepared)), self._cost(len(prepared)), (state, prepared, []))
        return replace(reading, items=[item], room=len(state))

    def run(self, items: Sequence[Item]) -> list[Any]:
        for item in items:
            if item.wants_features:
                item.features = features(item.payload[0])
        return [self._go_on(item.payload[0], item.payload[1], item.payload[2]) for item in items]

    def _go_on(self, state: str, questions: Sequence[Question], answers: list[list[float]]) -> Any:
        _obey({state})
        until = len(answers) + max(1, self.token_budget // TOKENS)
        answers += [_weights(state, question) for question in questions[len(answers) : until]]
        if len(answers) < len(questions):
            return More(self._cost(len(questions) - len(answers)))
        return answers if "SHORT" not in state else answers[:-1]

    def _cost(self, questions: int) -> int:
        return min(questions * TOKENS, max(TOKENS, self.token_budget))


def features(state: str) -> Any:
    """As many as a test can look at: how long the state is, and whether it speaks of money."""
    return np.array([len(state) / 100, 1.0 if "money" in state else 0.0], np.float32)


def _obey(states: set[str]) -> None:
    """Do what the words in the states say."""
    for folder in {found for state in states for found in re.findall(r"GATE=(\S+)", state)}:
        wait_at(Path(folder))
    time.sleep(sum(float(seconds) for state in states for seconds in re.findall(r"SLEEP=([\d.]+)", state)))
    if any("FAIL" in state for state in states):
        raise ValueError("told to fail, with a secret inside")
    if any("DIE" in state for state in states):
        raise SystemExit


def _weights(state: str, question: Any) -> list[float]:
    keys = question.keys()
    if "NAN" in state:
        return [float("nan")] * len(keys)
    seed = state + compact(question.instructions)
    return [1 + zlib.crc32(f"{seed}{key}".encode()) % 1000 for key in keys]


def load(name: str, settings: Settings) -> FakeModel:
    if name == "broken":
        raise OSError("no such weights")
    if name == "slow":
        print("loading", file=sys.stderr, flush=True)
        time.sleep(30)
    return {"whole": WholeModel, "contrary": ContraryModel}.get(name, FakeModel)()
