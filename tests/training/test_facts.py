"""Questions about what everybody knows: what is called right stands in the table, and what is called wrong does not."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from training.facts import FACTS, MISSED, capital, coded, order, relation, statement
from training.rows import Row

ROWS = 400
YES = {"yes", "true", "holds", "right", "correct", True}


def made(family: Callable[[random.Random], Row]) -> list[dict[str, Any]]:
    rng = random.Random(5)
    return [family(rng) for _ in range(ROWS)]


@pytest.mark.parametrize("name", FACTS.relations)
def test_a_relation_says_and_asks_about_its_things_and_has_several_answers(name: str) -> None:
    known = FACTS.relations[name]
    assert all("{a}" in way and "{b}" in way for way in known.says)
    assert all("{a}" in way and "{b}" not in way for way in known.asks)
    assert len(set(known.pairs.values())) >= 4


def test_answers_to_quiz_questions_are_those_of_the_table() -> None:
    right = {
        (way.format(a=a), capital(b))
        for known in FACTS.relations.values()
        for a, b in known.pairs.items()
        for way in known.asks
    }
    seen = 0
    for row in made(relation):
        state = row["state"]
        if not isinstance(state, dict) or len(state) != 2:
            continue
        asked, told = state.values()
        turned = row["question"]["instructions"] in MISSED
        assert (row["answer"] in YES) == (((asked, told.rstrip(".")) in right) != turned), row
        seen += 1
    assert seen > 50


def test_a_code_in_a_record_stands_for_what_the_table_says() -> None:
    kinds = set()
    for row in made(coded):
        state, question = row["state"], row["question"]
        inner = (
            next(iter(state.values())) if len(state) == 1 and isinstance(next(iter(state.values())), dict) else state
        )
        known = next(each for each in FACTS.relations.values() if each.field and each.field in inner)
        meant = known.pairs[inner[known.field]]
        kinds.add(question["type"])
        if row["answer"] in YES or row["answer"] in (False, "no", "false", "doesNotHold"):
            assert (row["answer"] in YES) == question["instructions"].rstrip("?").endswith(meant), row
        else:
            assert row["answer"] == meant
            assert len(set(question["criteria"])) == len(question["criteria"]) >= 3
    assert kinds == {"choice", "noul"}


def test_a_statement_is_called_true_where_it_is() -> None:
    seen = 0
    for row in made(statement):
        state = row["state"]
        said = state if isinstance(state, str) else next(iter(state.values()))
        true = said.rstrip(".") + "." in FACTS.statements
        if row["question"]["instructions"] in ("True?", "Is that so?", "Correct?", "fact", "This is true."):
            assert (row["answer"] in YES) == true, row
            seen += 1
    assert seen > 100
    assert set(FACTS.statements).isdisjoint(FACTS.statements.values())


def test_the_larger_of_two_is_further_on_in_its_order() -> None:
    seen = 0
    for row in made(order):
        ask = row["question"]["instructions"]
        if not ask.startswith("Which is"):
            continue
        word = ask.removeprefix("Which is ").removesuffix("?")
        (known,) = (o for o in FACTS.orders.values() if word in (*o.more, *o.less) and row["answer"] in o.items)
        options = sorted(row["question"]["criteria"], key=known.items.index)
        assert row["answer"] == options[1 if word in known.more else 0]
        seen += 1
    assert seen > 100
