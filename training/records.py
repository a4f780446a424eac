"""Records drawn at random, shown as JSON, lines or prose, and conditions on them that are true or false on purpose."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import NamedTuple

Record = dict[str, object]

NOUNS = (
    "greenhouse bed", "ferry crossing", "museum loan", "beehive", "bakery batch", "rental bike", "wind turbine",
    "choir rehearsal", "archive box", "cable car", "water meter", "coffee roast", "translation job", "dance class",
    "harbour berth", "seed packet", "server rack", "playground inspection", "lost item", "quilt order",
    "delivery van", "research sample", "theatre ticket", "garden plot",
)  # fmt: skip
NUMBERS: dict[str, tuple[int, int, str]] = {
    "weight": (1, 90, "kg"), "price": (5, 900, "euros"), "age": (1, 80, "years"), "distance": (2, 600, "km"),
    "battery level": (0, 100, "%"), "error count": (0, 40, ""), "waiting time": (1, 180, "minutes"),
    "temperature": (-15, 45, "degrees"), "number of seats": (2, 60, ""), "stock": (0, 400, "units"),
    "discount": (0, 70, "%"), "speed": (5, 160, "km/h"), "page count": (4, 700, "pages"), "humidity": (5, 99, "%"),
    "days late": (0, 30, "days"), "attempts": (1, 12, ""), "budget": (100, 9000, "euros"), "rating": (1, 10, ""),
}  # fmt: skip
CHOICES: dict[str, tuple[str, ...]] = {
    "status": ("open", "closed", "on hold", "cancelled", "in review"),
    "colour": ("red", "blue", "green", "grey", "white"),
    "region": ("north", "south", "east", "west", "centre"), "priority": ("low", "normal", "high", "urgent"),
    "material": ("wood", "steel", "glass", "cotton", "clay"),
    "owner": ("Ines", "Tomas", "Priya", "Kofi", "Lena", "Omar"),
    "shift": ("morning", "afternoon", "night"), "plan": ("basic", "plus", "family", "premium"),
    "category": ("food", "tools", "books", "toys", "clothing"),
    "method": ("by post", "by courier", "pick-up", "by boat"),
}  # fmt: skip
FLAGS = (
    "insured", "verified", "archived", "damaged", "paid", "approved", "fragile", "public", "refundable", "heated",
    "signed", "overdue",
)  # fmt: skip
DATES = ("start date", "due date", "last check", "delivery date")


class Atom(NamedTuple):
    """One condition on a record: as a clause and as a question."""

    clause: str
    ask: str


def draw_one(rng: random.Random, name: str) -> object:
    """A value for one field."""
    if name in NUMBERS:
        return rng.randint(*NUMBERS[name][:2])
    if name in CHOICES:
        return rng.choice(CHOICES[name])
    if name in FLAGS:
        return rng.random() < 0.5
    return (date(2024, 1, 1) + timedelta(days=rng.randrange(1000))).isoformat()


def draw_record(rng: random.Random, size: int) -> Record:
    names = rng.sample([*NUMBERS, *CHOICES, *FLAGS, *DATES], size)
    return {name: draw_one(rng, name) for name in names}


def quantity(name: str, value: int) -> str:
    unit = NUMBERS[name][2]
    return f"{value}{'' if unit == '%' or not unit else ' '}{unit}" if unit else str(value)


def _number(rng: random.Random, name: str, value: int, want: bool) -> str:
    low, high, _ = NUMBERS[name]
    gap = max(1, int((high - low) * rng.choice((0.01, 0.05, 0.2, 0.4))))
    form = rng.choice(("above", "below", "least", "most", "exact", "between"))
    up, down = value + gap, value - gap
    if form == "between":
        a, b = (down, up) if want else rng.choice(((up, up + 2 * gap), (down - 2 * gap, down)))
        return f"is between {quantity(name, a)} and {quantity(name, b)}"
    if form == "exact":
        other = rng.choice((up, down))
        return f"is exactly {quantity(name, value if want else other)}"
    limit = {
        "above": down if want else rng.choice((up, value)),
        "below": up if want else rng.choice((down, value)),
        "least": rng.choice((down, value)) if want else up,
        "most": rng.choice((up, value)) if want else down,
    }[form]
    words = {
        "above": ("above", "more than", "greater than"),
        "below": ("below", "less than", "under"),
        "least": ("at least", "no less than"),
        "most": ("at most", "no more than", "not above"),
    }[form]
    return f"is {rng.choice(words)} {quantity(name, limit)}"


def atom(rng: random.Random, record: Record, want: bool, name: str | None = None) -> Atom:
    """A condition about the record (or about one field of it) that is true exactly when `want`."""
    name = name or rng.choice(list(record))
    value = record[name]
    if name in FLAGS:
        positive = bool(value) == want
        verb = "is" if positive else "is not"
        return Atom(f"it {verb} {name}", f"Is it {'' if positive else 'not '}{name}?")
    if name in NUMBERS:
        assert isinstance(value, int)
        tail = _number(rng, name, value, want)
    elif name in CHOICES:
        others = [o for o in CHOICES[name] if o != value]
        form = rng.randrange(3)
        if form == 0:
            tail = f"is {value if want else rng.choice(others)}"
        elif form == 1:
            tail = f"is not {rng.choice(others) if want else value}"
        else:
            pair = [str(value), rng.choice(others)] if want else rng.sample(others, 2)
            rng.shuffle(pair)
            tail = f"is {pair[0]} or {pair[1]}"
    else:
        day = date.fromisoformat(str(value))
        later = rng.random() < 0.5
        shift = timedelta(days=rng.choice((1, 7, 40, 200)))
        limit = day + shift if later == want else day - shift
        tail = f"is {'before' if later else 'after'} {limit.isoformat()}"
    return Atom(f"the {name} {tail}", f"Is the {name} {tail.removeprefix('is ')}?")


def key_of(name: str, style: int) -> str:
    words = name.split()
    return (name, "_".join(words), words[0] + "".join(w.title() for w in words[1:]), name.title())[style]


def show(rng: random.Random, noun: str, record: Record, ident: str | None = None) -> object:
    """A record as JSON, lines or prose."""
    style, form = rng.randrange(4), rng.randrange(4)
    ident = ident or f"{noun[:2].upper()}-{rng.randrange(100, 9999)}"
    if form <= 1:
        body = {key_of(k, style): v for k, v in record.items()}
        return {"id": ident, **body} if form == 0 else {noun.replace(" ", "_"): {"id": ident, "details": body}}
    if form == 2:
        lines = [f"{key_of(k, 3 if style > 1 else 0)}: {plain(k, v)}" for k, v in record.items()]
        return "\n".join([f"{noun.capitalize()} {ident}", *lines])
    return prose(rng, noun, record, ident)


def plain(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return quantity(name, value) if isinstance(value, int) else str(value)


def prose(rng: random.Random, noun: str, record: Record, ident: str) -> str:
    parts = []
    for name, value in record.items():
        if isinstance(value, bool):
            parts.append(
                f"it is {'' if value else 'not '}{name}"
                if rng.random() < 0.7
                else f"{name}: {'yes' if value else 'no'}"
            )
        else:
            parts.append(rng.choice(("the {} is {}", "its {} is {}", "{}: {}")).format(name, plain(name, value)))
    rng.shuffle(parts)
    return f"About {noun} {ident}. " + " ".join(p[0].upper() + p[1:] + "." for p in parts)
