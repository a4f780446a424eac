"""Recorded launches: a batch of a shape seen before is one launch on the GPU, in place of hundreds.

A small batch is over sooner than Python can launch its kernels one by one, and every launch asks for the interpreter,
which the threads that read and answer want too. So a shape that comes a second time is recorded as a CUDA graph, and
replayed from then on. Shapes are rounded up, so that few of them are many.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from decided.engines.torch.transfer import Ints

log = logging.getLogger("decided.engines")

MOST_ROWS = 16_384
"""Larger batches keep the device busy for longer than their launches take."""
_MOST_RECORDINGS = 96
_LEAST_ROWS = 64
_LARGE = 4096
"""Of small batches there are few sizes, four between a number and its double; of large ones, where padding costs time,
there are eight: at most one row in nine is padding."""


class _Recording(NamedTuple):
    graph: Any
    inputs: tuple[Tensor, ...]
    output: Tensor


class CudaGraphCache:
    """Runs functions of tensors on the current device, from a recording where there is one.

    What a recording gives is overwritten when any recording runs again, so it is to be used up in the stream's order.
    """

    def __init__(self) -> None:
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        self.works = True
        """Whether what was to be recorded could be recorded, so far."""

    def run(self, key: Hashable, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """`key` must say all that the function does not take from the inputs' numbers: shapes, sizes, flags."""
        recording = self._recordings.get(key)
        if recording is not None:
            self._recordings.move_to_end(key)
        elif key not in self._seen or not self.works:  # once is chance
            self._seen.add(key)
            return function(*inputs)
        else:
            recording = self._record(function, inputs)
            if recording is None:
                return function(*inputs)
            self._recordings[key] = recording
            if len(self._recordings) > _MOST_RECORDINGS:
                self._seen.discard(self._recordings.popitem(last=False)[0])
        for slot, given in zip(recording.inputs, inputs, strict=True):
            slot.copy_(given)
        recording.graph.replay()
        return recording.output

    def clear(self) -> None:
        self._recordings.clear()
        self._seen.clear()
        self._pool = torch.cuda.graph_pool_handle()  # the old one is gone with its last recording

    def _record(self, function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> _Recording | None:
        slots = tuple(given.clone() for given in inputs)
        function(*slots)  # what is compiled at its first call must not be compiled while it is recorded
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    output = function(*slots)
                except Exception:
                    with suppress(RuntimeError):  # the recording is broken, as the error says that is on its way
                        graph.capture_end()
                    raise
                graph.capture_end()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a network that asks the device something while it runs
            log.info("launches cannot be recorded: %s", str(error).splitlines()[0])
            self.works = False
            return None
        torch.cuda.current_stream().wait_stream(self._stream)
        return _Recording(graph, slots, output)


def round_up(count: int) -> int:
    """A size for so many rows, not much larger."""
    if count <= _LEAST_ROWS:
        return _LEAST_ROWS
    step = (1 << (count - 1).bit_length()) >> (4 if count > _LARGE else 3)
    return -(-count // step) * step


def round_up_by_doubling(count: int, least: int = 1) -> int:
    """The next power of two, for what costs little."""
    return max(least, 1 << (count - 1).bit_length()) if count else 0


def fill_up(array: Ints, size: int) -> Ints:
    """An array made longer: its last number again and again."""
    return np.concatenate((array, np.full(size - len(array), array[-1], np.int32)))
