"""Draws rows by task and packs them, unpadded, into batches of a fixed number of tokens.

Fixed shapes keep compiled kernels compiled; packing keeps nearly every token useful. Each token carries what the
attention rule needs to know: its row (`doc`), its part of the row (`part`: a state window below 0, the instructions 0,
an option above 0) and whether it is an option's marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from decided.engines.rendering import CLS, MARK, SEP, windows
from training.data import Archive, Ints

BLOCK = 128  # granularity of the sparse attention
KIND_WEIGHT = (1.0, 2.0, 1.3)  # choice, score, noul: score is 8 % of the rows and the hardest to learn
MAX_PASSES = 4.0  # a small task is seen at most so many times as often as plain shuffling would show it
MANY_OPTIONS = 8

Batch = dict[str, torch.Tensor]


class Draw(NamedTuple):
    """One row to train on, and which of its options to show (None: all)."""

    row: int
    keep: Ints | None


@dataclass(frozen=True)
class Shape:
    """The fixed sizes of a batch. The last row and its markers are padding."""

    tokens: int
    markers: int
    rows: int

    @classmethod
    def of(cls, tokens: int) -> Shape:
        return cls(tokens, tokens // 5, tokens // 16)


class Packer:
    """Turns draws into batches of one shape."""

    def __init__(self, archive: Archive, shape: Shape) -> None:
        self.archive, self.shape = archive, shape
        self.tokens = np.concatenate([archive.tokens, np.array([CLS, SEP, MARK], np.uint16)])
        total = np.concatenate([[0], np.cumsum(archive.lengths)])
        first, count = archive.first, archive.options
        state = archive.lengths[first]
        extra = 2 * np.maximum(1, -(-state // 510)) + 2 + count
        self.cost: Ints = total[first + 2 + count] - total[first] + extra

    def cost_of(self, draw: Draw) -> int:
        if draw.keep is None:
            return int(self.cost[draw.row])
        a, r = self.archive, draw.row
        gone = a.options[r] - len(draw.keep) + a.lengths[a.first[r] + 2 : a.first[r] + 2 + a.options[r]].sum()
        return int(self.cost[r] - gone + a.lengths[a.first[r] + 2 + draw.keep].sum())

    def group(self, draws: list[Draw]) -> list[list[Draw]]:
        """Consecutive draws that fit one batch together."""
        out: list[list[Draw]] = [[]]
        used = marks = 0
        for draw in draws:
            cost = self.cost_of(draw)
            count = int(self.archive.options[draw.row]) if draw.keep is None else len(draw.keep)
            full = marks + count >= self.shape.markers or len(out[-1]) >= self.shape.rows - 1
            if full or used + cost > self.shape.tokens:
                out.append([])
                used = marks = 0
            out[-1].append(draw)
            used, marks = used + cost, marks + count
        return out

    def pack(self, draws: list[Draw]) -> Batch:
        a, special = self.archive, len(self.archive.tokens)
        pieces: list[tuple[int, int, int, int, int, int]] = []  # source, length, position, segment, part, row
        mark_piece: list[int] = []
        mark_row: list[int] = []
        gold: list[int] = []
        for doc, (r, keep) in enumerate(draws):
            at = int(a.first[r])
            start, length = int(a.starts[at]), int(a.lengths[at])
            for w, (offset, size) in enumerate(windows(length), 1):
                pieces += [(special, 1, 0, 0, -w, doc), (start + offset, size, 1, 0, -w, doc),
                           (special + 1, 1, size + 1, 0, -w, doc)]  # fmt: skip
            size = int(a.lengths[at + 1])
            pieces += [(special, 1, 0, 1, 0, doc), (int(a.starts[at + 1]), size, 1, 1, 0, doc),
                       (special + 1, 1, size + 1, 1, 0, doc)]  # fmt: skip
            shown = range(int(a.options[r])) if keep is None else keep.tolist()
            for part, option in enumerate(shown, 1):
                if option == a.gold[r]:
                    gold.append(len(mark_piece))
                mark_piece.append(len(pieces))
                mark_row.append(doc)
                p = at + 2 + option
                pieces += [(special + 2, 1, size + 2, 1, part, doc),
                           (int(a.starts[p]), int(a.lengths[p]), size + 3, 1, part, doc)]  # fmt: skip
        table = np.array(pieces, np.int64)
        return self._tensors(table, np.array(mark_piece), np.array(mark_row), np.array(gold), [d.row for d in draws])

    def _tensors(self, table: Ints, mark_piece: Ints, mark_row: Ints, gold: Ints, rows: list[int]) -> Batch:
        shape, (source, length, position, segment, part, doc) = self.shape, table.T
        ends = np.cumsum(length)
        begins, used = ends - length, int(ends[-1])
        spread = np.repeat(np.arange(len(table)), length)
        inner = np.arange(used) - begins[spread]
        count = len(rows)

        def token(values: npt.NDArray[np.integer], rest: int) -> torch.Tensor:
            out = np.full(shape.tokens, rest, np.int32)
            out[:used] = values
            return torch.from_numpy(out)

        marks = np.zeros(used, np.int32)
        marks[begins[mark_piece]] = 1
        docs = doc[spread]
        doc_begin = np.searchsorted(docs, np.arange(count))
        doc_begin = np.append(doc_begin, used)
        markers = len(mark_row)
        mark_at, mark_of = np.zeros(shape.markers, np.int64), np.full(shape.markers, shape.rows - 1, np.int64)
        mark_at[:markers], mark_of[:markers] = begins[mark_piece], mark_row
        per_row = np.bincount(mark_row, minlength=count)
        row = {name: np.zeros(shape.rows, np.int64) for name in ("gold", "options", "kind", "first", "index")}
        row["options"][:] = 1
        row["gold"][:count], row["options"][:count] = gold, per_row
        row["first"][:count] = np.cumsum(per_row) - per_row
        row["kind"][:count], row["index"][:count] = self.archive.kind[rows], rows
        row["index"][count:] = -1
        padded = np.append(docs, np.full(shape.tokens - used, count))
        near, reach = self._blocks(padded, np.append(doc_begin, shape.tokens))
        return {
            "ids": token(self.tokens[source[spread] + inner], 0),
            "position": token(np.minimum(position[spread] + inner, 511), 0),
            "segment": token(segment[spread], 0),
            "doc": token(docs, count),
            "part": token(part[spread], -1),
            "mark": token(marks, 0),
            "mark_at": torch.from_numpy(mark_at),
            "mark_row": torch.from_numpy(mark_of),
            "near": torch.from_numpy(near),
            "reach": torch.from_numpy(reach),
            **{f"row_{name}": torch.from_numpy(values) for name, values in row.items()},
        }

    def _blocks(self, docs: Ints, doc_begin: Ints) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Which blocks of keys each block of queries may touch: from its first row's begin to its last row's end."""
        count = self.shape.tokens // BLOCK
        low = doc_begin[docs[::BLOCK]] // BLOCK
        high = (doc_begin[docs[BLOCK - 1 :: BLOCK] + 1] - 1) // BLOCK
        reach = np.minimum(low[:, None] + np.arange(count)[None], count - 1)
        return (high - low + 1).astype(np.int32), reach.astype(np.int32)


def plan(archive: Archive, packer: Packer, tokens: float, seed: int, alpha: float = 0.5) -> list[list[Draw]]:
    """About `tokens` tokens of draws. Tasks get rows^alpha of the draws; rare kinds within a task are drawn more."""
    rng = np.random.default_rng(seed)
    rows = archive.rows(0)
    weight = np.array(KIND_WEIGHT)[archive.kind[rows]]
    size = np.bincount(archive.task[rows], minlength=len(archive.tasks)).astype(float)
    task_weight = np.divide(size**alpha, size, out=np.zeros_like(size), where=size > 0)
    share = weight * task_weight[archive.task[rows]]
    share /= share.sum()
    share = np.minimum(share, MAX_PASSES / len(rows))
    share /= share.sum()
    expected = share * tokens / float((share * packer.cost[rows]).sum())
    times = np.floor(expected).astype(np.int64) + (rng.random(len(rows)) < expected % 1)
    drawn = np.repeat(rows, times)
    rng.shuffle(drawn)
    return packer.group([_draw(archive, int(r), rng) for r in drawn])


def _draw(archive: Archive, row: int, rng: np.random.Generator) -> Draw:
    """Half of the time a long list of options is cut to some of its wrong ones: lists of every length, fewer tokens."""
    count = int(archive.options[row])
    if archive.kind[row] != 0 or count < MANY_OPTIONS or rng.random() < 0.4:
        return Draw(row, None)
    size = int(np.exp(rng.uniform(np.log(3), np.log(count))))
    wrong = np.delete(np.arange(count), archive.gold[row])
    return Draw(row, np.sort(np.append(rng.choice(wrong, size - 1, replace=False), archive.gold[row])))
