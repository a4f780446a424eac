"""What all PyTorch models share: a token budget found at the start, and life after out-of-memory."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decided.contract.types import MAX_OPTIONS, Choice, Question
from decided.engines.api import Encoded, Item, ModelCard, Result, run_to_end
from decided.engines.torch.placement import Placement
from decided.errors import DeviceLost

log = logging.getLogger("decided.engines")

Weights = Sequence[Result]
Finished = Sequence[Sequence[Sequence[float]]]

LEAST_BUDGET = 256
_MOST_BUDGET = {"cuda": 65_536, "mps": 8_192, "cpu": 4_096}
_BATCH_SECONDS = 0.25
"""A batch should not take longer: whoever comes next waits for its end."""
_TRIES, _TRIES_ON_GPU = 2, 4
"""First runs are slow: kernels are chosen, memory is fetched; on a GPU launches are recorded at the second."""
_PATIENCE_S = 1.0
_GAIN = 1.1
"""What a larger batch must bring in throughput to be worth its latency."""

_SAMPLE: tuple[Question, ...] = (Choice({"first": None, "second": None}, "Which of the two is it?"),)
_SAMPLE_WORDS = 120


class TorchModel(ABC):
    """A Model whose batches run on a device. Kinds say how text becomes tokens and tokens become weights."""

    gives_features = False

    def __init__(self, card: ModelCard, placement: Placement) -> None:
        self.card = card
        self.placement = placement
        self.token_budget = LEAST_BUDGET
        self.overlaps = placement.on_gpu
        """Whether a batch can be launched while the one before still runs."""

    @abstractmethod
    def prepare(self, questions: Sequence[Question]) -> Any: ...

    @abstractmethod
    def encode(self, prepared: Any, state: str) -> Encoded: ...

    @abstractmethod
    def forward(self, items: Sequence[Item]) -> Callable[[], Weights]:
        """Start one batch; what is returned waits for it and gives the weights."""

    def run(self, items: Sequence[Item]) -> Weights:
        return self.launch(items)()

    def launch(self, items: Sequence[Item]) -> Callable[[], Weights]:
        """Start one batch. One that does not fit into memory is halved, and later batches are smaller."""
        try:
            with torch.inference_mode():
                wait = self.forward(items)
            return lambda: self._wait(wait)
        except Exception as error:
            if not is_out_of_memory(error):
                self._look_at_device(error)
                raise
            halves = self.halves(items)
            if not halves:
                raise
            self.free()
            self.token_budget = max(LEAST_BUDGET, min(self.token_budget, sum(item.cost for item in items)) // 2)
            log.warning("out of memory with %d pieces: batches of %d tokens now", len(items), self.token_budget)
        return lambda: self._run_halves(items, halves)

    def _run_halves(self, items: Sequence[Item], halves: Sequence[Sequence[Item]]) -> Weights:
        weights = self.join(items, [run_to_end(self, half) for half in halves])
        items[0].features = halves[0][0].features  # of an item that was split, the first part has them
        return weights

    def _wait(self, wait: Callable[[], Weights]) -> Weights:
        try:
            return wait()
        except Exception as error:
            self._look_at_device(error)
            raise

    def _look_at_device(self, error: Exception) -> None:
        """After some errors (an access to memory that is not there, a failed assertion) a GPU refuses a process
        everything that follows: then it is of no use to try again."""
        if self.placement.on_gpu:
            try:
                torch.cuda.synchronize()
            except Exception as lost:
                raise DeviceLost(str(lost)) from error

    def halves(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """Two smaller batches, or nothing where one cannot be made smaller."""
        middle = len(items) // 2
        return [items[:middle], items[middle:]] if middle else []

    def join(self, items: Sequence[Item], parts: Sequence[Finished]) -> Weights:
        return [of_item for part in parts for of_item in part]

    def forget(self) -> None:  # noqa: B027  most kinds keep nothing
        """Let go of what is kept from batch to batch."""

    def free(self) -> None:
        """Let go of memory that can be had again."""
        self.forget()
        if self.placement.on_gpu:
            torch.cuda.empty_cache()

    # --- the token budget ---

    def find_budget(self) -> None:
        """Grow the batch until memory or time says stop; then take the smallest that is nearly as fast as any."""
        speeds: dict[int, float] = {}
        size = LEAST_BUDGET
        while size <= _MOST_BUDGET[self.placement.device.type]:
            self.token_budget = size
            items = self._sample(size)
            try:
                seconds = self._timed(items)
            except Exception as error:
                if is_out_of_memory(error):
                    break
                raise
            if self.token_budget < size:  # it was halved on the way: memory says stop
                break
            if speeds and seconds > _BATCH_SECONDS:
                break
            speeds[size] = sum(item.cost for item in items) / seconds
            size *= 2
        self.forget()
        fastest = max(speeds.values(), default=0.0)
        self.token_budget = next((size for size, speed in speeds.items() if speed * _GAIN > fastest), LEAST_BUDGET)
        log.info("token budget %d on %s (%.0f tokens a second)", self.token_budget, self.placement.device, fastest)

    def _timed(self, items: Sequence[Item]) -> float:
        """The least of a few runs."""
        times: list[float] = []
        tries = _TRIES_ON_GPU if self.placement.on_gpu else _TRIES
        while len(times) < tries and sum(times) < _PATIENCE_S:
            self.forget()
            began = time.perf_counter()
            run_to_end(self, items)
            times.append(time.perf_counter() - began)
        return min(times)

    def _sample(self, size: int) -> list[Item]:
        prepared = self.prepare(_SAMPLE)
        items: list[Item] = []
        cost = 0
        while cost < size:
            state = f"{len(items)} " + "word " * _SAMPLE_WORDS
            reading = self.encode(prepared, state)
            items += reading.items
            cost += sum(item.cost for item in reading.items)
        return items[:-1] if cost > size and len(items) > 1 else items


def card_of(
    kind: str, name: str, description: str, weights: str, placement: Placement, date: str,
    max_options: int = MAX_OPTIONS, calibration: str = "not calibrated",
) -> ModelCard:  # fmt: skip
    """The card of a model whose files do not say when it was released: the date is that of the files."""
    return ModelCard(
        name=name, description=description, release_date=date, kind=kind, device=placement.device.type,
        max_options=max_options, weights=weights,
        provenance=f"Weights {weights}, {placement.precision}, {calibration}.",
    )  # fmt: skip


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def parts_by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """The numbers of rows of nearly one length together, each part within the budget with its padding."""
    parts: list[list[int]] = [[]]
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if parts[-1] and (len(parts[-1]) + 1) * lengths[number] > budget:
            parts.append([])
        parts[-1].append(number)
    return parts


def softmax(rows: NDArray[np.float32], counts: Sequence[int]) -> list[list[float]]:
    """Rows of logits, one after the other, as probabilities: `counts` says how many belong to each row."""
    width = max(counts)
    logits = np.full((len(counts), width), -np.inf)
    logits[np.arange(width) < np.asarray(counts)[:, None]] = rows
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return [row[:count] for row, count in zip(shares.tolist(), counts, strict=True)]
