"""All rows as token ids, in one file that training draws its batches from.

The archive holds every text once, as token ids back to back (`tokens`, `lengths`), and for each row the numbers of its
texts (`links`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

TRAIN, DEV, HELD_OUT, BENCH, KEPT = range(5)
"""Dev is never trained on; held out are whole training tasks, kept are states of hand-written tasks."""
HAND_WRITTEN = "everyday_"  # tasks that begin so

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Archive:
    """All rows as token ids. Row r has the texts `links[first[r]]` (state), +1 (instructions), +2.. (options)."""

    tokens: npt.NDArray[np.uint16]
    starts: Ints
    lengths: Ints
    links: npt.NDArray[np.int32]
    first: Ints
    options: Ints
    gold: Ints
    kind: Ints
    task: Ints
    split: Ints
    tasks: list[str]

    @classmethod
    def of(
        cls, tokens: npt.NDArray[np.uint16], lengths: Ints, links: npt.NDArray[np.int32], table: Ints, tasks: list[str]
    ) -> Archive:
        """From the texts' tokens and, for each row, its links and (options, gold, kind, task, split)."""
        starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        options, gold, kind, task, split = table.T
        first = np.concatenate([[0], np.cumsum(options + 2)])[:-1]
        return cls(tokens, starts, lengths, links, first, options, gold, kind, task, split, tasks)

    @classmethod
    def load(cls, path: Path) -> Archive:
        with np.load(path) as z:
            lengths, table = z["lengths"].astype(np.int64), z["rows"].astype(np.int64)
            return cls.of(z["tokens"], lengths, z["links"], table, [str(t) for t in z["tasks"]])

    def save(self, path: Path) -> None:
        table = np.stack([self.options, self.gold, self.kind, self.task, self.split], 1).astype(np.int16)
        lengths = self.lengths.astype(np.uint16)
        np.savez(path, tokens=self.tokens, lengths=lengths, links=self.links, rows=table, tasks=np.array(self.tasks))

    def rows(self, split: int) -> Ints:
        return np.flatnonzero(self.split == split)


def joined(old: Archive, new: Archive) -> Archive:
    """Both archives' rows; tasks that come again replace the old ones."""
    again = np.isin(np.array(old.tasks), np.array(new.tasks))
    stay = ~again[old.task]
    tasks = {name: i for i, name in enumerate(dict.fromkeys([*old.tasks, *new.tasks]))}
    tables = []
    for a, which in ((old, stay), (new, np.ones(len(new.task), np.bool_))):
        task = np.array([tasks[name] for name in a.tasks])[a.task]
        tables.append(np.stack([a.options, a.gold, a.kind, task, a.split], 1)[which])
    links = old.links[np.repeat(stay, old.options + 2)]
    used = np.zeros(len(old.lengths), np.bool_)
    used[links] = True
    number = np.cumsum(used) - 1
    return Archive.of(
        np.concatenate([old.tokens[np.repeat(used, old.lengths)], new.tokens]),
        np.concatenate([old.lengths[used], new.lengths]),
        np.concatenate([number[links], new.links + used.sum()]).astype(np.int32),
        np.concatenate(tables),
        list(tasks),
    )
