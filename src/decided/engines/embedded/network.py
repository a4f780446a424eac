"""One encoder, run by ONNX Runtime: it reads a window of a state, and answers questions by what it has read."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decided.engines.embedded.sessions import sessions

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Read = dict[str, Floats]
"""Keys and values of every layer, for the tokens of a state."""


class Network:
    """A graph and its weights, in one session of a single thread and one of all."""

    def __init__(self, graph: Path, threads: int) -> None:
        self._narrow, self._wide = sessions(graph, threads)
        kept = [each for each in self._narrow.get_inputs() if each.name.startswith(("key", "value"))]
        self._kept = [each.name for each in kept]
        values = [name for name in self._kept if name.startswith("value")]
        # Upper layers hold what they were trained to be asked, lower ones single words: between them is the subject.
        self._pooled = values[len(values) // 6 : 2 * len(values) // 3]
        self.bytes_per_token = sum(4 * math.prod(_sizes(each, 1)) for each in kept)
        self._no_questions = {each.name: _nothing(each) for each in self._narrow.get_inputs()}
        # Attention with a bias by the distance of two tokens has to know where those of the state are.
        self._by_distance = "state_position" in self._no_questions

    def read(self, ids: Ints, wide: bool, options: Any) -> Read:
        """One window of a state, by itself."""
        window = {"ids": ids, "position": np.arange(len(ids)), "segment": np.zeros(len(ids), np.int64)}
        feed = {**self._no_questions, **window, "alone": np.array(True)}
        found = self._run([f"new_{name}" for name in self._kept], feed, wide, options)
        return dict(zip(self._kept, found, strict=True))

    def logits(self, questions: dict[str, NDArray[Any]], read: Read, place: Ints, wide: bool, options: Any) -> Floats:
        """Of all options of some questions. `place` says where in its window each token of the state is."""
        feed = {**questions, **read, **({"state_position": place} if self._by_distance else {})}
        found: Floats = self._run(["logits"], feed, wide, options)[0]
        return found

    def features(self, read: Read) -> Floats:
        """Of a state: the values of some layers, averaged over them and all its tokens, in however many windows."""
        layers = [read[name].mean(axis=2, dtype=np.float32) for name in self._pooled]
        pooled: Floats = np.mean(layers, axis=0, dtype=np.float32).ravel()
        return pooled

    def _run(self, wanted: list[str], feed: dict[str, NDArray[Any]], wide: bool, options: Any) -> list[Floats]:
        found: list[Floats] = (self._wide if wide else self._narrow).run(wanted, feed, options)
        return found


def join(so_far: Read, new: Read, at: int, tokens: int) -> None:
    """Puts what was read of one window in its place among all. Filled in: twice the memory would be a lot."""
    for name, values in new.items():
        axis = 3 if name.startswith("key") else 2
        if name not in so_far:
            shape = [tokens if a == axis else n for a, n in enumerate(values.shape)]
            so_far[name] = np.empty(shape, np.float32)
        np.moveaxis(so_far[name], axis, 0)[at : at + values.shape[axis]] = np.moveaxis(values, axis, 0)


def _sizes(of: Any, unknown: int) -> list[int]:
    """The shape of an input, where a size that depends on the request is so many."""
    return [size if isinstance(size, int) else unknown for size in of.shape]


def _nothing(of: Any) -> NDArray[Any]:
    """An input that has no part in a run."""
    return np.zeros(_sizes(of, 0), {"tensor(float)": np.float32, "tensor(bool)": np.bool_}.get(of.type, np.int64))
