"""Values that stand side by side in one unit, and questions about them: the highest, the lowest, one beyond a limit."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import NamedTuple

from training.rows import Row, one_of, row, yes_no

NONE = ("none", "none of them", "nothing", "all fine")


class Theme(NamedTuple):
    """Things that are measured side by side: their names, the range and form of the values, and how one asks."""

    keys: tuple[str, ...]
    low: float
    high: float
    forms: tuple[str, ...]  # "fraction", "percent" (of one), "whole", or a unit that follows the number
    told: str
    most: tuple[str, ...]
    least: tuple[str, ...]
    short: tuple[str, ...] = ()  # asked where one that is nearly at the top stands out, or none


SHARES, WHOLE = ("fraction", "percent", "percent"), ("whole",)
PEOPLE = ("Ana", "Ben", "Chidi", "Dora", "Emil", "Fatou", "Goran", "Hana", "Ivo", "Joyce", "Kemal", "Lucia")
TEAMS = ("sales", "support", "finance", "legal", "design", "platform", "marketing", "operations")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
CITIES = ("Porto", "Leeds", "Lagos", "Osaka", "Lima", "Turin", "Gdansk", "Tunis", "Accra", "Bergen", "Quito", "Pune")
GOODS = ("apples", "pears", "carrots", "onions", "lemons", "leeks", "plums", "rice", "flour", "salt", "tea", "beans")
PARTS = ("pump", "valve", "boiler", "filter", "motor", "belt", "fan", "battery", "inverter", "relay", "tank")

THEMES = (
    Theme(("cpu", "memory", "disk", "swap", "gpu", "network", "file handles", "queue"), 0.02, 0.99, SHARES, "usage",
          ("Which resource is used most?", "Which one is the most loaded?"),
          ("Which resource has the most room left?", "Which one is used least?"),
          ("Which resource is short?", "Which one is nearly full?", "What is the bottleneck?", "Where is it tight?")),
    Theme(("/var", "/home", "/data", "/tmp", "/boot", "/srv", "/opt", "/logs"), 0.03, 0.99, SHARES, "usage",
          ("Which volume is the fullest?",), ("Which volume is the emptiest?",),
          ("Which volume is running out of space?", "Which disk needs cleaning up?")),
    Theme(("car park A", "car park B", "car park C", "car park D", "car park E"), 0.05, 0.99, SHARES, "occupancy",
          ("Which car park is the fullest?",), ("Where is the most room to park?",), ("Which one is almost full?",)),
    Theme(PARTS, 0.05, 0.99, SHARES, "wear", ("Which part is worn most?",), ("Which part is worn least?",),
          ("Which part must be replaced soon?",)),
    Theme(("/login", "/search", "/cart", "/checkout", "/export", "/health", "/upload"), 8, 4800, ("ms", "whole", " ms"),
          "latency", ("Which endpoint is the slowest?", "slowest?"), ("Which endpoint is the fastest?",)),
    Theme(("kitchen", "cellar", "office", "hall", "greenhouse", "server room", "nursery"), 3, 38, (" °C", "whole"),
          "temperature", ("Which room is the warmest?", "Where is it hottest?"), ("Which room is the coldest?",)),
    Theme(GOODS, 0, 480, ("whole", " kg"), "stock", ("Which one is there most of?", "What do we have most of?"),
          ("What do we have least of?", "Which is lowest?")),
    Theme(TEAMS, 1200, 96000, ("whole", " EUR", " USD"), "spending", ("Which team spent the most?", "Biggest spender?"),
          ("Which team spent the least?",)),
    Theme(PEOPLE, 2, 99, ("whole", " points", "%"), "result",
          ("Who is ahead?", "Who has the best result?", "Winner?"), ("Who came last?", "Who has the lowest result?")),
    Theme(PEOPLE, 18, 92, WHOLE, "age", ("Who is the oldest?",), ("Who is the youngest?",)),
    Theme(DAYS, 3, 900, ("whole", " visitors"), "count", ("Which day was the busiest?",),
          ("Which day was the quietest?",)),
    Theme(("positive", "negative", "neutral", "mixed"), 0.01, 0.97, ("fraction", "percent"), "score",
          ("Which label is the most likely?", "Which label should be taken?"), ("Which label is the least likely?",)),
    Theme(("train", "bus", "bike", "car", "ferry"), 6, 170, (" min", "whole"), "duration",
          ("Which takes longest?",), ("Which is the quickest way?", "What is fastest?")),
    Theme(("offer A", "offer B", "offer C", "offer D", "offer E"), 90, 8800, (" EUR", "whole", " GBP"), "price",
          ("Which offer is the dearest?",), ("Which offer is the cheapest?", "Cheapest?")),
)  # fmt: skip
MEASURES = (
    "error rate", "price", "weight", "distance", "rating", "rainfall", "queue length", "turnover", "delay",
    "noise level", "number of returns", "retries", "humidity", "speed", "backlog", "churn", "uptime", "open tickets",
)  # fmt: skip


def _theme(rng: random.Random) -> Theme:
    """One of the themes above, or any things with any measure."""
    if rng.random() < 0.6:
        return rng.choice(THEMES)
    keys, told = rng.choice((PEOPLE, TEAMS, CITIES, GOODS, PARTS)), rng.choice(MEASURES)
    low, high, forms = rng.choice((
        (0.01, 0.99, SHARES), (1, 9, WHOLE), (1, 99, ("whole", "%")), (100, 9900, WHOLE),
    ))  # fmt: skip
    most = (f"Which one has the highest {told}?", f"highest {told}", f"Where is the {told} highest?")
    least = (f"Which one has the lowest {told}?", f"lowest {told}", f"Where is the {told} lowest?")
    return Theme(keys, low, high, forms, told, most, least)


def _shown(value: float, form: str) -> object:
    if form == "fraction":
        return value
    if form == "percent":
        return f"{round(value * 100)}%"
    return round(value) if form == "whole" else f"{round(value)}{form}"


def _value(rng: random.Random, theme: Theme) -> float:
    if theme.high < 1:
        return round(rng.uniform(theme.low, theme.high), rng.choice((2, 2, 1)))
    return float(rng.randint(int(theme.low), int(theme.high)))


def _readings(rng: random.Random, theme: Theme) -> dict[str, float]:
    """Values without ties; where one may stand out, it does or none does."""
    names = rng.sample(theme.keys, rng.randint(3, min(6, len(theme.keys))))
    while True:
        values = {name: _value(rng, theme) for name in names}
        if len(set(values.values())) == len(names):
            return values


def _listed(rng: random.Random, shown: dict[str, object]) -> object:
    """Mostly JSON, flat, nested or with other fields around it; sometimes a line of text."""
    way = rng.randrange(6)
    if way == 0:
        return ", ".join(f"{name} {value}" for name, value in shown.items())
    if way == 1:
        return "\n".join(f"{name}: {value}" for name, value in shown.items())
    if way == 2:
        return [{"name": name, "value": value} for name, value in shown.items()]
    if way == 3:
        moment = datetime(2026, 1, 1) + timedelta(minutes=rng.randrange(525_000))
        named = rng.choice(("values", "readings", "data"))
        return {"id": rng.randrange(100, 99999), "at": moment.isoformat(), named: shown}
    return shown


def gauge(rng: random.Random) -> Row:
    """The highest or lowest of some values, or whether one of them is beyond a limit."""
    theme = _theme(rng)
    values, form = _readings(rng, theme), rng.choice(theme.forms)
    if theme.short and rng.random() < 0.6:
        return _shortage(rng, theme, values, form)
    state = _listed(rng, {name: _shown(value, form) for name, value in values.items()})
    top, low = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    if rng.random() < 0.5:
        asks, answer = rng.choice(((theme.most, top), (theme.least, low)))
        return one_of(rng, "extreme", state, rng.choice(asks), answer, list(values))
    return _compared(rng, theme, values, form, state)


def _compared(rng: random.Random, theme: Theme, values: dict[str, float], form: str, state: object) -> Row:
    told = theme.told
    a, b = rng.sample(list(values), 2)
    way = rng.randrange(4)
    if way == 0:
        ask = rng.choice((f"Is the {told} of {a} higher than that of {b}?", f"{a} has a higher {told} than {b}."))
        return yes_no(rng, "comparison", state, ask, values[a] > values[b])
    limit = _value(rng, theme)
    said, over = _shown(limit, form), [name for name, value in values.items() if value > limit]
    if way == 1:
        return yes_no(rng, "comparison", state, f"Is the {told} of {a} above {said}?", values[a] > limit)
    if way == 2:
        ask, answer = rng.choice(((f"Is any of them above {said}?", bool(over)),
                                  (f"Are all of them at or below {said}?", not over)))  # fmt: skip
        return yes_no(rng, "comparison", state, ask, answer)
    levels = ["none", "one", "two", "three", "four", "five", "six"][: len(values) + 1]
    return row("comparison", state, "score", f"How many of them are above {said}?", len(over), levels)


def _shortage(rng: random.Random, theme: Theme, values: dict[str, float], form: str) -> Row:
    """One is nearly at the top, or none is."""
    calm = {name: round(rng.uniform(0.04, 0.7), 2) for name in values}
    tight = rng.choice(list(values)) if rng.random() < 0.7 else None
    if tight:
        calm[tight] = round(rng.uniform(0.92, 0.99), 2)
    state, none = _listed(rng, {name: _shown(value, form) for name, value in calm.items()}), rng.choice(NONE)
    if rng.random() < 0.3:
        ask = rng.choice(("Is anything about to run out?", "Is one of them critical?", "Alert?"))
        return yes_no(rng, "shortage", state, ask, tight is not None)
    return one_of(rng, "shortage", state, rng.choice(theme.short), tight or none, [*calm, none])
