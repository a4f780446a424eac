"""Small steps of understanding in a sentence or two: who gave what to whom, what came last, who is left out.

`training/patterns/*.json` holds the words: lists of patterns, each with several ways to tell the same thing about slots
(people, things, places, days, times, colours, whole numbers) and questions whose answers follow from what is told.
"""

from __future__ import annotations

import argparse
import gzip
import json
import operator
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.scenes import NAMES
from training.stories import Row, all_fillers

Pattern = dict[str, Any]
Values = dict[str, Any]

WORDS: dict[str, tuple[str, ...]] = {
    "name": tuple(NAMES),
    "thing": (
        "the key", "the ladder", "the red folder", "the drill", "the cake", "the camera", "the tent", "the umbrella",
        "the contract", "the charger", "the map", "the guitar", "the projector", "the spare tyre", "the first aid kit",
    ),
    "place": (
        "the kitchen", "the cellar", "the office", "the garage", "the hall", "the pantry", "the library", "the van",
        "the canteen", "the shed", "the reading room", "the storeroom", "the lobby", "the attic", "the workshop",
    ),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "colour": ("red", "blue", "green", "yellow", "black", "white", "grey", "orange", "purple", "brown"),
    "time": tuple(f"{hour}:{minute}" for hour in range(7, 21) for minute in ("00", "15", "30", "45")),
}  # fmt: skip
COMPARED: dict[str, Callable[[int, int], bool]] = {"<": operator.lt, ">": operator.gt}
FILLED = 0.35
"""How often a sentence about something else stands before or after."""


def drawn(rng: random.Random, slots: dict[str, Any], where: list[str]) -> Values:
    """A value for each slot, no two alike, such that the comparisons hold. `[low, high]` are whole numbers."""
    for _ in range(500):
        values: Values = {}
        for slot, kind in slots.items():
            some = range(kind[0], kind[1] + 1) if isinstance(kind, list) else WORDS[kind]
            values[slot] = rng.choice([v for v in some if v not in values.values()])
        if all(holds(values, condition) for condition in where):
            return values
    raise ValueError(f"no values for {slots} with {where}")


def holds(values: Values, condition: str) -> bool:
    """Whether `x<y` or `x>y` is so. Times are compared as times of day, days by their place in the week."""
    one, sign, other = re.split("([<>])", condition.replace(" ", ""))
    return COMPARED[sign](_size(values[one]), _size(values[other]))


def _size(value: Any) -> int:
    if isinstance(value, int):
        return value
    if value in WORDS["day"]:
        return WORDS["day"].index(value)
    hour, minute = value.split(":")
    return int(hour) * 60 + int(minute)


def option(text: str, values: Values) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), text)


def filled(text: str, values: Values) -> str:
    """As an option, but with a capital letter."""
    found = option(text, values)
    return found[:1].upper() + found[1:]


def chosen(answer: Any, values: Values) -> Any:
    """The answer itself, or what a comparison decides."""
    if isinstance(answer, dict):
        return answer["then"] if holds(values, answer["if"]) else answer["else"]
    return answer


def made(rng: random.Random, name: str, pattern: Pattern, fillers: list[str]) -> Row:
    values = drawn(rng, pattern["slots"], pattern.get("where", []))
    parts = [filled(rng.choice(pattern["tell"]), values)]
    while rng.random() < FILLED:
        parts.insert(rng.choice((0, len(parts))), rng.choice(fillers))
    asked = rng.choice(pattern["questions"])
    ask, answer = filled(rng.choice(asked["ask"]), values), chosen(asked["answer"], values)
    question: Row = {"type": asked["type"], "instructions": ask}
    if asked["type"] == "noul":
        answer = holds(values, answer) if isinstance(answer, str) else answer
    else:
        options = [option(text, values) for text in asked["options"]]
        answer = option(answer, values)
        question["criteria"] = dict.fromkeys(rng.sample(options, len(options)), "")
    return {"task": f"story/pattern/{name}", "state": " ".join(parts), "question": question, "answer": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", type=Path, help="folder of patterns")
    parser.add_argument("domains", type=Path, help="folder of domain files, for sentences that decide nothing")
    parser.add_argument("out", type=Path, help="a .jsonl.gz file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=150, help="of each pattern")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    domains = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(args.domains.glob("*.json"))]
    fillers = all_fillers(domains)
    with gzip.open(args.out, "wt", encoding="utf-8", compresslevel=1) as out:
        for path in sorted(args.patterns.glob("*.json")):
            for number, pattern in enumerate(json.loads(path.read_text(encoding="utf-8")), 1):
                for _ in range(args.rows):
                    row = made(rng, f"{path.stem}/{number}", pattern, fillers)
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
