"""The model inside the package: an encoder of 33 million parameters, run by ONNX Runtime with 8-bit weights.

A state is read once, in windows that do not see each other, and its keys and values serve all its questions. Options of
a question see the state, the instructions and themselves; their markers see one another. So the order of the options
cannot matter, and neither can what else is in a batch: integer products are exact and every scale belongs to one token.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from decided import prompts
from decided.contract import Choice, Noul, Question, compact
from decided.engine import Cut, Item, ModelCard, Reading
from decided.engines.rendering import (
    CLS,
    INSTRUCTION_TOKENS,
    MARK,
    MAX_STATE_TOKENS,
    OPTION_TOKENS,
    QUESTION_TOKENS,
    SEP,
    render,
    windows,
)
from decided.engines.vocabulary import Vocabulary
from decided.errors import ModelError
from decided.hardware import multiplies_bytes_exactly, physical_cores
from decided.settings import Settings

log = logging.getLogger("decided.embedded")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LAYERS = 12
CACHED = [f"{part}_{layer}" for layer in range(LAYERS) for part in ("key", "value")]
_HIDDEN_FROM = np.float32(-1e9)
_ROW_TOKENS = 192
"""A longer question is laid out in several rows of attention, cut between options."""
_RUN_PAIRS = 512 * 512
_LEAST_TOKENS = 64
"""Question tokens times state tokens in one run of the graph: more gains nothing on a CPU and takes memory."""
_STEP_PAIRS = 2**21
"""Pairs of tokens whose attention is worked out at a time: 12 heads of float32 each, about 100 MB."""


class _Asked(NamedTuple):
    """A question in tokens. `part` is 0 for instructions and 1, 2, ... for the options; `markers` are token indices."""

    ids: Ints
    position: Ints
    part: Ints
    markers: Ints
    marked: NDArray[np.bool_]
    temperature: float
    order: list[int]
    cuts: tuple[Cut, ...]


def _worded(question: Question) -> tuple[str, object, object]:
    """Kind, instructions and criteria as the rendering rule takes them."""
    about = compact(question.instructions) if question.instructions else None
    if isinstance(question, Choice):
        return "choice", about, {option.key: option.description for option in question.options()}
    if isinstance(question, Noul):
        return "noul", about, {option.key: option.description for option in question.options()}
    return "score", about, [option.description or "" for option in question.options()]


class Embedded:
    """Two graphs, one tokenizer, one set of temperatures."""

    token_budget = 512

    def __init__(self, folder: Path, exact: bool, threads: int) -> None:
        about = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        _check(folder, about["sha256"])
        self.card = ModelCard(
            name=about["name"],
            description=about["description"],
            release_date=about["release_date"],
            kind="embedded",
            device="cpu",
        )
        self._temperatures: dict[str, list[float]] = about["temperatures"]
        self._edges: list[int] = about["temperatures"]["option_count_edges"]
        self._vocabulary = Vocabulary(Tokenizer.from_file(str(folder / "tokenizer.json")), {})
        prefix = "exact-" if exact else ""
        self._state = _session(folder / f"{prefix}state.onnx", threads)
        self._question = _session(folder / f"{prefix}question.onnx", threads)

    def prepare(self, questions: Sequence[Question]) -> list[_Asked]:
        return [self._ask(question) for question in questions]

    def read(self, prepared: list[_Asked], state: str) -> Reading:
        ids, cuts = prompts.tokens(self._vocabulary, state, "state", MAX_STATE_TOKENS)
        total = len(ids) + 2 * len(windows(len(ids))) + sum(len(asked.ids) for asked in prepared)
        item = Item(range(len(prepared)), total, (ids, prepared))
        return Reading([item], total, [(*cuts, *asked.cuts) for asked in prepared])

    def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
        return [self._answers(*item.payload) for item in items]

    def _ask(self, question: Question) -> _Asked:
        kind, about, criteria = _worded(question)
        shown = render(kind, about, criteria)
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
        return _Asked(
            np.array(ids, np.int64),
            np.array(position, np.int64),
            np.array(part, np.int64),
            np.array(markers, np.int64),
            marked,
            self._temperatures[kind][bucket],
            order,
            lead.cuts + prompts.joined([text.cuts for text in texts]),
        )

    def _answers(self, state: list[int], questions: list[_Asked]) -> list[list[float]]:
        cached, size = self._cache(state)
        out: list[list[float]] = []
        for group in _groups(questions, max(_LEAST_TOKENS, _RUN_PAIRS // size)):
            logits = self._question.run(["logits"], {**_packed(group, size), **cached})[0]
            ends = np.cumsum([len(asked.markers) for asked in group])[:-1]
            out += [_weights(part, asked) for part, asked in zip(np.split(logits, ends), group, strict=True)]
        return out

    def _cache(self, state: list[int]) -> tuple[dict[str, Floats], int]:
        """Keys and values of every layer for all windows of the state, side by side, and how many there are."""
        parts = windows(len(state))
        size = len(state) + 2 * len(parts)
        cached: dict[str, Floats] = {}
        at = 0
        for start, length in parts:
            ids = np.array([CLS, *state[start : start + length], SEP], np.int64)
            feed = {"ids": ids, "position": np.arange(len(ids)), "segment": np.zeros(len(ids), np.int64)}
            found = dict(zip(CACHED, self._state.run(CACHED, feed), strict=True))
            if len(parts) == 1:
                return found, size
            for name, values in found.items():  # filled in place: twice the memory would be a lot for a long state
                axis = 3 if name.startswith("key") else 2
                if not at:
                    cached[name] = np.empty([size if a == axis else n for a, n in enumerate(values.shape)], np.float32)
                np.moveaxis(cached[name], axis, 0)[at : at + len(ids)] = np.moveaxis(values, axis, 0)
            at += len(ids)
        return cached, size


def _groups(questions: list[_Asked], limit: int) -> Iterator[list[_Asked]]:
    """Consecutive questions, up to about so many tokens at a time."""
    group: list[_Asked] = []
    size = 0
    for asked in questions:
        if group and size + len(asked.ids) > limit:
            yield group
            group, size = [], 0
        group.append(asked)
        size += len(asked.ids)
    yield group


def _rows(asked: _Asked) -> list[tuple[Ints, Ints]]:
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


def _packed(group: list[_Asked], state_tokens: int) -> dict[str, NDArray[Any]]:
    """The graph's inputs for some questions: tokens back to back, and who sees whom."""
    starts = np.cumsum([0, *(len(asked.ids) for asked in group)])
    rows = [(i, *row) for i, asked in enumerate(group) for row in _rows(asked)]
    places, keys = max(len(asks) for _, asks, _ in rows), max(len(sees) for _, _, sees in rows)
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
        "grid": grid,
        "seen": seen,
        "cell": np.concatenate([r * places + np.arange(len(asks)) for r, (_, asks, _) in enumerate(rows)]),
        "markers": np.concatenate([asked.markers + start for asked, start in zip(group, starts, strict=False)]),
        "lengths": np.array([state_tokens, keys], np.int64),
        "each": np.array([step], np.int64),
        "turns": np.array(steps, np.int64),
        "bias": bias,
    }


def _weights(logits: Floats, asked: _Asked) -> list[float]:
    """The weights of the options in the caller's order."""
    scaled = logits.astype(np.float64) / asked.temperature
    weights = np.empty(len(scaled))
    weights[asked.order] = np.exp(scaled - scaled.max())
    return weights.tolist()


def _check(folder: Path, digests: dict[str, str]) -> None:
    for name, digest in digests.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ModelError(f"the embedded model's file {name} is damaged: its SHA-256 is not the one on the card")


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that spin while they wait cost more than they gain on a shared machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def load(name: str, settings: Settings) -> Embedded:
    """The embedded model, in 8 bits or, with --dtype float32, exactly."""
    if name or settings.device not in ("auto", "cpu"):
        raise ModelError("the embedded model has no other names or devices: leave --device at auto")
    if settings.dtype not in ("auto", "int8", "float32"):
        raise ModelError(f"the embedded model runs in int8 or float32, not {settings.dtype}: leave --dtype at auto")
    exact = settings.dtype == "float32"
    if not exact and not multiplies_bytes_exactly():
        log.warning("this processor clips sums of bytes (no VNNI): the embedded model runs in float32, more slowly")
        exact = True
    folder = Path(str(files("decided"))) / "weights"
    return Embedded(folder, exact, settings.threads or physical_cores())
