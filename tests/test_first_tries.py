"""The questions that `make eval-model` asks: each has one option for an answer, and no model has trained on them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from decided.contract.types import Question, compact
from tests.support.server import ROOT

LONGEST = {"first": 4, "second": 4, "third": 4, "fourth": 8}
"""So many words in a row may stand in a training state too. The fourth were written last, by somebody who knew none of
those, and stock phrases occur ("Returns are accepted within 30 days of delivery")."""


def rows(name: str) -> list[dict[str, Any]]:
    lines = (ROOT / f"benchmarks/{name}_tries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def runs(state: object, length: int) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9']+", compact(state).lower())
    return zip(*(words[start:] for start in range(length)), strict=False)


def training_states() -> Iterator[tuple[str, object]]:
    for path in (ROOT / "training/everyday").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            read = json.loads(line)
            for state in read.get("states") or [read["state"]]:
                yield path.name, state


@pytest.mark.parametrize("name", LONGEST)
def test_every_answer_is_an_option(name: str) -> None:
    for row in rows(name):
        question = msgspec.convert(row["question"], Question)
        answer = str(row["answer"]).lower() if isinstance(row["answer"], bool) else str(row["answer"])
        assert list(question.keys()).count(answer) == 1, row


def test_no_model_has_trained_on_them() -> None:
    asked: dict[int, set[tuple[str, ...]]] = {}
    for name, longest in LONGEST.items():
        found = {run for row in rows(name) for run in runs(row["state"], longest + 1)}
        assert found
        asked.setdefault(longest + 1, set()).update(found)
    for name, state in training_states():
        for length, some in asked.items():
            assert some.isdisjoint(runs(state, length)), (name, state)
