"""Questions about small sums: the answer is what comes out when somebody else does the sum."""

import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from training.rows import Row
from training.sums import (
    DAYS,
    MONTHS,
    RIGHT,
    calendar,
    clock,
    equation,
    listing,
    numbers,
    percent,
    problem,
    units,
)

ROWS = 400
YES = {"yes", "true", "holds", "right", "correct", "pass", True}
SIGNS = {
    "x": "*",
    "\u00d7": "*",
    "÷": "/",
    ":": "/",
    " times ": "*",
    " divided by ": "/",
    " plus ": "+",
    " minus ": "-",
}


def made(family: Callable[[random.Random], Row], kind: str = "") -> list[dict[str, Any]]:
    rng = random.Random(5)
    rows: list[dict[str, Any]] = [family(rng) for _ in range(ROWS)]
    return [row for row in rows if not kind or row["question"]["type"] == kind]


def said(row: dict[str, Any]) -> bool:
    """The answer of a yes/no question, however it was put."""
    return row["answer"] in YES


def worked_out(text: str) -> Fraction:
    for sign, plain in SIGNS.items():
        text = text.replace(sign, plain)
    found = re.fullmatch(r"\s*(\d+)\s*([-+*/])\s*(\d+)\s*", text)
    assert found, text
    a, b = Fraction(found[1]), Fraction(found[3])
    return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[found[2]]


def test_a_sum_is_right_or_wrong() -> None:
    for row in made(equation):
        state, ask = row["state"], row["question"]["instructions"]
        if isinstance(state, str):
            text, told = re.split(r" is | ?= ?|\? Answer: ", state.removeprefix("Question: ").removesuffix("."))
        elif "answer" in state:
            text, told = state["question"].removeprefix("What is ").removesuffix("?"), state["answer"]
        else:
            ((text, told),) = state.items()
        right = worked_out(text) == Fraction(told)
        turned = "wrong" in ask.lower().split(" or ")[0] or "mistake" in ask or "Miscalculated" in ask
        assert said(row) == (right != turned), row


def test_what_comes_out_of_a_problem_is_what_its_numbers_make() -> None:
    signs = {
        "How many in all?": "*",
        "Total": "*",
        "How much for each?": "/",
        "What is the share of one?": "/",
        "How many altogether?": "+",
        "Sum": "+",
        "How much is left over?": "-",
        "What remains?": "-",
    }
    seen = 0
    for row in made(problem, "choice"):
        ask = row["question"]["instructions"]
        if ask == "Result":
            assert worked_out(row["state"]) == Fraction(row["answer"])
        elif ask in signs:
            a, b = (int(part) for part in re.findall(r"\d+", row["state"]))
            a, b = (b, a) if row["state"].startswith("A bill") else (a, b)
            assert worked_out(f"{a}{signs[ask]}{b}") == Fraction(row["answer"]), row
        seen += 1
    assert seen > 100


def test_shares_and_discounts_add_up() -> None:
    for row in made(percent):
        state = row["state"]
        if isinstance(state, dict):
            share, whole, told = state["discount_percent"], state["price"], state["price"] - state["new_price"]
        elif state.startswith("Was"):
            whole, share, after = (int(part) for part in re.findall(r"\d+", state))
            told = whole - after
        else:
            share, whole, told = (int(part) for part in re.findall(r"\d+", state))
        turned = row["question"]["instructions"] not in (*RIGHT, "Is the new price right?", "Does the discount add up?")
        assert said(row) == ((share * whole == told * 100) != turned), row


def minutes(clock: str) -> int:
    hours, rest = clock.split(":")
    return int(hours) * 60 + int(rest)


def test_an_end_is_its_beginning_and_what_it_takes() -> None:
    words = {"an hour": 60, "an hour and a half": 90, "two hours": 120, "three hours": 180}
    for row in made(clock):
        state = row["state"]
        if isinstance(state, dict):
            end = minutes(state["start"]) + state["duration_min"]
        else:
            start, lasts = re.findall(r"starts at (\S+) and takes (.+)\.", state)[0]
            end = minutes(start) + (words.get(lasts) or int(lasts.split()[0]))
        by = re.fullmatch(r"Is it over by (.+)\?", row["question"]["instructions"])
        if by:
            assert said(row) == (end <= minutes(by[1]))
        else:
            assert minutes(row["answer"]) == end


def test_days_and_months_follow_each_other() -> None:
    steps = {
        "tomorrow": 1,
        "the day after": 1,
        "the day after tomorrow": 2,
        "two days later": 2,
        "in three days": 3,
        "three days later": 3,
        "yesterday": -1,
        "the day before": -1,
        "the day before yesterday": -2,
        "two days earlier": -2,
        "in a week": 7,
        "a week later": 7,
        "the next month": 1,
        "two months later": 2,
        "the month before": -1,
        "a year later": 12,
    }
    for row in made(calendar):
        names = DAYS if any(day in row["state"] for day in DAYS) else MONTHS
        here = next(name for name in names if name in row["state"])
        told, claimed = re.findall(
            r"Which (?:day is it|day is|month is it|is) (.+?)\?(?: (\w+)\?)?$", row["question"]["instructions"]
        )[0]
        right = names[(names.index(here) + steps[told]) % len(names)]
        if claimed:
            assert said(row) == (claimed == right), row
        else:
            assert row["answer"] == right, row


IN_SMALLEST = {
    "kg": 1000, "g": 1, "km": 100_000, "m": 100, "cm": 1, "l": 1000, "ml": 1, "weeks": 604_800_000, "days": 86_400_000,
    "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "s": 1000, "ms": 1, "GB": 1000, "MB": 1, "euros": 100,
    "cents": 1,
}  # fmt: skip


def test_quantities_are_compared_in_one_unit() -> None:
    for row in made(units):
        text = str(row["state"])
        first, second = (int(number) * IN_SMALLEST[unit] for number, unit in re.findall(r"(\d+) ([A-Za-z]+)", text))
        if "=" in text:
            assert said(row) == (first == second), row
        else:
            names = [["the first", "a"], ["the second", "b"], ["both the same", "neither"]]
            assert row["answer"] in names[2 if first == second else int(first < second)], row


def test_the_largest_of_some_numbers_is_the_largest() -> None:
    for row in made(numbers):
        state, ask = row["state"], row["question"]["instructions"]
        if isinstance(state, str) and ">" in state:
            a, b = (Fraction(part.replace(",", "")) for part in state.split(" > "))
            assert said(row) == (a > b)
            continue
        parts = re.split(r", | / ", state) if isinstance(state, str) else [str(value) for value in state]
        values = [Fraction(part.replace(",", "")) for part in parts]
        if row["question"]["type"] == "score":
            assert row["answer"] == sum(value > 0 for value in values)
        else:
            most = "largest" in ask or ask == "maximum"
            assert Fraction(row["answer"].replace(",", "")) == (max if most else min)(values)


def test_lists_have_the_total_the_mean_and_the_order_that_is_said() -> None:
    for row in made(listing):
        state, ask = row["state"], row["question"]["instructions"]
        if isinstance(state, dict):
            assert said(row) == (sum(state["items"]) == state["total"])
        elif average := re.fullmatch(r"Is the average (-?\d+)\?", ask):
            assert said(row) == (int(average[1]) * len(state) == sum(state))
        else:
            assert said(row) == (state == sorted(state))
