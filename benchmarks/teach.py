"""What labels are worth: tasks with one question, zero-shot and taught with a few labels of each answer.

    python benchmarks/teach.py DATA [DATA ...] --cache FOLDER [--model embedded:small] [--rows 420]

DATA are files of labelled rows, `{"task", "state", "question", "answer"}` a line, gzipped or not. Of each task the rows
of its commonest question count. The model is asked once about every row; what it said is kept in the cache, and all
draws of labels are made from that. For each draw the rest of the rows is the test, without copies of texts that were
drawn, so nothing is judged on what it was learnt from.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from decided.contract.types import MAX_OPTIONS, Question, compact
from decided.engines.api import Verdict, gives_features
from decided.evaluation.fitting import Judged, figures
from decided.evaluation.labelled import LabelledRow, Line, read_row
from decided.evaluation.regression import softmax
from decided.evaluation.scoring import wilson
from decided.evaluation.teaching import LabelledSet, learn_from
from decided.profiles.fingerprint import canonical_keys, fingerprint
from decided.profiles.shelf import LEAST_SHARE
from decided.serving.metrics import Metrics
from decided.serving.start import start_engine
from decided.settings import Settings

SIZES, SEEDS = (8, 16, 64), 5
MOST_ROWS, AT_A_TIME = 420, 8
LEAST_TEST = 10
"""Rows of each answer that must be left to test on."""
TARGET, COVERAGE = 0.9, 0.9


class Draw(NamedTuple):
    """One draw of labels: how the rest of the rows fares."""

    kept: str
    seconds: float
    before: Any
    after: Any
    right: Any
    threshold: tuple[float, float, int, int] | None
    """Between what the accuracy was promised to be; how many of the rest were decided, and how many of those right."""
    covered: float


def rows_of(paths: list[Path], most: int) -> Iterator[tuple[str, list[LabelledRow]]]:
    """The tasks, with the rows of the commonest question."""
    tasks: dict[str, dict[str, list[LabelledRow]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                row = read_row(Line(number, line), MAX_OPTIONS)
                tasks[json.loads(line)["task"]][fingerprint(row.questions[0])].append(row)
    for task, by_question in sorted(tasks.items()):
        rows = max(by_question.values(), key=len)[:most]
        counts = Counter(_right(row) for row in rows)
        if len(counts) > 1 and min(counts.values()) >= SIZES[0] + LEAST_TEST:
            yield task, rows


def _right(row: LabelledRow) -> int:
    question = row.questions[0]
    return list(canonical_keys(question)).index(question.keys()[row.right[0]])


async def ask(tasks: list[tuple[str, list[LabelledRow]]], cache: Path, settings: Settings) -> dict[str, Path]:
    """A file with what the model says of each task's rows; those that are there already are not asked again."""
    engine = await start_engine(settings, Metrics())
    found = {}
    try:
        for task, rows in tasks:
            mark = hashlib.sha256(encode_states(rows) + engine.card.weights.encode()).hexdigest()[:12]
            path = found[task] = cache / f"{task.replace('/', '_')}-{mark}.npz"
            if path.exists():
                continue
            question: Question = rows[0].questions[0]
            keys, order = list(question.keys()), canonical_keys(question)
            if not gives_features(engine):
                raise SystemExit(f"{engine.card.name} gives no features: there is nothing to teach a head on")
            verdicts: list[Verdict] = []
            for start in range(0, len(rows), AT_A_TIME):
                states = [row.state for row in rows[start : start + AT_A_TIME]]
                verdicts += await engine.decide(states, [question], features=True)
            weights = [[float(verdict.weights[0][keys.index(key)]) for key in order] for verdict in verdicts]
            features = np.array([verdict.features for verdict in verdicts], np.float32)
            right = [_right(row) for row in rows]
            known = {state: number for number, state in enumerate(dict.fromkeys(row.state for row in rows))}
            texts = [known[row.state] for row in rows]
            np.savez(path, weights=weights, features=features, right=right, texts=texts)
            print(f"asked: {task}, {len(rows)} rows", flush=True)
    finally:
        await engine.close()
    return found


def encode_states(rows: list[LabelledRow]) -> bytes:
    return msgspec.json.encode([[row.state, compact(row.right[0])] for row in rows])


def draw(weights: Any, features: Any, right: Any, texts: Any, size: int, seed: int) -> Draw:
    chance = np.random.default_rng(seed)
    options = weights.shape[1]
    taken = np.concatenate([chance.permutation(np.flatnonzero(right == one))[:size] for one in range(options)])
    rest = np.flatnonzero(~np.isin(texts, texts[taken]))
    logits = np.log(np.maximum(weights / weights.max(axis=1, keepdims=True), LEAST_SHARE))
    began = time.perf_counter()
    labels = LabelledSet(logits[taken], features[taken].astype(np.float64), right[taken], texts[taken])
    lesson = learn_from(labels, TARGET, COVERAGE)
    seconds = time.perf_counter() - began
    shares = softmax(lesson.fitted.logits(logits[rest], features[rest].astype(np.float64)))
    top, hit = shares.max(axis=1), shares.argmax(axis=1) == right[rest]
    threshold = None
    if lesson.threshold is not None:
        sure = top >= lesson.threshold.probability
        if sure.any():
            _, low, high = lesson.threshold.accuracy
            threshold = low, high, int(sure.sum()), int(hit[sure].sum())
    floor = np.minimum(lesson.sets.floor if lesson.sets else 0.0, top)
    covered = float((shares[np.arange(len(rest)), right[rest]] >= floor).mean())
    return Draw(lesson.kept, seconds, softmax(logits[rest]), shares, right[rest], threshold, covered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="of each task, at most")
    parser.add_argument("--tasks", help="only these, separated by commas")
    given = parser.parse_args()
    tasks = list(rows_of(given.data, given.rows))
    if given.tasks:
        tasks = [one for one in tasks if one[0] in given.tasks.split(",")]
    files = asyncio.run(ask(tasks, given.cache, Settings(model=given.model)))
    for size in SIZES:
        report(size, files)


def report(size: int, files: dict[str, Path]) -> None:
    print(f"\n{size} labels of each answer, {SEEDS} draws\n")
    print("| task | options | zero-shot | taught | gain | calibration error before | after | kept | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    gains, errors, covered, promises = [], [], [], []
    for task, path in files.items():
        stored = np.load(path)
        weights, features, right, texts = (stored[name] for name in ("weights", "features", "right", "texts"))
        if np.bincount(right, minlength=weights.shape[1]).min() < size + LEAST_TEST:
            continue
        draws = [draw(weights, features, right, texts, size, seed) for seed in range(SEEDS)]
        before, after = (_figures(draws, part) for part in ("before", "after"))
        gains.append(after.accuracy - before.accuracy)
        errors.append(after.calibration_error)
        covered += [one.covered for one in draws]
        promises += [one.threshold for one in draws if one.threshold is not None]
        kept = ", ".join(f"{name} {number}" for name, number in Counter(one.kept for one in draws).most_common())
        print(
            f"| {task} | {weights.shape[1]} | {before.accuracy:.3f} | {after.accuracy:.3f} | "
            f"{100 * gains[-1]:+.1f} | {before.calibration_error:.3f} | {after.calibration_error:.3f} | {kept} | "
            f"{max(one.seconds for one in draws):.1f} |"
        )
    print(f"| **mean of {len(gains)}** | | | | {100 * np.mean(gains):+.1f} (least {100 * min(gains):+.1f}) | | "
          f"{np.mean(errors):.3f} | | |")  # fmt: skip
    print(f"\nsets asked to hold the right option in {COVERAGE:.0%} of texts do so in {np.mean(covered):.1%}")
    if promises:
        sound = sum(
            low <= chance.high and chance.low <= high
            for low, high, decided, hits in promises
            if (chance := wilson(hits, decided))
        )
        decided, hits = (sum(one[place] for one in promises) for place in (2, 3))
        print(
            f"thresholds for {TARGET:.0%}: {len(promises)} given; of {decided} texts that they decide "
            f"{hits / decided:.1%} are right; {sound} within the interval that was stated, as far as the rest can tell"
        )


def _figures(draws: list[Draw], part: str) -> Any:
    rows = [
        Judged(shares, right)
        for one in draws
        for shares, right in zip(getattr(one, part).tolist(), one.right.tolist(), strict=True)
    ]
    return figures(rows, 1.0)


if __name__ == "__main__":
    main()
