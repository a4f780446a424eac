"""Makes questions about small sums: is it right, what comes out, and what follows in prices, times, days and units.

A network of this size does not calculate. Small sums it can know by heart, as people know their tables, and those are
what somebody tries first: "12 x 12 = 124. Right?"
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from training.rows import Row, one_of, row, write, yes_no

RIGHT = ("Is this right?", "Is it right so?", "Correct?", "true", "Is that correct?", "The result is right.")
WRONG = ("Is this wrong?", "Is there a mistake in it?", "The result is wrong.", "Miscalculated?")


class Sum(NamedTuple):
    """Two numbers, what is done with them, and what comes out."""

    a: int
    sign: str
    b: int
    result: int


def small(rng: random.Random) -> Sum:
    """Within the tables, or with two digits."""
    way = rng.randrange(5)
    if way < 2:
        a, b = rng.randint(2, 12), rng.choice((rng.randint(2, 12), 10, 100, 20))
        return Sum(a, "x", b, a * b) if way == 0 or rng.random() < 0.4 else Sum(a * b, "/", b, a)
    top = rng.choice((10, 20, 100))
    a, b = rng.randint(1, top), rng.randint(1, top)
    return Sum(a, "+", b, a + b) if way < 4 else Sum(max(a, b), "-", min(a, b), abs(a - b))


def near(rng: random.Random, done: Sum) -> int:
    """A wrong result as people get them: off by a little, the neighbour in the table, digits turned, another sign."""
    result = done.result
    others = [result + 1, result - 1, result + 2, result + 10, result - 10, done.a + done.b, abs(done.a - done.b)]
    if done.sign == "x":
        others += [done.a * (done.b + 1), done.a * (done.b - 1), done.a * done.b + done.a // 2]
    if 10 <= result < 1000:
        others.append(int(str(result)[::-1]))
    return rng.choice([other for other in others if other != result and other >= 0])


def _written(rng: random.Random, done: Sum, told: object) -> object:
    sign = {"x": rng.choice(("x", "\u00d7", "*")), "/": rng.choice("/÷:")}.get(done.sign, done.sign)
    word = {"x": "times", "/": "divided by", "+": "plus", "-": "minus"}[done.sign]
    return rng.choice(
        (
            f"{done.a} {sign} {done.b} = {told}",
            f"{done.a}{sign}{done.b}={told}",
            f"{done.a} {word} {done.b} is {told}.",
            {"question": f"What is {done.a} {sign} {done.b}?", "answer": str(told)},
            {f"{done.a} {sign} {done.b}": told},
            f"Question: {done.a} {word} {done.b}? Answer: {told}",
        )
    )


def equation(rng: random.Random) -> Row:
    """A sum with a right or a wrong result."""
    done, right = small(rng), rng.random() < 0.5
    state = _written(rng, done, done.result if right else near(rng, done))
    if rng.random() < 0.15:
        yes, no = rng.choice((("right", "wrong"), ("correct", "incorrect"), ("pass", "fail")))
        return one_of(
            rng, "equation", state, rng.choice(("Mark it", "right or wrong?", "Grade")), yes if right else no, [yes, no]
        )
    asks, answer = rng.choice(((RIGHT, right), (RIGHT, right), (WRONG, not right)))
    return yes_no(rng, "equation", state, rng.choice(asks), answer)


def _among(rng: random.Random, done: Sum) -> list[str]:
    results = {done.result}
    while len(results) < 4:
        results.add(near(rng, done))
    return [str(result) for result in results]


STORIES = {
    "x": (
        "{a} boxes with {b} pens each.",
        "{a} tables, {b} chairs at each.",
        "{a} tickets at {b} euros.",
        "{a} days of {b} hours.",
    ),
    "/": (
        "{a} sweets for {b} children, the same for each.",
        "{a} euros, split by {b} friends.",
        "{a} pages in {b} days, evenly.",
    ),
    "+": (
        "{a} guests, then {b} more arrive.",
        "{a} new tickets in the morning, {b} in the afternoon.",
        "{a} km out, {b} km on.",
    ),
    "-": (
        "{a} eggs, {b} of them are broken.",
        "{a} seats, {b} are taken.",
        "{a} licences, {b} of them used.",
        "A bill of {b}, paid with {a}.",
    ),
}
ASKS = {
    "x": ("How many in all?", "Total"),
    "/": ("How much for each?", "What is the share of one?"),
    "+": ("How many altogether?", "Sum"),
    "-": ("How much is left over?", "What remains?"),
}


def problem(rng: random.Random) -> Row:
    """A sum, bare or told in words: what comes out, or is it enough."""
    done = small(rng)
    story = rng.choice(STORIES[done.sign]).format(a=done.a, b=done.b)
    if rng.random() < 0.3:
        return one_of(rng, "problem", f"{done.a} {done.sign} {done.b}", "Result", str(done.result), _among(rng, done))
    if rng.random() < 0.5:
        return one_of(rng, "problem", story, rng.choice(ASKS[done.sign]), str(done.result), _among(rng, done))
    claimed = done.result if rng.random() < 0.5 else near(rng, done)
    told = {"x": "in all", "/": "for each", "+": "in all", "-": "left over"}[done.sign]
    return yes_no(rng, "problem", story, f"Is it {claimed} {told}?", claimed == done.result)


def percent(rng: random.Random) -> Row:
    """Shares of round numbers, and prices that are cut."""
    share, whole = rng.choice((10, 20, 25, 50, 75, 5, 100)), rng.choice((20, 40, 60, 80, 100, 120, 200, 400, 500, 1000))
    part = whole * share // 100
    right = rng.random() < 0.5
    off = rng.choice([v for v in (part * 2, part // 2, part + 10, whole - part, whole // 10) if part != v <= whole])
    told = part if right else off
    if rng.random() < 0.5:
        return yes_no(rng, "percent", f"{share} % of {whole} is {told}.", rng.choice(RIGHT), right)
    after = whole - told
    state = rng.choice(
        (
            f"Was {whole} euros, now {share} % off: {after} euros.",
            {"price": whole, "discount_percent": share, "new_price": after},
        )
    )
    return yes_no(rng, "percent", state, rng.choice(("Is the new price right?", "Does the discount add up?")), right)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def clock(rng: random.Random) -> Row:
    """When it ends that begins then and lasts so long."""
    start, length = rng.randrange(6 * 60, 19 * 60, 5), rng.choice((10, 15, 20, 30, 45, 60, 75, 90, 120, 150, 180))
    end = start + length
    last = {60: "an hour", 90: "an hour and a half", 120: "two hours", 180: "three hours"}.get(
        length, f"{length} minutes"
    )
    what = rng.choice(("The film", "The call", "The flight", "The backup", "The lesson", "The shift", "The meeting"))
    state = rng.choice(
        (f"{what} starts at {_clock(start)} and takes {last}.", {"start": _clock(start), "duration_min": length})
    )
    if rng.random() < 0.5:
        others = {end}
        while len(others) < 4:
            others.add(end + rng.choice((-60, -30, -15, 15, 30, 60, 90)))
        return one_of(
            rng, "clock", state, rng.choice(("When is it over?", "End")), _clock(end), [_clock(t) for t in others]
        )
    limit = end + rng.choice((-60, -30, -10, 10, 30, 60))
    return yes_no(rng, "clock", state, f"Is it over by {_clock(limit)}?", end <= limit)


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
STEPS = {
    1: ("tomorrow", "the day after"),
    2: ("the day after tomorrow", "two days later"),
    3: ("in three days", "three days later"),
    -1: ("yesterday", "the day before"),
    -2: ("the day before yesterday", "two days earlier"),
    7: ("in a week", "a week later"),
}


def calendar(rng: random.Random) -> Row:
    """Days of the week and months, some steps on."""
    names, unit = rng.choice(((DAYS, "day"), (DAYS, "day"), (MONTHS, "month")))
    at = rng.randrange(len(names))
    if unit == "month":
        step, told = rng.choice(
            ((1, "the next month"), (2, "two months later"), (-1, "the month before"), (12, "a year later"))
        )
        state, ask = (
            f"It is {names[at]}.",
            f"Which month is it {told}?" if step != 1 and step != -1 else f"Which is {told}?",
        )
    else:
        step = rng.choice(list(STEPS))
        first, second = STEPS[step]
        state, ask = rng.choice(
            (
                (f"Today is {names[at]}.", f"Which day is {first}?"),
                (f"The order came in on a {names[at]}.", f"Which day is {second}?"),
            )
        )
    right = names[(at + step) % len(names)]
    if rng.random() < 0.5:
        others = rng.sample([name for name in names if name != right], 3)
        return one_of(rng, "calendar", state, ask, right, [right, *others])
    said = right if rng.random() < 0.5 else rng.choice([name for name in names if name != right])
    return yes_no(rng, "calendar", state, f"{ask} {said}?", said == right)


UNITS = (
    ("kg", "g", 1000, "heavier"),
    ("km", "m", 1000, "longer"),
    ("m", "cm", 100, "longer"),
    ("l", "ml", 1000, "more"),
    ("hours", "minutes", 60, "longer"),
    ("minutes", "seconds", 60, "longer"),
    ("weeks", "days", 7, "longer"),
    ("GB", "MB", 1000, "more"),
    ("euros", "cents", 100, "more"),
    ("s", "ms", 1000, "longer"),
    ("days", "hours", 24, "longer"),
)


def units(rng: random.Random) -> Row:
    """Two quantities in different units."""
    large, little, factor, more = rng.choice(UNITS)
    a = rng.choice((1, 2, 3, 5, 10))
    b = rng.choice(
        (
            a * factor,
            a * factor // 2,
            a * factor * 2,
            a * factor + factor // 5 + 1,
            max(1, a * factor - factor // 5 - 1),
        )
    )
    first, second = f"{a} {large}", f"{b} {little}"
    if rng.random() < 0.4:
        return yes_no(rng, "units", f"{first} = {second}", rng.choice(RIGHT), a * factor == b)
    state: object = rng.choice(
        ({"a": first, "b": second}, f"a: {first}, b: {second}", f"First {first}, then {second}.")
    )
    names = (
        ["the first", "the second", "both the same"]
        if isinstance(state, str) and state[0] == "F"
        else ["a", "b", "neither"]
    )
    answer = names[2] if a * factor == b else names[a * factor < b]
    return one_of(rng, "units", state, f"Which is {more}?", answer, names)


def numbers(rng: random.Random) -> Row:
    """Which of some numbers is the largest, decimals, thousands and negative ones among them."""
    kind = rng.choice(("decimal", "thousand", "negative", "whole", "text"))
    draw: Callable[[], float] = {
        "decimal": lambda: round(rng.uniform(0, 2), rng.choice((1, 2, 3))),
        "thousand": lambda: rng.randint(90, 99999),
        "negative": lambda: rng.randint(-30, 30),
        "whole": lambda: rng.randint(1, 999),
        "text": lambda: rng.randint(1, 12),
    }[kind]
    found, size = set[float](), rng.choice((2, 3, 4))
    while len(found) < size:
        found.add(draw())
    values = rng.sample(sorted(found), len(found))
    shown = {v: f"{v:,}" if kind == "thousand" and rng.random() < 0.5 else str(v) for v in values}
    state: object = rng.choice(
        (", ".join(shown.values()) if kind != "thousand" else " / ".join(shown.values()), values)
    )
    most = rng.random() < 0.5
    right = shown[max(values) if most else min(values)]
    if rng.random() < 0.5:
        ask = rng.choice(("Which is the largest?", "maximum") if most else ("Which is the smallest?", "minimum"))
        return one_of(rng, "numbers", state, ask, right, list(shown.values()))
    if kind == "negative" and rng.random() < 0.5:
        told = sum(v > 0 for v in values)
        return row(
            "numbers",
            state,
            "score",
            "How many of them are above zero?",
            told,
            ["none", "one", "two", "three", "four"][: len(values) + 1],
        )
    a, b = rng.sample(values, 2)
    return yes_no(
        rng, "numbers", f"{shown[a]} > {shown[b]}", rng.choice(("Does it hold?", "true?", "Is that so?")), a > b
    )


def listing(rng: random.Random) -> Row:
    """A few numbers: their sum, their mean, their order, how many there are."""
    mean, size = rng.randint(2, 20), rng.choice((2, 3, 3, 4))
    rest = [rng.randint(1, 9) for _ in range(size - 1)]
    values = [*rest, mean * size - sum(rest)] if mean * size > sum(rest) else [mean] * size
    way = rng.randrange(3)
    if way == 0:
        total = sum(values)
        told = total if rng.random() < 0.5 else total + rng.choice((-10, -2, -1, 1, 2, 10))
        return yes_no(
            rng,
            "listing",
            {"items": values, "total": told},
            rng.choice(("Does the total add up?", "Is the total right?")),
            told == total,
        )
    if way == 1:
        values = sorted(values, reverse=rng.random() < 0.3) if rng.random() < 0.7 else values
        return yes_no(
            rng,
            "listing",
            values,
            rng.choice(("Sorted from small to large?", "ascending order")),
            values == sorted(values),
        )
    told = mean if rng.random() < 0.5 else mean + rng.choice((-2, -1, 1, 2, 5))
    return yes_no(rng, "listing", values, f"Is the average {told}?", told * len(values) == sum(values))


FAMILIES: dict[Callable[[random.Random], Row], int] = {
    equation: 16_000,
    problem: 10_000,
    percent: 4000,
    clock: 5000,
    calendar: 3000,
    units: 5000,
    numbers: 5000,
    listing: 4000,
}


if __name__ == "__main__":
    write(FAMILIES, __doc__ or "")
