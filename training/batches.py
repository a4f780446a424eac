"""Draws rows by task and packs them, unpadded, into batches of a fixed number of tokens.

Fixed shapes keep compiled kernels compiled; packing keeps nearly every token useful. Rows about one state that follow
each other share it. Each token carries four numbers that decide who sees whom: its block (`own`: a state window, the
instructions or an option), what it may read (`reads`) or is a part of (`given`), and the row whose option it marks
(`mark`). `given` numbers a state by a multiple of `ROOM` and the instructions of the rows about it by what follows;
who reads instructions reads their state as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from decided.engines.embedded.layout import CLS, MARK, SEP, WINDOW, windows
from training.archive import HAND_WRITTEN, TRAIN, Archive, Ints

BLOCK = 64  # granularity of the sparse attention; kernels may take larger squares
GROUPS = {  # beginnings of task names, the first that fits, and their shares of the draws
    f"{HAND_WRITTEN}twins-": 0.27,
    HAND_WRITTEN: 0.15,
    "story/scene": 0.04,
    "story/pattern": 0.06,
    "story/": 0.05,
    "gen/": 0.11,
    "": 0.32,
}
KIND_WEIGHT = (1.0, 2.5, 1.3)  # choice, score, noul: score is 8 % of the rows and the hardest to learn
HAND_KIND_WEIGHT = (1.0, 1.8, 1.0)
FRESH_WEIGHT = 2.5  # of hand-written files that the weights a run goes on from have not seen
MAX_PASSES = 4.0  # a small task is seen at most so many times as often as plain shuffling would show it
MANY_OPTIONS = 8
CHOICE = 0
CHUNK = 60_000  # rows drawn at a time
ROOM = 1 << 12  # more than there are rows in a batch
CLEAN = (HAND_WRITTEN, "gen/", "story/")  # tasks of our own: what they call right is right

Batch = dict[str, torch.Tensor]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class Draw(NamedTuple):
    """One row to train on, which of its options to show (None: all), and the row whose state to show in place of its
    own (None: its own). To a question about another row's state only a teacher has an answer."""

    row: int
    keep: Ints | None
    stranger: int | None = None

    @property
    def about(self) -> int:
        """The row whose state is shown."""
        return self.row if self.stranger is None else self.stranger


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
        self.clean = np.array([name.startswith(CLEAN) for name in archive.tasks])
        linked = archive.lengths[archive.links]
        total = np.concatenate([[0], np.cumsum(linked)])
        first, options = archive.first, archive.options
        framed = 2 * np.maximum(1, -(-linked[first] // WINDOW))
        self.state_cost: Ints = linked[first] + framed
        self.cost: Ints = total[first + 2 + options] - total[first] + framed + 2 + options

    def cost_of(self, draw: Draw) -> int:
        a, r = self.archive, draw.row
        cost = self.cost[r] + self.state_cost[draw.about] - self.state_cost[r]
        if draw.keep is not None:
            lengths = a.lengths[a.links[a.first[r] + 2 : a.first[r] + 2 + a.options[r]]]
            cost += len(draw.keep) + lengths[draw.keep].sum() - (len(lengths) + lengths.sum())
        return int(cost)

    def state_of(self, draw: Draw) -> int:
        """The number of the text that is asked about."""
        return int(self.archive.links[self.archive.first[draw.about]])

    def groups(self, draws: Iterator[Draw]) -> Iterator[list[Draw]]:
        """Consecutive draws that fit one batch together. A row that no batch can hold is left out."""
        group: list[Draw] = []
        used = marks = 0
        for draw in draws:
            if (cost := self.cost_of(draw)) > self.shape.tokens:
                continue
            options = int(self.archive.options[draw.row]) if draw.keep is None else len(draw.keep)
            full = marks + options >= self.shape.markers or len(group) >= self.shape.rows - 1
            known = bool(group) and self.state_of(draw) == self.state_of(group[-1])
            more = cost - int(self.state_cost[draw.about]) if known else cost
            if group and (full or used + more > self.shape.tokens):
                yield group
                group, used, marks, more = [], 0, 0, cost
            group.append(draw)
            used, marks = used + more, marks + options
        if group:
            yield group

    def pack(self, draws: list[Draw]) -> Batch:
        a, special = self.archive, len(self.archive.tokens)
        pieces: list[tuple[int, int, int, int, int, int]] = []  # source, length, position, segment, part, row
        mark_piece: list[int] = []
        mark_row: list[int] = []
        gold: list[int] = []
        before = -1
        for doc, draw in enumerate(draws):
            r, keep = draw.row, draw.keep
            links = a.links[a.first[r] : a.first[r] + 2 + a.options[r]].copy()
            links[0] = state = self.state_of(draw)
            starts, lengths = a.starts[links].tolist(), a.lengths[links].tolist()
            for w, (offset, size) in enumerate(windows(lengths[0]) if state != before else [], 1):
                pieces += [(special, 1, 0, 0, -w, doc), (starts[0] + offset, size, 1, 0, -w, doc),
                           (special + 1, 1, size + 1, 0, -w, doc)]  # fmt: skip
            size = lengths[1]
            pieces += [(special, 1, 0, 1, 0, doc), (starts[1], size, 1, 1, 0, doc),
                       (special + 1, 1, size + 1, 1, 0, doc)]  # fmt: skip
            shown = range(int(a.options[r])) if keep is None else keep.tolist()
            for part, option in enumerate(shown, 1):
                if option == a.gold[r]:
                    gold.append(len(mark_piece))
                mark_piece.append(len(pieces))
                mark_row.append(doc)
                pieces += [(special + 2, 1, size + 2, 1, part, doc),
                           (starts[option + 2], lengths[option + 2], size + 3, 1, part, doc)]  # fmt: skip
            before = state
        table = np.array(pieces, np.int64)
        return self._tensors(table, np.array(mark_piece), np.array(mark_row), np.array(gold), draws)

    def _tensors(self, table: Ints, mark_piece: Ints, mark_row: Ints, gold: Ints, draws: list[Draw]) -> Batch:
        shape, (source, length, position, segment, part, doc) = self.shape, table.T
        ends = np.cumsum(length)
        begins, used = ends - length, int(ends[-1])
        spread = np.repeat(np.arange(len(table)), length)
        inner = np.arange(used) - begins[spread]

        def token(values: npt.NDArray[np.integer], rest: int | Ints) -> torch.Tensor:
            out = np.empty(shape.tokens, np.int32)
            out[:used], out[used:] = values, rest
            return torch.from_numpy(out)

        new = np.append(True, (doc[1:] != doc[:-1]) | (part[1:] != part[:-1]))  # a block begins here
        home = np.maximum.accumulate(np.where(part < 0, doc, 0))  # the row whose state is shared
        state, told = ROOM * home, ROOM * home + doc - home + 1
        mark = -1 - np.arange(used)
        mark[begins[mark_piece]] = mark_row
        near, full = self._blocks(begins[new], np.append(begins[new][1:], used), part[new], doc[new])
        padding = -1 - np.arange(used, shape.tokens)
        return {
            "ids": token(self.tokens[source[spread] + inner], 0),
            "position": token(np.minimum(position[spread] + inner, 511), 0),
            "segment": token(segment[spread], 0),
            "own": token((np.cumsum(new) - 1)[spread], padding // BLOCK - 1),
            "reads": token(np.where(part < 0, -2, np.where(part == 0, state, told))[spread], -2),
            "given": token(np.where(part > 0, -1, np.where(part == 0, told, state))[spread], -1),
            "mark": token(mark, padding),
            "near": torch.from_numpy(near),
            "full": torch.from_numpy(full),
            "used": torch.tensor(used),
            **self._by_row(begins[mark_piece], mark_row, gold, draws),
        }

    def _by_row(self, mark_at: Ints, mark_row: Ints, gold: Ints, draws: list[Draw]) -> Batch:
        shape, archive, count, markers = self.shape, self.archive, len(draws), len(mark_row)
        rows = [draw.row for draw in draws]
        at, of = np.zeros(shape.markers, np.int64), np.full(shape.markers, shape.rows - 1, np.int64)
        at[:markers], of[:markers] = mark_at, mark_row
        options = np.bincount(mark_row, minlength=count)
        names = ("gold", "options", "kind", "first", "index", "clean", "strange")
        row = {name: np.zeros(shape.rows, np.int64) for name in names}
        row["options"][:] = 1
        row["gold"][:count], row["options"][:count] = gold, options
        row["first"][:count] = np.cumsum(options) - options
        row["kind"][:count], row["index"][:count] = archive.kind[rows], rows
        row["clean"][:count] = self.clean[archive.task[rows]]
        row["strange"][:count] = [draw.stranger is not None for draw in draws]
        row["index"][count:] = -1
        found = {f"row_{name}": torch.from_numpy(values) for name, values in row.items()}
        return {"mark_at": torch.from_numpy(at), "mark_row": torch.from_numpy(of), **found}

    def _blocks(self, begin: Ints, end: Ints, part: Ints, doc: Ints) -> tuple[Bools, Bools]:
        """Which squares of the attention have something to see, and which are seen whole."""
        size = self.shape.tokens // BLOCK
        near, full = np.eye(size, dtype=np.bool_), np.zeros((size, size), np.bool_)

        def see(q: tuple[int, int], k: tuple[int, int]) -> None:
            near[q[0] // BLOCK : (q[1] - 1) // BLOCK + 1, k[0] // BLOCK : (k[1] - 1) // BLOCK + 1] = True
            full[-(-q[0] // BLOCK) : q[1] // BLOCK, -(-k[0] // BLOCK) : k[1] // BLOCK] = True

        edges = np.append(np.flatnonzero(np.append(True, doc[1:] != doc[:-1])), len(doc)).tolist()
        state = (0, 0)
        for low, high in pairwise(edges):
            lead = low + int(np.searchsorted(part[low:high] >= 0, True))  # the instructions
            for i in range(low, lead):
                see((begin[i], end[i]), (begin[i], end[i]))
            if lead > low:
                state = (begin[low], end[lead - 1])
            else:  # that of a row before
                see((begin[lead], end[high - 1]), state)
            see((begin[lead], end[high - 1]), (begin[low], end[lead]))
            if high - lead > 1:
                marked = np.unique(begin[lead + 1 : high] // BLOCK)
                near[marked[:, None], marked] = True
                across = begin[lead + 1 : high] // BLOCK != (end[lead + 1 : high] - 1) // BLOCK
                for i in (lead + 1 + np.flatnonzero(across)).tolist():
                    see((begin[i], end[i]), (begin[i], end[i]))
        return near, full


def shares(archive: Archive, fresh: Sequence[str] = (), alpha: float = 0.5) -> tuple[Ints, Floats]:
    """The rows to train on and how often each is drawn.

    Within a group tasks get rows^alpha of the draws, hand-written rows all the same; some kinds get more, and so do the
    hand-written files named in `fresh`.
    """
    rows = archive.rows(TRAIN)
    task, kind = archive.task[rows], archive.kind[rows]
    size = np.bincount(task, minlength=len(archive.tasks)).astype(float)
    share = np.array(KIND_WEIGHT)[kind] * size[task] ** (alpha - 1)
    by_hand = np.array([name.startswith(HAND_WRITTEN) for name in archive.tasks])[task]
    share[by_hand] = np.array(HAND_KIND_WEIGHT)[kind[by_hand]]
    beginnings = tuple(f"{HAND_WRITTEN}{name}/" for name in fresh)
    share[np.array([name.startswith(beginnings) for name in archive.tasks])[task]] *= FRESH_WEIGHT
    group = np.array([next(i for i, p in enumerate(GROUPS) if name.startswith(p)) for name in archive.tasks])[task]
    for which, part in zip((group == i for i in range(len(GROUPS))), GROUPS.values(), strict=True):
        if which.any():
            some = share[which] / share[which].sum()
            some = np.minimum(some, MAX_PASSES / which.sum())
            share[which] = part * some / some.sum()
    return rows, share / share.sum()


class Company:
    """Rows to train on by their states: others that are asked about the same one."""

    def __init__(self, archive: Archive, rows: Ints) -> None:
        self.states = archive.links[archive.first]
        self.rows = rows[np.argsort(self.states[rows], kind="stable")]
        self.sorted = self.states[self.rows]

    def of(self, row: int, size: int, rng: np.random.Generator) -> list[int]:
        """The row itself and at most `size` - 1 others."""
        low, high = (np.searchsorted(self.sorted, self.states[row], side) for side in ("left", "right"))
        others = self.rows[low:high]
        return [row, *rng.permutation(others[others != row])[: size - 1].tolist()]


def drawn(
    archive: Archive,
    seed: int,
    worker: int = 0,
    workers: int = 1,
    strange: float = 0.0,
    fresh: Sequence[str] = (),
    together: int = 1,
) -> Iterator[Draw]:
    """Draws without end, for one of several workers. A row comes again only when its turn has come, not by chance. So
    many of the questions are asked about the state of some other row. Each brings others about its state along, up to
    `together` in all."""
    rows, share = shares(archive, fresh)
    company = Company(archive, rows)
    start = np.random.default_rng(seed).random(len(rows))
    expected = share * CHUNK
    for chunk in count():
        times = np.floor((chunk + 1) * expected + start) - np.floor(chunk * expected + start)
        rng = np.random.default_rng((seed, chunk))
        some = np.repeat(rows, times.astype(np.int64))
        rng.shuffle(some)
        own = np.random.default_rng((seed, chunk, worker))
        for r in some[worker::workers]:
            stranger = int(own.choice(some)) if own.random() < strange else None
            for row in company.of(int(r), together, own) if together > 1 else [int(r)]:
                yield _draw(archive, row, own)._replace(stranger=stranger)


def _draw(archive: Archive, row: int, rng: np.random.Generator) -> Draw:
    """Lists of options are often cut to some of the wrong ones: lists of every length, and fewer tokens."""
    options = int(archive.options[row])
    cut = 0.6 if options >= MANY_OPTIONS else 0.25
    if archive.kind[row] != CHOICE or options < 4 or rng.random() >= cut:
        return Draw(row, None)
    size = int(np.exp(rng.uniform(np.log(3), np.log(options))))
    wrong = np.delete(np.arange(options), archive.gold[row])
    return Draw(row, np.sort(np.append(rng.choice(wrong, size - 1, replace=False), archive.gold[row])))
