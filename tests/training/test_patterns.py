"""Small steps of understanding: every question can be answered, and comparisons decide as they say."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import training
from training.data import example
from training.patterns import Pattern, drawn, holds, made

FOLDER = Path(training.__file__).parent / "patterns"
FILES: dict[str, list[Pattern]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
TICKETS: Pattern = {
    "slots": {"A": "name", "B": "name", "x": [2, 9], "y": [2, 9]},
    "tell": ["{A} sold {x} and {B} {y}."],
    "questions": [
        {"type": "choice", "ask": ["Who sold more?"], "options": ["{A}", "{B}"],
         "answer": {"if": "x>y", "then": "{A}", "else": "{B}"}},
        {"type": "noul", "ask": ["Did {A} sell fewer than {B}?"], "answer": "x<y"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_pattern_makes_questions_that_can_be_answered(name: str) -> None:
    rng = random.Random(1)
    for pattern in FILES[name]:
        for question in pattern["questions"]:
            for _ in range(5):
                row: dict[str, Any] = made(rng, name, {**pattern, "questions": [question]}, ["Nothing else."])
                assert example(row) is not None, row
                assert "{" not in row["state"] + row["question"]["instructions"]


def test_a_comparison_decides_the_answer() -> None:
    rng = random.Random(2)
    for _ in range(200):
        row: dict[str, Any] = made(rng, "tickets", TICKETS, ["Nothing else."])
        sold = {name: int(number) for name, number in re.findall(r"(\w+) (?:sold )?(\d)", row["state"])}
        (a, x), (b, y) = sold.items()
        assert row["answer"] == ((a if x > y else b) if row["question"]["type"] == "choice" else x < y), row


def test_values_differ_and_keep_to_what_the_pattern_wants() -> None:
    rng = random.Random(3)
    for _ in range(100):
        values = drawn(
            rng, {"A": "name", "B": "name", "t": "time", "u": "time", "d": "day", "e": "day"}, ["t<u", "d>e"]
        )
        assert len(set(values.values())) == 6
        assert holds(values, "u > t")
        assert holds(values, "e<d")
    assert holds({"t": "9:45", "u": "10:00"}, "t<u")
    with pytest.raises(ValueError, match="no values"):
        drawn(rng, {"x": [1, 2], "y": [3, 4]}, ["x>y"])


def test_there_are_many_patterns() -> None:
    assert sum(len(patterns) for patterns in FILES.values()) >= 200
