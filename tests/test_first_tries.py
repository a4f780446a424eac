"""The questions that `make eval-model` asks: each has one option for an answer, and no model has trained on them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from decided.contract.types import Question, compact
from tests.support.server import ROOT

RUN = 5
"""So many words in a row are no coincidence."""


def rows() -> list[dict[str, Any]]:
    files = [ROOT / f"benchmarks/{name}_tries.jsonl" for name in ("first", "second", "third")]
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def runs(state: object) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9']+", compact(state).lower())
    return zip(*(words[start:] for start in range(RUN)), strict=False)


def test_every_answer_is_an_option() -> None:
    for row in rows():
        question = msgspec.convert(row["question"], Question)
        answer = str(row["answer"]).lower() if isinstance(row["answer"], bool) else str(row["answer"])
        assert list(question.keys()).count(answer) == 1, row


def test_no_model_has_trained_on_them() -> None:
    asked = {run for row in rows() for run in runs(row["state"])}
    assert asked
    for path in (ROOT / "training/everyday").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            read = json.loads(line)
            for state in read.get("states") or [read["state"]]:
                assert asked.isdisjoint(runs(state)), (path.name, state)
