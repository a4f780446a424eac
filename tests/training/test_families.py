"""All families of made questions: each answer is an option, and neither yes nor no is the usual one."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from training import facts, readouts, snippets, sums
from training.data import example
from training.rows import Row

ROWS = 400
FAMILIES = [family for made in (facts, readouts, snippets, sums) for family in made.FAMILIES]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_question_has_its_answer_among_its_options_and_both_answers_occur(
    family: Callable[[random.Random], Row],
) -> None:
    rng = random.Random(5)
    rows: list[dict[str, Any]] = [family(rng) for _ in range(ROWS)]
    assert all(example(row) is not None for row in rows)
    yes = Counter(row["answer"] for row in rows if row["question"]["type"] == "noul")
    assert min(yes[True], yes[False]) > 0.25 * yes.total()
