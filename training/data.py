"""Reads question rows and tokenises them once, into one archive.

A row is `{"task", "state", "question": {"type", "instructions", "criteria"?}, "answer"}`. Hand-written rows may come
with all questions of a state on one line: `{"state", "questions": [{"type", "instructions", "criteria"?, "answer"}]}`,
or with several versions of a state and the answer for each: `{"states", "questions": [{..., "answers"}]}`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from decided.contract.types import Question, compact
from decided.engines.embedded.layout import INSTRUCTION_TOKENS, KINDS, OPTION_TOKENS
from decided.engines.embedded.prompt import render
from decided.engines.tokenizer import split_long_words
from training.archive import BENCH, DEV, HAND_WRITTEN, HELD_OUT, KEPT, TRAIN, Archive, Ints, joined
from training.variants import variant

STATE_TOKENS = 3060  # six windows: longer states are rare in the data
STATE_CHARACTERS = 16_000
HELD_OUT_SHARE = 20  # one training task in 20, and one hand-written state in 20
VARIANTS = 5  # of a hand-written row, itself counted


class Example(NamedTuple):
    """One row as texts: state, instructions and options, with the index of the right option."""

    task: str
    kind: int
    texts: list[str]
    gold: int


def asked(question: dict[str, Any]) -> Question:
    """A row's question as the server takes it. Rows may list the options of a choice by their names alone."""
    if question["type"] == "choice" and isinstance(question["criteria"], list):
        question = {**question, "criteria": {str(name): None for name in question["criteria"]}}
    found: Question = msgspec.convert(question, Question)
    return found


def place(row: dict[str, Any]) -> int | None:
    """The place of the row's answer among its options, or None when it is not one of them."""
    kind, criteria = row["question"]["type"], row["question"].get("criteria")
    names: list[object] = [False, True]
    if kind != "noul":
        names = list(criteria if kind == "choice" else range(len(criteria)))
    return names.index(row["answer"]) if row["answer"] in names else None


def example(row: dict[str, Any]) -> Example | None:
    """The row as texts, or None when its answer is not one of its options."""
    gold = place(row)
    if gold is None:
        return None
    shown = render(asked(row["question"]))
    texts = [compact(row["state"])[:STATE_CHARACTERS], shown.instructions, *shown.options]
    return Example(row["task"], KINDS.index(row["question"]["type"]), texts, gold)


def _one_in_20(text: str) -> bool:
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16) % HELD_OUT_SHARE == 0


def split_of(row: dict[str, Any]) -> int:
    """Where a training row belongs. Of hand-written tasks some states are kept with all their versions, of others whole
    tasks."""
    if row["task"].startswith(HAND_WRITTEN):
        return KEPT if _one_in_20(compact(row.get("version_of", row["state"]))) else TRAIN
    return HELD_OUT if _one_in_20(row["task"]) else TRAIN


def read_rows(path: Path, limit: int = 0) -> Iterator[dict[str, Any]]:
    """The rows of a file: one question a line, or one state (or several versions of it) with its questions a line."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        for i, line in enumerate(lines):
            if limit and i >= limit:
                return
            if not line.strip():
                continue
            row = json.loads(line)
            if "questions" not in row:
                yield row
                continue
            for asked in row["questions"]:
                question = {k: v for k, v in asked.items() if k not in ("answer", "answers")}
                task = f"{HAND_WRITTEN}{path.name.split('.')[0]}/{question['type']}"
                several = "states" in row
                states = row["states"] if several else [row["state"]]
                answers = asked["answers"] if several else [asked["answer"]]
                for state, answer in zip(states, answers, strict=True):
                    found = {"task": task, "state": state, "question": question, "answer": answer}
                    yield found | {"version_of": states[0]} if several else found


def training_rows(path: Path, limit: int = 0, seed: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    """The training rows of a file with their splits; hand-written ones in several variants."""
    rng = random.Random(path.name if seed == 1 else f"{path.name} {seed}")
    for row in read_rows(path, limit):
        split = split_of(row)
        yield row, split
        if split == TRAIN and row["task"].startswith(HAND_WRITTEN) and example(row) is not None:
            for _ in range(VARIANTS - 1):
                yield variant(rng, row), split


class Texts:
    """Every text once, by what it is for: the limits differ."""

    caps = (STATE_TOKENS, INSTRUCTION_TOKENS, OPTION_TOKENS)

    def __init__(self) -> None:
        self.numbers: tuple[dict[str, int], ...] = ({}, {}, {})
        self.queue: list[tuple[str, int]] = []

    def number(self, text: str, use: int) -> int:
        known = self.numbers[use]
        if text not in known:
            known[text] = len(self.queue)
            self.queue.append((text, self.caps[use]))
        return known[text]

    def encoded(self, tokenizer_path: Path) -> tuple[npt.NDArray[np.uint16], Ints]:
        from tokenizers import Tokenizer

        tokenizer = split_long_words(Tokenizer.from_file(str(tokenizer_path)))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        found: list[npt.NDArray[np.uint16]] = []
        for i in range(0, len(self.queue), 20_000):
            some = self.queue[i : i + 20_000]
            made = tokenizer.encode_batch_fast([text for text, _ in some], add_special_tokens=False)
            found += [np.array(e.ids[:cap], np.uint16) for e, (_, cap) in zip(made, some, strict=True)]
        return np.concatenate(found), np.array([len(ids) for ids in found], np.int64)


def build(tokenizer: Path, rows: Iterable[tuple[dict[str, Any], int]]) -> Archive:
    texts, tasks = Texts(), dict[str, int]()
    links: list[int] = []
    table: list[tuple[int, int, int, int, int]] = []
    for row, split in rows:
        made = example(row)
        if made is None:
            continue
        links += (texts.number(text, min(use, 2)) for use, text in enumerate(made.texts))
        task = tasks.setdefault(made.task, len(tasks))
        table.append((len(made.texts) - 2, made.gold, made.kind, task, split))
    tokens, lengths = texts.encoded(tokenizer)
    return Archive.of(tokens, lengths, np.array(links, np.int32), np.array(table, np.int64), list(tasks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train/ and dev/ of .jsonl(.gz) files")
    parser.add_argument("--extra", type=Path, nargs="*", default=[], help="more training rows, e.g. generated ones")
    parser.add_argument("--bench", type=Path, nargs="*", default=[], help="rows only ever evaluated")
    parser.add_argument("--onto", type=Path, help="an archive whose other tasks stay as they are")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1, help="of the variants of hand-written rows")
    parser.add_argument("--limit", type=int, default=0, help="lines per file, for a quick try")
    args = parser.parse_args()

    def files(folder: str) -> list[Path]:
        return sorted((args.data / folder).glob("*.jsonl*")) if args.data else []

    def rows() -> Iterator[tuple[dict[str, Any], int]]:
        for path in [*files("train"), *args.extra]:
            yield from training_rows(path, args.limit, args.seed)
        for split, paths in ((DEV, files("dev")), (BENCH, args.bench)):
            for path in paths:
                yield from ((row, split) for row in read_rows(path, args.limit))

    archive = build(args.tokenizer, rows())
    if args.onto:
        archive = joined(Archive.load(args.onto), archive)
    archive.save(args.out)
    names = ("train", "dev", "held out", "bench", "kept")
    sizes = ", ".join(f"{name} {len(archive.rows(split))}" for split, name in enumerate(names))
    print(f"rows: {sizes}; {len(archive.lengths)} texts, {len(archive.tokens) / 1e6:.1f}M tokens")


if __name__ == "__main__":
    main()
