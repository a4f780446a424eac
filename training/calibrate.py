"""Fits temperatures on tasks that were never trained on, and reports what they do.

A network is overconfident on tasks it has never seen, by an amount that depends on the kind of question and the number
of options; so there is one temperature per kind and option-count bucket. Training tasks that were held out have
siblings among the trained ones and look too easy, so the dev tasks and the kept hand-written states weigh `DEV_WEIGHT`
times as much, and the everyday questions twice that: they are what people ask. What that is worth on a task that took
no part in the fit is shown by fitting once without each dev task in turn.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decided.engines.embedded.layout import KINDS
from training.metrics import Answer, Floats, report

EDGES = (2, 5, 15)  # buckets: up to 2, up to 5, up to 15, more
GRID = np.exp(np.linspace(np.log(0.4), np.log(5.0), 61))
LEAST_ROWS = 150
TASK_ROWS = 200
DEV_WEIGHT = 20.0
EVERYDAY = "everyday"  # the dev task closest to what people ask

Temperatures = dict[str, list[float]]


def bucket(options: int) -> int:
    return sum(options > edge for edge in EDGES)


class Judged(NamedTuple):
    """An answer, its log-loss at every temperature of the grid, and how much it counts."""

    answer: Answer
    losses: Floats
    weight: float


def judged(answers: Sequence[Answer], weight: float = 1.0) -> list[Judged]:
    """At most `TASK_ROWS` answers of a task and kind, so that a large task does not decide alone."""
    seen: dict[tuple[str, int], int] = defaultdict(int)
    kept = []
    for a in answers:
        seen[a.task, a.kind] += 1
        if seen[a.task, a.kind] <= TASK_ROWS:
            scaled = a.logits[None] / GRID[:, None]
            top = scaled.max(1)
            losses = np.log(np.exp(scaled - top[:, None]).sum(1)) + top - scaled[:, a.gold]
            kept.append(Judged(a, losses, weight))
    return kept


def _best(rows: Sequence[Judged]) -> float:
    return float(GRID[int(np.argmin(sum(r.losses * r.weight for r in rows)))])


def fit(rows: Sequence[Judged]) -> Temperatures:
    out: Temperatures = {}
    for k, name in enumerate(KINDS):
        mine = [r for r in rows if r.answer.kind == k]
        whole = _best(mine) if len(mine) >= LEAST_ROWS else 1.0
        groups = [[r for r in mine if bucket(len(r.answer.logits)) == b] for b in range(len(EDGES) + 1)]
        out[name] = [_best(g) if len(g) >= LEAST_ROWS else whole for g in groups]
    return out


def weighed(held_out: Sequence[Answer], dev: Sequence[Answer], kept: Sequence[Answer]) -> list[Judged]:
    """All answers that temperatures are fitted on, with their weights."""
    everyday = [a for a in dev if a.task == EVERYDAY]
    others = [a for a in dev if a.task != EVERYDAY]
    return [
        *judged(held_out),
        *judged(kept, DEV_WEIGHT),
        *judged(others, DEV_WEIGHT),
        *judged(everyday, 2 * DEV_WEIGHT),
    ]


def left_out(rows: Sequence[Judged], dev: Sequence[Answer]) -> list[Answer]:
    """Every dev answer, scaled by temperatures that its own task had no part in."""
    out = []
    for task in sorted({a.task for a in dev}):
        found = fit([r for r in rows if r.answer.task != task])
        out += apply([a for a in dev if a.task == task], found)
    return out


def apply(answers: Sequence[Answer], temperatures: Temperatures) -> list[Answer]:
    def scaled(a: Answer) -> Answer:
        return a._replace(logits=a.logits / temperatures[KINDS[a.kind]][bucket(len(a.logits))])

    return [scaled(a) for a in answers]


def save_answers(path: Path, answers: Sequence[Answer]) -> None:
    np.savez_compressed(
        path,
        task=np.array([a.task for a in answers]),
        kind=np.array([a.kind for a in answers]),
        gold=np.array([a.gold for a in answers]),
        count=np.array([len(a.logits) for a in answers]),
        logits=np.concatenate([a.logits for a in answers]),
    )


def load_answers(path: Path) -> list[Answer]:
    with np.load(path) as z:
        parts = np.split(z["logits"].astype(np.float64), np.cumsum(z["count"])[:-1])
        rows = zip(z["task"], z["kind"], parts, z["gold"], strict=True)
        return [Answer(str(t), int(k), v, int(g)) for t, k, v, g in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("held_out", type=Path, help="answers of the held-out training tasks (.npz)")
    parser.add_argument("dev", type=Path, help="answers of the dev tasks (.npz)")
    parser.add_argument("kept", type=Path, help="answers of the kept hand-written states (.npz)")
    parser.add_argument("others", type=Path, nargs="*", help="answers to judge only")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    held_out, dev, kept = (load_answers(path) for path in (args.held_out, args.dev, args.kept))
    rows = weighed(held_out, dev, kept)
    temperatures = fit(rows)
    print(json.dumps({k: [round(t, 3) for t in v] for k, v in temperatures.items()}))

    def everyday(answers: Sequence[Answer], wanted: bool) -> list[Answer]:
        return [a for a in answers if (a.task == EVERYDAY) is wanted]

    sets = {"dev": everyday(dev, False), "everyday": everyday(dev, True), "kept": kept, "held out": held_out}
    for name, answers in (sets | {path.stem: load_answers(path) for path in args.others}).items():
        print(f"{name:12} raw     ", report(answers).line())
        print(f"{name:12} scaled  ", report(apply(answers, temperatures)).line())
    apart = left_out(rows, dev)
    for name, wanted in (("dev", False), (EVERYDAY, True)):
        print(f"{name:12} left out", report(everyday(apart, wanted)).line())
    if args.out:
        args.out.write_text(json.dumps(temperatures, indent=1))


if __name__ == "__main__":
    main()
