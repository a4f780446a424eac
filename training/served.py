"""Answers of an exported model, as it is served: what temperatures are fitted on and the model card reports.

    python -m training.served models/base/src/decided_model_base answers DATA/dev/*.jsonl.gz .training/jev.jsonl.gz

writes `answers/NAME.npz` for each file and prints its figures. Files whose answers exist are left alone, so a run that
broke off goes on, and two of them share the work with different files. The answers are those of a processor that
multiplies bytes exactly, on any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from decided.contract.types import compact
from decided.engines.api import More
from decided.engines.embedded.calibration import Scale
from decided.engines.embedded.layout import KINDS
from decided.engines.embedded.model import Embedded
from decided.hardware import multiplies_bytes_exactly
from training.archive import KEPT
from training.calibrate import save_answers
from training.data import asked, example, read_rows, split_of
from training.metrics import Answer, Floats, report
from training.unclipped import unclipped

Row = dict[str, Any]

LEAST = 1e-12  # of a probability: its logarithm stays finite


def served(model: Embedded, rows: Iterable[Row]) -> Iterator[Floats]:
    """Probabilities without temperatures, options in the order of training. Neighbouring rows about one state are
    asked together: it is read once, and company does not change an answer."""
    for state, group in groupby(rows, key=lambda row: compact(row["state"])):
        together = list(group)
        prepared = model.prepare([asked(row["question"]) for row in together])
        encoded = model.encode([a._replace(scale=Scale()) for a in prepared], state)
        found = model.run(encoded.items)[0]
        while isinstance(found, More):
            found = model.run(encoded.items)[0]
        for row, weights in zip(together, found, strict=True):
            shares = np.asarray(weights) / np.sum(weights)
            yield shares[::-1] if row["question"]["type"] == "noul" else shares


def right(row: Row) -> int:
    """The place of the row's answer among its options."""
    found = example(row)
    if found is None:
        raise SystemExit(f"{row['task']}: {row['answer']!r} is none of the options")
    return found.gold


def answers(model: Embedded, rows: Sequence[Row]) -> Iterator[Answer]:
    for row, shares in zip(rows, served(model, rows), strict=True):
        kind = KINDS.index(row["question"]["type"])
        yield Answer(row["task"], kind, np.log(np.maximum(shares, LEAST)), right(row))


def name_of(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="made by training.export")
    parser.add_argument("out", type=Path, help="the folder of the answers")
    parser.add_argument("files", type=Path, nargs="+", help="rows, .jsonl or .jsonl.gz")
    parser.add_argument("--kept", action="store_true", help="of hand-written files, only the states never trained on")
    parser.add_argument("--rows", type=int, default=0, help="at most so many of each file, spread over it (0: all)")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as room:
        as_served = args.folder if multiplies_bytes_exactly() else unclipped(args.folder, Path(room, "model"))
        model = Embedded(as_served, False, args.threads)
    for path in args.files:
        written = args.out / f"{name_of(path)}.npz"
        if written.exists():
            continue
        rows = [row for row in read_rows(path) if not args.kept or split_of(row) == KEPT]
        rows = rows[:: -(-len(rows) // args.rows)] if args.rows and rows else rows
        found = list[Answer]()
        for number, answer in enumerate(answers(model, rows), 1):
            found.append(answer)
            if sys.stderr.isatty():
                end = "\n" if number == len(rows) else ""
                print(f"\r{name_of(path)}: {number} of {len(rows)}", end=end, file=sys.stderr)
        if found:
            save_answers(written, found)
            print(f"{name_of(path)}: {len(found)} rows, {report(found).line()}", flush=True)


if __name__ == "__main__":
    main()
