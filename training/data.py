"""Reads question rows, tokenises them once, and keeps the tokens in one archive.

A row is `{"task", "state", "question": {"type", "instructions", "criteria"?}, "answer"}`. The archive holds every text
as token ids back to back (`tokens`, `lengths`) and a table of rows; training draws its batches straight from it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decided.engines.rendering import INSTRUCTION_TOKENS, KINDS, OPTION_TOKENS, render, text_of

TRAIN, DEV, HELD_OUT, BENCH = range(4)  # dev: never trained on; held out: whole training tasks kept for temperatures
STATE_TOKENS = 3060  # six windows: longer states are rare in the data
STATE_CHARACTERS = 16_000
HELD_OUT_SHARE = 20  # one training task in 20

Ints = npt.NDArray[np.int64]


class Example(NamedTuple):
    """One row as texts: state, instructions and options, with the index of the right option."""

    task: str
    kind: int
    texts: list[str]
    gold: int


@dataclass(frozen=True)
class Archive:
    """All rows as token ids. Row r owns pieces `first[r]` (state), +1 (instructions), +2.. (options)."""

    tokens: npt.NDArray[np.uint16]
    starts: Ints
    lengths: Ints
    first: Ints
    options: Ints
    gold: Ints
    kind: Ints
    task: Ints
    split: Ints
    tasks: list[str]

    @classmethod
    def load(cls, path: Path) -> Archive:
        with np.load(path) as z:
            lengths, rows = z["lengths"].astype(np.int64), z["rows"].astype(np.int64)
            starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
            first, options, gold, kind, task, split = rows.T
            names = [str(t) for t in z["tasks"]]
            return cls(z["tokens"], starts, lengths, first, options, gold, kind, task, split, names)

    def rows(self, split: int) -> Ints:
        return np.flatnonzero(self.split == split)


def example(row: dict[str, Any]) -> Example | None:
    """The row as texts, or None when its answer is not one of its options."""
    question = row["question"]
    kind, criteria = question["type"], question.get("criteria")
    names: list[object] = [False, True]
    if kind != "noul":
        names = list(criteria if kind == "choice" else range(len(criteria)))
    if row["answer"] not in names:
        return None
    shown = render(kind, question.get("instructions"), criteria)
    texts = [text_of(row["state"])[:STATE_CHARACTERS], shown.instructions, *shown.options]
    return Example(row["task"], KINDS.index(kind), texts, names.index(row["answer"]))


def held_out(task: str) -> bool:
    return int(hashlib.md5(task.encode(), usedforsecurity=False).hexdigest(), 16) % HELD_OUT_SHARE == 0


def read_rows(path: Path, limit: int = 0) -> Iterator[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        for i, line in enumerate(lines):
            if limit and i >= limit:
                return
            yield json.loads(line)


Encoded = tuple[npt.NDArray[np.uint16], npt.NDArray[np.int32], list[tuple[int, int, int, int, str, int]]]


def _encode(job: tuple[str, list[dict[str, Any]], int]) -> Encoded:
    from tokenizers import Tokenizer

    tokenizer_path, rows, split = job
    tokenizer = Tokenizer.from_file(tokenizer_path)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts: list[str] = []
    caps: list[int] = []
    table: list[tuple[int, int, int, int, str, int]] = []
    for made in filter(None, map(example, rows)):
        where = split
        if split == TRAIN and held_out(made.task):
            where = HELD_OUT
        count = len(made.texts) - 2
        table.append((len(texts), count, made.gold, made.kind, made.task, where))
        texts += made.texts
        caps += [STATE_TOKENS, INSTRUCTION_TOKENS] + [OPTION_TOKENS] * count
    found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ids = [np.array(e.ids[:cap], np.uint16) for e, cap in zip(found, caps, strict=True)]
    return np.concatenate(ids), np.array([len(i) for i in ids], np.int32), table


Job = tuple[str, list[dict[str, Any]], int]


def _jobs(tokenizer: Path, sources: Iterable[tuple[Path, int]], limit: int) -> Iterator[Job]:
    for path, split in sources:
        rows = list(read_rows(path, limit))
        for i in range(0, len(rows), 2000):
            yield str(tokenizer), rows[i : i + 2000], split


def build(tokenizer: Path, sources: list[tuple[Path, int]], out: Path, limit: int, workers: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with multiprocessing.Pool(workers) as pool:
        results = list(pool.imap(_encode, _jobs(tokenizer, sources, limit)))
    tasks: dict[str, int] = {}
    rows, offset = [], 0
    for _, lengths, table in results:
        for first, count, gold, kind, task, split in table:
            rows.append((first + offset, count, gold, kind, tasks.setdefault(task, len(tasks)), split))
        offset += len(lengths)
    tokens, lengths = np.concatenate([r[0] for r in results]), np.concatenate([r[1] for r in results])
    found = np.array(rows, np.int32)
    np.savez(out, tokens=tokens, lengths=lengths.astype(np.uint16), rows=found, tasks=np.array(list(tasks)))
    train, dev, held, bench = np.bincount(found[:, 5], minlength=4)
    print(f"rows: train {train}, dev {dev}, held out {held}, bench {bench}; {len(tokens) / 1e6:.1f}M tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and dev/ of .jsonl(.gz) files")
    parser.add_argument("--extra", type=Path, nargs="*", default=[], help="more training rows, e.g. generated ones")
    parser.add_argument("--bench", type=Path, nargs="*", default=[], help="rows only ever evaluated")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0, help="rows per file, for a quick try")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    sources = [(p, TRAIN) for p in [*sorted((args.data / "train").glob("*.jsonl*")), *args.extra]]
    sources += [(p, DEV) for p in sorted((args.data / "dev").glob("*.jsonl*"))] + [(p, BENCH) for p in args.bench]
    build(args.tokenizer, sources, args.out, args.limit, args.workers)


if __name__ == "__main__":
    main()
