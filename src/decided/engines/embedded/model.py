"""The embedded models: encoders, run by ONNX Runtime with 8-bit weights.

A state is read once, in windows that do not see each other, and its keys and values serve all its questions. Options of
a question see the state, the instructions and themselves; their markers see one another. So the order of the options
cannot matter, and neither can what else is in a batch: integer products are exact and every scale belongs to one token.
"""

import hashlib
import json
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decided.contract.types import Question, type_of
from decided.engines import prompts
from decided.engines.api import Cut, Encoded, Item, ModelCard, More
from decided.engines.embedded.calibration import Scale, scaled
from decided.engines.embedded.layout import (
    CLS,
    INSTRUCTION_TOKENS,
    MARK,
    MAX_STATE_TOKENS,
    OPTION_TOKENS,
    QUESTION_TOKENS,
    SEP,
    windows,
)
from decided.engines.embedded.prompt import render
from decided.engines.embedded.sessions import sessions
from decided.engines.embedded.weights import locate
from decided.engines.tokenizer import Vocabulary
from decided.errors import ModelError
from decided.hardware import multiplies_bytes_exactly, physical_cores
from decided.settings import Settings

log = logging.getLogger("decided.embedded")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_HIDDEN_FROM = np.float32(-1e9)
_ROW_TOKENS = 192
"""A longer question is laid out in several rows of attention, cut between options."""
_KEYS = 600
"""A token that sees so many others costs twice what one that sees none does."""
_MOST_KEYS = 512
"""About how many tokens of its own question a token sees, however long the question is."""
_ROOM = 3 * 2**27
"""Bytes of keys and values: one state of the greatest length, and some shorter ones."""
_LANES = 16
"""Attention runs over a multiple of so many keys. A vector loop with a rest adds in another order, and so the last bits
of an answer would depend on the longest question beside it (seen on ARM)."""
_STEP_PAIRS = 2**19
"""Pairs of tokens whose attention is worked out at a time: 12 heads of float32 each, about 25 MB, in every thread."""


class EncodedQuestion(NamedTuple):
    """A question in tokens. `part` is 0 for instructions and 1, 2, ... for the options; `markers` are token indices."""

    ids: Ints
    position: Ints
    part: Ints
    markers: Ints
    marked: NDArray[np.bool_]
    scale: Scale
    order: list[int]
    cuts: tuple[Cut, ...]


class Asking:
    """A state with its questions, on its way. A run reads one window, or answers one group of questions; of a state of
    one window, both. Keys and values of the windows are kept from run to run."""

    def __init__(self, ids: list[int], questions: list[EncodedQuestion], budget: int) -> None:
        self.ids = ids
        self.windows = windows(len(ids))
        self.keys = len(ids) + 2 * len(self.windows)
        self.groups = list(_groups(questions, budget * _KEYS // (_KEYS + self.keys)))
        self.read = 0  # windows
        self.cached: dict[str, Floats] = {}
        self.answered = 0  # groups
        self.answers: list[list[float]] = []
        self.options = onnxruntime.RunOptions()
        self.options.log_severity_level = 4  # to be stopped is no error

    @property
    def is_long(self) -> bool:
        """Whether it takes more than one run."""
        return len(self.windows) > 1 or len(self.groups) > 1

    @property
    def cost(self) -> int:
        """Of the next run."""
        of_group = sum(
            _cost(len(asked.ids), self.keys + min(len(asked.ids), _MOST_KEYS)) for asked in self.groups[self.answered]
        )
        if self.read == len(self.windows):
            return of_group
        tokens = self.windows[self.read][1] + 2
        return _cost(tokens, tokens) + (of_group if len(self.windows) == 1 else 0)

    def stop(self) -> None:
        self.options.terminate = True


class Embedded:
    """A graph, a tokenizer, a set of temperatures. As many threads as there are cores may run it at a time, one core
    each; a run that begins while no other is under way has all cores."""

    token_budget = 128
    room = _ROOM
    gives_features = True

    def __init__(self, folder: Path, exact: bool, threads: int) -> None:
        about = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        _check(folder, about["sha256"])
        self.card = ModelCard(
            name=about["name"],
            description=about["description"],
            release_date=about["release_date"],
            kind="embedded",
            device="cpu",
            weights=_digest(about),
        )
        self._temperatures: dict[str, list[float]] = about["temperatures"]
        self._steepness: dict[str, float] = about["temperatures"].get("steepness", {})
        self._edges: list[int] = about["temperatures"]["option_count_edges"]
        self._vocabulary = Vocabulary(Tokenizer.from_file(str(folder / "tokenizer.json")), {})
        graph = folder / ("exact.onnx" if exact else "model.onnx")
        self.runners = threads
        self._narrow, self._wide = sessions(graph, threads)
        kept = [each for each in self._narrow.get_inputs() if each.name.startswith(("key", "value"))]
        self._cached = [each.name for each in kept]
        values = [name for name in self._cached if name.startswith("value")]
        self._pooled = values[2 * len(values) // 3 - 1]  # layers in the middle teach more than the last one
        self._bytes_per_token = sum(4 * math.prod(_sizes(each, 1)) for each in kept)
        self._no_questions = {each.name: _nothing(each) for each in self._narrow.get_inputs()}
        # Attention with a bias by the distance of two tokens has to know where those of the state are.
        self._by_distance = "state_position" in self._no_questions
        self._running = 0
        self._lock = threading.Lock()

    def prepare(self, questions: Sequence[Question]) -> list[EncodedQuestion]:
        return [self._ask(question) for question in questions]

    def encode(self, prepared: Sequence[EncodedQuestion], state: str) -> Encoded:
        ids, cuts = prompts.tokens(self._vocabulary, state, "state", MAX_STATE_TOKENS)
        asking = Asking(ids, list(prepared), self.token_budget)
        total = asking.keys + sum(len(asked.ids) for asked in prepared)
        item = Item(range(len(prepared)), asking.cost, asking, asking.stop)
        room = asking.keys * self._bytes_per_token if asking.is_long else 0
        return Encoded([item], total, [(*cuts, *asked.cuts) for asked in prepared], room)

    def run(self, items: Sequence[Item]) -> list[list[list[float]] | More]:
        with self._lock:
            self._running += 1
            session = self._wide if self._running == 1 else self._narrow
        try:
            return [self._go_on(item, session) for item in items]
        finally:
            with self._lock:
                self._running -= 1

    def _ask(self, question: Question) -> EncodedQuestion:
        kind, shown = type_of(question), render(question)
        lead = prompts.tokens(self._vocabulary, shown.instructions, "instructions", INSTRUCTION_TOKENS)
        room = min(OPTION_TOKENS, (QUESTION_TOKENS - len(lead.ids)) // len(shown.options) - 1)
        texts = [prompts.tokens(self._vocabulary, text, "options", room) for text in shown.options]
        # Options go in one fixed order of their own: the network does not care, but the last bits of a sum would.
        order = list(range(len(texts)))
        if kind == "choice":
            order.sort(key=lambda i: texts[i].ids)
        elif kind == "noul":
            order = [1, 0]  # worded [no, yes], answered [true, false]
        ids = [CLS, *lead.ids, SEP]
        start = len(ids)
        position, part, markers = list(range(start)), [0] * start, []
        for number, text in enumerate((texts[i] for i in order) if kind == "choice" else texts, 1):
            markers.append(len(ids))
            ids += [MARK, *text.ids]
            position += range(start, start + 1 + len(text.ids))
            part += [number] * (1 + len(text.ids))
        marked = np.zeros(len(ids), np.bool_)
        marked[markers] = True
        bucket = sum(len(texts) > edge for edge in self._edges)
        return EncodedQuestion(
            np.array(ids, np.int64),
            np.array(position, np.int64),
            np.array(part, np.int64),
            np.array(markers, np.int64),
            marked,
            Scale(self._temperatures[kind][bucket], self._steepness.get(kind, 0.0)),
            order,
            lead.cuts + prompts.join_cuts([text.cuts for text in texts]),
        )

    def _go_on(self, item: Item, session: Any) -> list[list[float]] | More:
        """One run. What it found is kept at its end alone, so a run that failed can be tried again."""
        asking: Asking = item.payload
        if asking.read < len(asking.windows):
            self._read_window(asking, session)
            if len(asking.windows) > 1:
                return More(asking.cost)
        if item.wants_features and item.features is None:
            item.features = pool(asking.cached[self._pooled])
        group = asking.groups[asking.answered]
        feed = {**_packed(group, asking.keys), **asking.cached}
        if self._by_distance:
            feed["state_position"] = np.concatenate([np.arange(length + 2) for _, length in asking.windows])
        logits = session.run(["logits"], feed, asking.options)[0]
        ends = np.cumsum([len(asked.markers) for asked in group])[:-1]
        asking.answers += [_weights(part, asked) for part, asked in zip(np.split(logits, ends), group, strict=True)]
        asking.answered += 1
        if asking.answered < len(asking.groups):
            return More(asking.cost)
        asking.cached.clear()
        return asking.answers

    def _read_window(self, asking: Asking, session: Any) -> None:
        """Keys and values of every layer for one window, beside those of the windows before it."""
        start, length = asking.windows[asking.read]
        ids = np.array([CLS, *asking.ids[start : start + length], SEP], np.int64)
        window = {"ids": ids, "position": np.arange(len(ids)), "segment": np.zeros(len(ids), np.int64)}
        feed = {**self._no_questions, **window, "alone": np.array(True)}
        new = session.run([f"new_{name}" for name in self._cached], feed, asking.options)
        found = dict(zip(self._cached, new, strict=True))
        if len(asking.windows) == 1:
            asking.cached = found
        else:
            at = start + 2 * asking.read
            for name, values in found.items():  # filled in place: twice the memory would be a lot for a long state
                axis = 3 if name.startswith("key") else 2
                if not asking.read:
                    shape = [asking.keys if a == axis else n for a, n in enumerate(values.shape)]
                    asking.cached[name] = np.empty(shape, np.float32)
                np.moveaxis(asking.cached[name], axis, 0)[at : at + len(ids)] = np.moveaxis(values, axis, 0)
        asking.read += 1


def _cost(tokens: int, keys: int) -> int:
    """What it takes to run so many tokens, each of which sees so many, in tokens that see none."""
    return tokens + tokens * keys // _KEYS


def pool(values: Floats) -> Floats:
    """The features of a state: the values of one layer, averaged over all its tokens, in however many windows."""
    pooled: Floats = values.mean(axis=2, dtype=np.float32).ravel()
    return pooled


def _groups(questions: list[EncodedQuestion], limit: int) -> Iterator[list[EncodedQuestion]]:
    """Consecutive questions, up to about so many tokens at a time."""
    group: list[EncodedQuestion] = []
    size = 0
    for asked in questions:
        if group and size + len(asked.ids) > limit:
            yield group
            group, size = [], 0
        group.append(asked)
        size += len(asked.ids)
    yield group


def _rows(asked: EncodedQuestion) -> list[tuple[Ints, Ints]]:
    """(tokens that ask, tokens that may be seen) for each row of attention, as indices into the question.

    A short question is one row. A long one is cut between options: each row sees the instructions, all markers and
    its own options, so the work grows with the number of options and not with its square.
    """
    everything = np.arange(len(asked.ids))
    if len(asked.ids) <= _ROW_TOKENS:
        return [(everything, everything)]
    first = int(asked.markers[0])
    rows = [(everything[:first], everything[:first])]
    edges = [*asked.markers.tolist(), len(asked.ids)]
    start = first
    for edge, following in pairwise([*edges, edges[-1] + _ROW_TOKENS]):
        if following - start > _ROW_TOKENS and edge > start:
            others = asked.markers[(asked.markers < start) | (asked.markers >= edge)]
            rows.append((everything[start:edge], np.concatenate([everything[:first], everything[start:edge], others])))
            start = edge
    return rows


def _packed(group: list[EncodedQuestion], state_tokens: int) -> dict[str, NDArray[Any]]:
    """The graph's inputs for some questions: tokens back to back, and who sees whom."""
    starts = np.cumsum([0, *(len(asked.ids) for asked in group)])
    rows = [(i, *row) for i, asked in enumerate(group) for row in _rows(asked)]
    places, keys = max(len(asks) for _, asks, _ in rows), max(len(sees) for _, _, sees in rows)
    keys += -(state_tokens + keys) % _LANES
    step = max(1, min(len(rows), _STEP_PAIRS // (places * (state_tokens + keys))))
    steps = -(-len(rows) // step)
    grid, seen = np.zeros((steps * step, places), np.int64), np.zeros((steps * step, keys), np.int64)
    bias = np.full((steps * step, 1, places, keys), _HIDDEN_FROM, np.float32)
    for r, (i, asks, sees) in enumerate(rows):
        part, marked = group[i].part, group[i].marked
        grid[r, : len(asks)], seen[r, : len(sees)] = asks + starts[i], sees + starts[i]
        both = (part[asks][:, None] == part[sees]) | (part[sees] == 0) | (marked[asks][:, None] & marked[sees])
        bias[r, 0, : len(asks), : len(sees)][both] = 0
    return {
        "ids": np.concatenate([asked.ids for asked in group]),
        "position": np.concatenate([asked.position for asked in group]),
        "segment": np.ones(starts[-1], np.int64),
        "alone": np.array(False),
        "grid": grid,
        "seen": seen,
        "cell": np.concatenate([r * places + np.arange(len(asks)) for r, (_, asks, _) in enumerate(rows)]),
        "markers": np.concatenate([asked.markers + start for asked, start in zip(group, starts, strict=False)]),
        "lengths": np.array([state_tokens, keys], np.int64),
        "each": np.array([step], np.int64),
        "turns": np.array(steps, np.int64),
        "bias": bias,
    }


def _weights(logits: Floats, asked: EncodedQuestion) -> list[float]:
    """The weights of the options in the caller's order."""
    served = scaled(logits.astype(np.float64), asked.scale)
    weights = np.empty(len(served))
    weights[asked.order] = np.exp(served - served.max())
    return weights.tolist()


def _digest(about: dict[str, Any]) -> str:
    """Of all that an answer depends on but the numbers' precision: 8 bits and float32 share their weights."""
    files = [digest for name, digest in sorted(about["sha256"].items()) if not name.endswith(".onnx")]
    parts = [*files, about["temperatures"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _check(folder: Path, digests: dict[str, str]) -> None:
    for name, digest in digests.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ModelError(f"the embedded model's file {name} is damaged: its SHA-256 is not the one on the card")


def _sizes(of: Any, unknown: int) -> list[int]:
    """The shape of an input, where a size that depends on the request is so many."""
    return [size if isinstance(size, int) else unknown for size in of.shape]


def _nothing(of: Any) -> NDArray[Any]:
    """An input that has no part in a run."""
    return np.zeros(_sizes(of, 0), {"tensor(float)": np.float32, "tensor(bool)": np.bool_}.get(of.type, np.int64))


def load(name: str, settings: Settings) -> Embedded:
    """The embedded model, in 8 bits or, with --dtype float32, exactly."""
    folder = locate(name)
    if settings.device not in ("auto", "cpu"):
        raise ModelError("the embedded models run on the CPU: leave --device at auto")
    if settings.dtype not in ("auto", "int8", "float32"):
        raise ModelError(f"the embedded model runs in int8 or float32, not {settings.dtype}: leave --dtype at auto")
    exact = settings.dtype == "float32"
    if not exact and not multiplies_bytes_exactly():
        log.warning("this CPU lacks VNNI: using float32 (slower)")
        exact = True
    return Embedded(folder, exact, settings.threads or physical_cores())
