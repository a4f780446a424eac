"""Fits temperatures on training tasks that were held out whole, and reports what they do to the dev tasks.

A network is overconfident on tasks it has never seen, by an amount that depends on the kind of question and the number
of options; so there is one temperature per kind and option-count bucket. Dev rows are only ever judged, never fitted.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.metrics import Answer, probabilities, report
from training.rendering import KINDS

EDGES = (2, 5, 15)  # buckets: up to 2, up to 5, up to 15, more
GRID = np.exp(np.linspace(np.log(0.4), np.log(5.0), 61))
LEAST_ROWS = 150
TASK_ROWS = 200  # of one task, so that a large one does not decide alone

Temperatures = dict[str, list[float]]


def bucket(options: int) -> int:
    return sum(options > edge for edge in EDGES)


def capped(answers: Sequence[Answer]) -> list[Answer]:
    seen: dict[tuple[str, int], int] = defaultdict(int)
    kept = []
    for a in answers:
        seen[a.task, a.kind] += 1
        if seen[a.task, a.kind] <= TASK_ROWS:
            kept.append(a)
    return kept


def fit_one(answers: Sequence[Answer]) -> float:
    losses = [sum(-np.log(max(probabilities(a.logits / t)[a.gold], 1e-9)) for a in answers) for t in GRID]
    return float(GRID[int(np.argmin(losses))])


def fit(answers: Sequence[Answer], per_bucket: bool = True) -> Temperatures:
    out: Temperatures = {}
    rows = capped(answers)
    for k, name in enumerate(KINDS):
        mine = [a for a in rows if a.kind == k]
        whole = fit_one(mine) if len(mine) >= LEAST_ROWS else 1.0
        groups = [[a for a in mine if bucket(len(a.logits)) == b] for b in range(len(EDGES) + 1)]
        out[name] = [fit_one(g) if per_bucket and len(g) >= LEAST_ROWS else whole for g in groups]
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
    parser.add_argument("dev", type=Path, nargs="*", help="answers to judge with them")
    parser.add_argument("--per-kind", action="store_true", help="one temperature per kind instead of per bucket")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    temperatures = fit(load_answers(args.held_out), not args.per_kind)
    print(json.dumps({k: [round(t, 3) for t in v] for k, v in temperatures.items()}))
    for path in [args.held_out, *args.dev]:
        answers = load_answers(path)
        print(path.stem, "raw ", report(answers).line())
        print(path.stem, "temp", report(apply(answers, temperatures)).line())
    if args.out:
        args.out.write_text(json.dumps(temperatures, indent=1))


if __name__ == "__main__":
    main()
