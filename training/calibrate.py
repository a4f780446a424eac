"""Fits temperatures on tasks that were never trained on, and reports what they do.

A network is overconfident on tasks it has never seen, by an amount that depends on the kind of question and the number
of options; so there is one temperature per kind and option-count bucket, and one steepness per kind. Training tasks
that were held out have siblings among the trained ones and look too easy, so the dev tasks weigh `DEV_WEIGHT` times as
much, and the everyday questions twice that: they are what people ask. The kept hand-written states were written to be
hard, and count once. What the fit is worth on a task that took no part in it is shown by fitting once without each dev
task in turn.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decided.engines.embedded.calibration import Scale, scaled
from decided.engines.embedded.layout import KINDS
from training.metrics import Answer, Floats, report

EDGES = (2, 5, 15)  # buckets: up to 2, up to 5, up to 15, more
GRID = np.exp(np.linspace(np.log(0.4), np.log(8.0), 71))
STEEPNESS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEAST_ROWS = 150
TASK_ROWS = 200
DEV_WEIGHT = 20.0
EVERYDAY = "everyday"  # the dev task closest to what people ask


class Fitted(NamedTuple):
    """What the card of a model says: by kind, a temperature for each bucket, and a steepness."""

    temperatures: dict[str, list[float]]
    steepness: dict[str, float]

    def of(self, answer: Answer) -> Scale:
        name = KINDS[answer.kind]
        return Scale(self.temperatures[name][bucket(len(answer.logits))], self.steepness[name])

    def as_json(self) -> dict[str, Any]:
        return {**self.temperatures, "steepness": self.steepness}


def bucket(options: int) -> int:
    return sum(options > edge for edge in EDGES)


class Judged(NamedTuple):
    """An answer, its log-loss at every steepness and every temperature of the grid, and how much it counts."""

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
            steep = np.stack([scaled(a.logits, Scale(1.0, steepness)) for steepness in STEEPNESS])
            given = steep[:, None] / GRID[:, None]
            top = given.max(-1)
            losses = np.log(np.exp(given - top[..., None]).sum(-1)) + top - given[..., a.gold]
            kept.append(Judged(a, losses, weight))
    return kept


def _total(rows: Sequence[Judged]) -> Floats:
    """The loss of all rows together, at every steepness and temperature."""
    return sum((r.losses * r.weight for r in rows), np.zeros((len(STEEPNESS), len(GRID))))


def fit(rows: Sequence[Judged]) -> Fitted:
    temperatures, steepness = {}, {}
    for k, name in enumerate(KINDS):
        mine = [r for r in rows if r.answer.kind == k]
        groups = [[r for r in mine if bucket(len(r.answer.logits)) == b] for b in range(len(EDGES) + 1)]
        if len(mine) < LEAST_ROWS:
            temperatures[name], steepness[name] = [1.0] * len(groups), 0.0
            continue
        few = [r for g in groups if len(g) < LEAST_ROWS for r in g]
        totals = [_total(g) for g in groups if len(g) >= LEAST_ROWS]
        s = int(np.argmin(sum((t.min(1) for t in totals), _total(few).min(1))))
        whole = GRID[_total(mine)[s].argmin()]
        temperatures[name] = [float(GRID[_total(g)[s].argmin()] if len(g) >= LEAST_ROWS else whole) for g in groups]
        steepness[name] = STEEPNESS[s]
    return Fitted(temperatures, steepness)


def weighed(held_out: Sequence[Answer], dev: Sequence[Answer], kept: Sequence[Answer]) -> list[Judged]:
    """All answers that temperatures are fitted on, with their weights."""
    everyday = [a for a in dev if a.task == EVERYDAY]
    others = [a for a in dev if a.task != EVERYDAY]
    return [
        *judged(held_out),
        *judged(kept),
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


def apply(answers: Sequence[Answer], fitted: Fitted) -> list[Answer]:
    return [a._replace(logits=scaled(a.logits, fitted.of(a))) for a in answers]


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
    fitted = fit(rows)
    print(json.dumps(fitted.as_json()))

    def everyday(answers: Sequence[Answer], wanted: bool) -> list[Answer]:
        return [a for a in answers if (a.task == EVERYDAY) is wanted]

    sets = {"dev": everyday(dev, False), "everyday": everyday(dev, True), "kept": kept, "held out": held_out}
    for name, answers in (sets | {path.stem: load_answers(path) for path in args.others}).items():
        print(f"{name:12} raw     ", report(answers).line())
        print(f"{name:12} scaled  ", report(apply(answers, fitted)).line())
    apart = left_out(rows, dev)
    for name, wanted in (("dev", False), (EVERYDAY, True)):
        print(f"{name:12} left out", report(everyday(apart, wanted)).line())
    if args.out:
        args.out.write_text(json.dumps(fitted.as_json(), indent=1))


if __name__ == "__main__":
    main()
