"""Makes questions about things that everybody knows: is it so, is the answer right, which of two is larger.

The encoders have read it all; what they lack is the habit of answering from it. `facts.json` has what is asked about.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from training.rows import Row, one_of, write, yes_no


class Relation(msgspec.Struct):
    """Things and what belongs to each, with ways to say it and to ask for it."""

    says: list[str]
    asks: list[str]
    pairs: dict[str, str]
    field: str = ""
    """What a record calls it, where things are codes that stand in records."""


class Order(msgspec.Struct):
    """Things, the least first, and the words for more and less of what orders them."""

    more: list[str]
    less: list[str]
    items: list[str]


class Facts(msgspec.Struct):
    """All that is asked about. Each true statement has a false one beside it."""

    relations: dict[str, Relation]
    statements: dict[str, str]
    orders: dict[str, Order]


FACTS = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=Facts)
HOLDS = ("True?", "Is that so?", "Correct?", "fact", "This is true.", "Is this a fact?", "accurate")
FAILS = ("False?", "Is this untrue?", "Is there an error in it?", "This is wrong.")
ANSWERED = ("Is that answer right?", "Correct?", "Was the question answered correctly?", "The answer is right.")
MISSED = ("Is that answer wrong?", "Is there a mistake in the answer?", "incorrect")


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _judged(rng: random.Random, state: object, right: bool, holds: tuple[str, ...], fails: tuple[str, ...]) -> Row:
    if rng.random() < 0.12:
        yes, no = rng.choice((("right", "wrong"), ("correct", "incorrect"), ("true", "false")))
        return one_of(
            rng, "fact", state, rng.choice(("Right or wrong?", "verdict", "Mark it")), yes if right else no, [yes, no]
        )
    asks, answer = rng.choice(((holds, right), (holds, right), (holds, right), (fails, not right)))
    return yes_no(rng, "fact", state, rng.choice(asks), answer)


def relation(rng: random.Random) -> Row:
    """Something and what belongs to it, or to something else."""
    names = list(FACTS.relations)
    known = FACTS.relations[rng.choices(names, [len(FACTS.relations[name].pairs) ** 0.5 for name in names])[0]]
    a, b = rng.choice(list(known.pairs.items()))
    others = sorted(set(known.pairs.values()) - {b})
    ask = rng.choice(known.asks).format(a=a)
    if rng.random() < 0.25:
        state = rng.choice((capital(a), {"question": ask}, ask))
        return one_of(
            rng,
            "fact",
            state,
            ask if state == capital(a) else "The answer?",
            b,
            [b, *rng.sample(others, min(3, len(others)))],
        )
    right = rng.random() < 0.5
    said = b if right else rng.choice(others)
    if rng.random() < 0.5:
        return _judged(rng, capital(rng.choice(known.says).format(a=a, b=said)), right, HOLDS, FAILS)
    told = capital(said) + rng.choice(("", "."))
    state = rng.choice(
        ({"question": ask, "answer": told}, f"Q: {ask}\nA: {told}", {"quiz": ask, "pupil": told}, f"{ask} {told}")
    )
    return _judged(rng, state, right, ANSWERED, MISSED)


def coded(rng: random.Random) -> Row:
    """A code in a record, beside other fields, and what it stands for."""
    known = rng.choice([each for each in FACTS.relations.values() if each.field])
    a, b = rng.choice(list(known.pairs.items()))
    others = sorted(set(known.pairs.values()) - {b})
    around: list[tuple[str, object]] = [
        ("id", rng.randint(100, 99_999)),
        ("status", rng.choice(("open", "paid", "new", "closed"))),
        ("amount", rng.randint(1, 900)),
        ("name", rng.choice(("Iris", "M. Okafor", "order 17", "Lund & Co"))),
    ]
    fields = [(known.field, a), *rng.sample(around, rng.randint(0, 3))]
    rng.shuffle(fields)
    inner: object = dict(fields)
    state = {rng.choice(("order", "customer", "record")): inner} if rng.random() < 0.2 else inner
    if rng.random() < 0.6:
        ask = rng.choice((f"Which {known.field}?", known.field, f"What does the field {known.field} stand for?"))
        return one_of(rng, "fact", state, ask, b, [b, *rng.sample(others, rng.randint(2, 5))])
    said = b if rng.random() < 0.5 else rng.choice(others)
    return yes_no(
        rng, "fact", state, rng.choice((f"Is the {known.field} {said}?", f"{known.field}: {said}")), said == b
    )


def statement(rng: random.Random) -> Row:
    """A statement that is true, or its false twin."""
    true, false = rng.choice(list(FACTS.statements.items()))
    right = rng.random() < 0.5
    said = true if right else false
    state = rng.choice((said, said, said.rstrip("."), {"claim": said}, {"statement": said, "source": "quiz"}))
    return _judged(rng, state, right, HOLDS, FAILS)


def order(rng: random.Random) -> Row:
    """Two things of which one is the larger, the faster, the dearer."""
    known = rng.choice(list(FACTS.orders.values()))
    low, high = sorted(rng.sample(range(len(known.items)), 2))
    a, b = rng.sample((low, high), 2)
    more = rng.random() < 0.6
    word = rng.choice(known.more if more else known.less)
    first, second = known.items[a], known.items[b]
    if rng.random() < 0.5:
        right = (a > b) == more
        return _judged(rng, capital(f"{first} is {word} than {second}."), right, HOLDS, FAILS)
    state = rng.choice((f"{first} / {second}", {"a": first, "b": second}, f"{capital(first)} and {second}."))
    return one_of(rng, "fact", state, f"Which is {word}?", known.items[high if more else low], [first, second])


FAMILIES: dict[Callable[[random.Random], Row], int] = {relation: 30_000, coded: 10_000, statement: 5000, order: 8000}


if __name__ == "__main__":
    write(FAMILIES, __doc__ or "")
