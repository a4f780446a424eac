"""The embedded models: encoders with 8-bit weights, alone or several that answer together.

A state is read once, in windows that do not see each other, and its keys and values serve all its questions. Options of
a question see the state, the instructions and themselves; their markers see one another. So the order of the options
cannot matter, and neither can what else is in a batch: integer products are exact and every scale belongs to one token.
"""

import logging
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from decided.engines.embedded.network import Floats, Ints, Network, Read, join
from decided.engines.embedded.prompt import render
from decided.engines.embedded.weights import check, digest, locate, members, read_card
from decided.engines.tokenizer import Vocabulary
from decided.errors import ModelError
from decided.hardware import multiplies_bytes_exactly, physical_cores
from decided.settings import Settings

log = logging.getLogger("decided.embedded")

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
    """A state with its questions, on its way through one network after the other. A step reads one window, or answers
    one group of questions; of a state of one window, both. What was read of the windows is kept from step to step."""

    def __init__(self, ids: list[int], questions: list[EncodedQuestion], budget: int, efforts: list[float]) -> None:
        self.ids = ids
        self.windows = windows(len(ids))
        self.keys = len(ids) + 2 * len(self.windows)
        self.questions = questions
        self.groups = list(_groups(questions, budget * _KEYS // (_KEYS + self.keys)))
        self.logits = [np.zeros(len(asked.markers), np.float32) for asked in questions]
        self.efforts = efforts
        self.network = 0  # whose turn it is; the rest is what this one has done
        self.read = 0  # windows
        self.cached: Read = {}
        self.answered = 0  # groups
        self.said = 0  # questions
        self.options = onnxruntime.RunOptions()
        self.options.log_severity_level = 4  # to be stopped is no error

    @property
    def is_long(self) -> bool:
        """Whether every step is a run of its own."""
        return len(self.windows) > 1 or len(self.groups) > 1

    @property
    def is_over(self) -> bool:
        return self.network == len(self.efforts)

    @property
    def cost(self) -> int:
        """Of the next run."""
        effort = self.efforts[self.network] if self.is_long else sum(self.efforts)
        return math.ceil(effort * self._step_cost())

    def _step_cost(self) -> int:
        of_group = sum(
            _cost(len(asked.ids), self.keys + min(len(asked.ids), _MOST_KEYS)) for asked in self.groups[self.answered]
        )
        if self.read == len(self.windows):
            return of_group
        tokens = self.windows[self.read][1] + 2
        return _cost(tokens, tokens) + (of_group if len(self.windows) == 1 else 0)

    def add(self, logits: Floats) -> None:
        """What a network says about the next group. After the last one it is the next network's turn."""
        group = self.groups[self.answered]
        parts = np.split(logits, np.cumsum([len(asked.markers) for asked in group])[:-1])
        for so_far, part in zip(self.logits[self.said : self.said + len(group)], parts, strict=True):
            so_far += part
        self.answered, self.said = self.answered + 1, self.said + len(group)
        if self.answered == len(self.groups):
            self.network, self.read, self.cached, self.answered, self.said = self.network + 1, 0, {}, 0, 0

    def stop(self) -> None:
        self.options.terminate = True


class Embedded:
    """One encoder or several, whose logits are added up by their shares; a tokenizer, a set of temperatures. As many
    threads as there are cores may run it at a time, one core each; a run that begins while no other is under way has
    all cores."""

    token_budget = 128
    room = _ROOM
    gives_features = True

    def __init__(self, folder: Path, exact: bool, threads: int) -> None:
        about = read_card(folder)
        encoders = members(folder, about)
        self.card = ModelCard(
            name=about["name"],
            description=about["description"],
            release_date=about["release_date"],
            kind="embedded",
            device="cpu",
            weights=digest(about),
        )
        self._temperatures: dict[str, list[float]] = about["temperatures"]
        self._steepness: dict[str, float] = about["temperatures"].get("steepness", {})
        self._edges: list[int] = about["temperatures"]["option_count_edges"]
        self.runners = threads
        graph = "exact.onnx" if exact else "model.onnx"
        with ThreadPoolExecutor() as pool:
            self._networks = list(pool.map(lambda each: _open(each, graph, threads), encoders))
        self._shares = list(encoders.values())
        self._vocabulary = Vocabulary(Tokenizer.from_file(str(next(iter(encoders)) / "tokenizer.json")), {})
        # One network after the other keeps what it read; how much that is also tells roughly how long each takes.
        self._bytes_per_token = max(network.bytes_per_token for network in self._networks)
        self._efforts = [network.bytes_per_token / self._bytes_per_token for network in self._networks]
        self._running = 0
        self._lock = threading.Lock()

    def prepare(self, questions: Sequence[Question]) -> list[EncodedQuestion]:
        return [self._ask(question) for question in questions]

    def encode(self, prepared: Sequence[EncodedQuestion], state: str) -> Encoded:
        ids, cuts = prompts.tokens(self._vocabulary, state, "state", MAX_STATE_TOKENS)
        asking = Asking(ids, list(prepared), self.token_budget, self._efforts)
        total = asking.keys + sum(len(asked.ids) for asked in prepared)
        item = Item(range(len(prepared)), asking.cost, asking, asking.stop)
        room = asking.keys * self._bytes_per_token if asking.is_long else 0
        return Encoded([item], total, [(*cuts, *asked.cuts) for asked in prepared], room)

    def run(self, items: Sequence[Item]) -> list[list[list[float]] | More]:
        with self._lock:
            self._running += 1
            wide = self._running == 1
        try:
            return [self._go_on(item, wide) for item in items]
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

    def _go_on(self, item: Item, wide: bool) -> list[list[float]] | More:
        """One run. What a step found is kept at its end alone, so a run that failed can be tried again."""
        asking: Asking = item.payload
        while not asking.is_over:
            self._step(item, asking, wide)
            if asking.is_long and not asking.is_over:
                return More(asking.cost)
        return [_weights(logits, asked) for logits, asked in zip(asking.logits, asking.questions, strict=True)]

    def _step(self, item: Item, asking: Asking, wide: bool) -> None:
        network = self._networks[asking.network]
        if asking.read < len(asking.windows):
            self._read_window(network, asking, wide)
            if len(asking.windows) > 1:
                return
        if item.wants_features and item.features is None:
            item.features = network.features(asking.cached)
        questions = _packed(asking.groups[asking.answered], asking.keys)
        place = np.concatenate([np.arange(length + 2) for _, length in asking.windows])
        logits = network.logits(questions, asking.cached, place, wide, asking.options)
        asking.add(self._shares[asking.network] * logits)

    def _read_window(self, network: Network, asking: Asking, wide: bool) -> None:
        """Keys and values of every layer for one window, beside those of the windows before it."""
        start, length = asking.windows[asking.read]
        ids = np.array([CLS, *asking.ids[start : start + length], SEP], np.int64)
        new = network.read(ids, wide, asking.options)
        if len(asking.windows) == 1:
            asking.cached = new
        else:
            join(asking.cached, new, start + 2 * asking.read, asking.keys)
        asking.read += 1


def _open(folder: Path, graph: str, threads: int) -> Network:
    check(folder)
    return Network(folder / graph, threads)


def _cost(tokens: int, keys: int) -> int:
    """What it takes to run so many tokens, each of which sees so many, in tokens that see none."""
    return tokens + tokens * keys // _KEYS


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
