"""Questions about a line of code: functions are run, and only those that keep their name's promise are called right."""

import random
import re
from itertools import product
from typing import Any

import pytest

from training.snippets import COMMANDS, FUNCTIONS, Function, command, function, loop

ROWS = 400
YES = {"yes", "true", "holds", True}
NUMBERS = (-3, -1, 0, 1, 2, 3, 5, 17, 18, 20, 2.5)
WORDS = ("", "a", "Anna ", "banana", "bee", " Ben", "sol")
LISTS: tuple[list[int], ...] = ([], [4], [1, 2], [3, 1, 2], [2, 2, 5], [0, -1, 4, 4])
DAYS = ("Monday", "Saturday", "Sunday", "Wednesday")
ARGUMENTS = {
    "items": LISTS,
    "xs": LISTS,
    "prices": LISTS,
    "text": WORDS,
    "word": WORDS,
    "name": WORDS,
    "day": DAYS,
    "p": (True, False),
    "q": (True, False),
    "n": (-3, 0, 1, 2, 3, 4, 9),
}


def outcomes(made: Function, body: str) -> list[object]:
    """What a body returns for many arguments; an error is an outcome too."""
    names, found = made.takes.split(", "), list[object]()
    work = eval(f"lambda {made.takes}: {body}")
    for values in product(*(ARGUMENTS.get(name, NUMBERS) for name in names)):
        try:
            came = work(*values)
            found.append(
                round(came, 9) if isinstance(came, float) else bool(came) if made.name.startswith("is_") else came
            )
        except (ZeroDivisionError, IndexError, TypeError, ValueError):
            found.append("error")
    return found


@pytest.mark.parametrize("made", FUNCTIONS, ids=lambda made: made.name)
def test_right_bodies_agree_and_wrong_ones_do_not(made: Function) -> None:
    first, *others = (outcomes(made, body) for body in made.right)
    assert any(outcome != "error" for outcome in first)
    if made.name not in ("greet", "shout", "starts_with_a"):  # these may do it in more than one way
        assert all(other == first for other in others)
    for body in made.wrong:
        assert all(outcomes(made, body) != right for right in (first, *others)), body


def test_a_function_is_called_right_where_its_body_is_one_of_the_right_ones() -> None:
    rng, seen = random.Random(6), 0
    for _ in range(ROWS):
        row: dict[str, Any] = function(rng)
        code = row["state"] if isinstance(row["state"], str) else row["state"]["code"]
        found = re.search(r"def (\w+)\(.*?\):\s+return (.+)$|^(\w+) = lambda .*?: (.+)$", code)
        if not found or row["question"]["instructions"] == "Which name would fit?":
            continue
        name, body = found[1] or found[3], found[2] or found[4]
        right = any(made.name == name and body in made.right for made in FUNCTIONS)
        turned = "bug" in row["question"]["instructions"]
        assert (row["answer"] in YES) == (right != turned), row
        seen += 1
    assert seen > 100


def test_only_what_changes_something_can_lose_it() -> None:
    assert all(made.changes for made in COMMANDS if made.destroys)
    rng = random.Random(7)
    for _ in range(ROWS):
        row: dict[str, Any] = command(rng)
        if row["question"]["type"] == "score":
            text = re.sub(
                r"^\$ ",
                "",
                row["state"] if isinstance(row["state"], str) else next(iter(reversed(row["state"].values()))),
            )
            (made,) = (made for made in COMMANDS if made.text == text)
            assert row["answer"] == made.changes + made.destroys


def test_a_loop_prints_as_often_as_it_runs() -> None:
    rng = random.Random(8)
    for _ in range(ROWS):
        row: dict[str, Any] = loop(rng)
        numbers = [int(part) for part in re.findall(r"\d+", row["state"])]
        if "range" in row["state"]:
            printed = list(range(*numbers))
        else:
            printed = list(range(numbers[0], numbers[1] + ("<=" in row["state"])))
        ask = row["question"]["instructions"]
        if ask.startswith("Does"):
            claimed = int(re.findall(r"\d+", ask)[0])
            assert (row["answer"] in YES) == (len(printed) == claimed)
        else:
            assert int(row["answer"]) == (printed[-1] if "last" in ask else len(printed))
