"""Rows that generators make, and the file that they write them to."""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

Row = dict[str, object]


def row(task: str, state: object, kind: str, ask: str, answer: object, criteria: object = None) -> Row:
    question: Row = {"type": kind, "instructions": ask}
    if criteria is not None:
        question["criteria"] = criteria
    return {"task": f"gen/{task}", "state": state, "question": question, "answer": answer}


def yes_no(rng: random.Random, task: str, state: object, ask: str, answer: bool) -> Row:
    """Mostly a noul; sometimes the same question as a two-way choice."""
    if rng.random() < 0.85:
        return row(task, state, "noul", ask, answer)
    yes, no = rng.choice((("yes", "no"), ("true", "false"), ("holds", "doesNotHold")))
    items = [(yes, ""), (no, "")]
    rng.shuffle(items)
    return row(task, state, "choice", ask, yes if answer else no, dict(items))


def one_of(rng: random.Random, task: str, state: object, ask: str, answer: str, options: list[str]) -> Row:
    """A choice among names, in any order."""
    rng.shuffle(options)
    return row(task, state, "choice", ask, answer, dict.fromkeys(options, ""))


def write(families: Mapping[Callable[[random.Random], Row], int], about: str) -> None:
    """The command of a generator: so many rows of each family."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("out", type=Path, help="a .jsonl.gz file")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--share", type=float, default=1.0, help="make this share of the usual number of rows")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with gzip.open(args.out, "wt", encoding="utf-8") as out:
        for family, size in families.items():
            for _ in range(int(size * args.share)):
                out.write(json.dumps(family(rng), ensure_ascii=False) + "\n")
