"""What labels are worth: tasks with one question, zero-shot and taught with a few labels of each answer.

    python benchmarks/teach.py DATA [DATA ...] --cache FOLDER [--model embedded:small] [--rows 420] [--draws 20]

DATA are files of labelled rows, `{"task", "state", "question", "answer"}` a line, gzipped or not. Of each task the rows
of its commonest question count. The model is asked once about every row; what it said is kept in the cache, and all
draws of labels are made from that. For each draw the rest of the rows is the test, without copies of texts that were
drawn, so nothing is judged on what it was learnt from.

For each task and number of labels it says whether what was kept is worse than the model as it is by more than a point,
whether the accuracy above the threshold is within the interval that was stated, and whether sets hold the right option
as often as asked, within two points and as far as so few draws can tell. What is not so is marked with an `!`.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `decided teach` does, before NumPy is loaded

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

SIZES, DRAWS = (8, 16, 64), 20
MOST_ROWS, AT_A_TIME = 420, 8
LEAST_TEST = 10
"""Rows of each answer that must be left to test on."""
TARGET, COVERAGE = 0.9, 0.9
MOST_LOST, MOST_OFF = 0.01, 0.02
"""Of accuracy, by what was kept; and of coverage, either way."""


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

    @property
    def gain(self) -> float:
        """In accuracy, on the rest."""
        return float(
            (self.after.argmax(axis=1) == self.right).mean() - (self.before.argmax(axis=1) == self.right).mean()
        )

    @property
    def keeps_its_promise(self) -> bool | None:
        """Whether the rest is compatible with the interval of accuracy that was stated; None without a threshold."""
        if self.threshold is None:
            return None
        low, high, decided, hits = self.threshold
        found = wilson(hits, decided)
        return low <= found.high and found.low <= high


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
    parser.add_argument("--draws", type=int, default=DRAWS, help="of labels; five leave a task's gain unsure by points")
    given = parser.parse_args()
    tasks = list(rows_of(given.data, given.rows))
    if given.tasks:
        tasks = [one for one in tasks if one[0] in given.tasks.split(",")]
    given.cache.mkdir(parents=True, exist_ok=True)
    files = asyncio.run(ask(tasks, given.cache, Settings(model=given.model)))
    began = time.perf_counter()
    for size in SIZES:
        report(size, files, given.draws)
    print(f"\nlearnt in {time.perf_counter() - began:.0f} seconds, after asking. Again, with what the model said kept:")
    print(f"  {shlex.join(['python', *sys.argv])}")


def report(size: int, files: dict[str, Path], number: int) -> None:
    print(f"\n{size} labels of each answer, {number} draws\n")
    print(
        "| task | options | zero-shot | taught | gain (least of a draw) | calibration error before | after | kept | "
        f"decided for {TARGET:.0%} | of them right | promises kept | sets hold ({COVERAGE:.0%} asked) | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    gains, errors, every = [], [], []
    for task, path in files.items():
        stored = np.load(path)
        weights, features, right, texts = (stored[name] for name in ("weights", "features", "right", "texts"))
        if np.bincount(right, minlength=weights.shape[1]).min() < size + LEAST_TEST:
            continue
        draws = [draw(weights, features, right, texts, size, seed) for seed in range(number)]
        every += draws
        before, after = (_figures(draws, part) for part in ("before", "after"))
        gains.append(after.accuracy - before.accuracy)
        errors.append(after.calibration_error)
        kept = ", ".join(f"{name} {number}" for name, number in Counter(one.kept for one in draws).most_common())
        worse = "!" if gains[-1] < -MOST_LOST else ""
        print(
            f"| {task} | {weights.shape[1]} | {before.accuracy:.3f} | {after.accuracy:.3f} | "
            f"{100 * gains[-1]:+.1f}{worse} ({100 * min(one.gain for one in draws):+.1f}) | "
            f"{before.calibration_error:.3f} | {after.calibration_error:.3f} | {kept} | {_promises(draws)} | "
            f"{_coverage(draws)} | {max(one.seconds for one in draws):.1f} |"
        )
    lost = sum(one.gain < -MOST_LOST for one in every)
    print(
        f"| **mean of {len(gains)}** | | | | {100 * np.mean(gains):+.1f} (least {100 * min(gains):+.1f}) | | "
        f"{np.mean(errors):.3f} | | {_promises(every)} | {_coverage(every)} | |"
    )
    print(
        f"\n{size} labels: tasks worse than zero-shot by more than a point: "
        f"{sum(gain < -MOST_LOST for gain in gains)} of {len(gains)}; draws: {lost} of {len(every)}"
    )


def _promises(draws: list[Draw]) -> str:
    """Cells: the share of the rest that thresholds decide, how much of that is right, and how many promises hold."""
    given = [one for one in draws if one.threshold is not None]
    if not given:
        return "none | | "
    decided, hits = (sum(one.threshold[place] for one in given if one.threshold) for place in (2, 3))
    kept = sum(bool(one.keeps_its_promise) for one in given)
    share = decided / sum(len(one.right) for one in draws)
    return f"{share:.0%} | {hits / decided:.1%} | {kept} of {len(given)}{'!' if kept < len(given) else ''}"


def _coverage(draws: list[Draw]) -> str:
    """A cell: how many of the sets hold the right option, and how far draws are apart. Draws share most of their rows,
    so their spread says what the labels that were drawn do, and not what other texts would. A set has an option at
    least: where that alone is right more often than was asked, sets hold more."""
    covered = [one.covered for one in draws]
    alone = float(np.mean([(one.after.argmax(axis=1) == one.right).mean() for one in draws]))
    mean, error = float(np.mean(covered)), float(np.std(covered, ddof=1)) / len(covered) ** 0.5
    off = max(COVERAGE - mean, mean - max(COVERAGE, alone)) - MOST_OFF > 2 * error
    return f"{mean:.1%} ± {error:.1%}{'!' if off else ''}"


def _figures(draws: list[Draw], part: str) -> Any:
    rows = [
        Judged(shares, right)
        for one in draws
        for shares, right in zip(getattr(one, part).tolist(), one.right.tolist(), strict=True)
    ]
    return figures(rows, 1.0)


if __name__ == "__main__":
    main()
