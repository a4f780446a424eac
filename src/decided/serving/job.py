"""One request on its way through the worker's threads: decided as a whole, or told state by state."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from decided import tracing
from decided.contract.types import Question
from decided.engines.api import Emit, Encoded, Item, Model, Verdict
from decided.errors import DecidedError
from decided.fair_queue import Lane


class State:
    """One state of a job, tokenised. Changed under the worker's lock."""

    __slots__ = ("encoded", "index", "job", "left", "running", "verdict")

    def __init__(self, job: "Job", index: int, encoded: Encoded) -> None:
        self.job = job
        self.index = index
        self.encoded = encoded
        self.left = len(encoded.items)  # items without an answer
        self.running = 0  # items that run now
        self.verdict = Verdict([()] * len(job.questions), encoded.input_tokens, cuts=encoded.cuts)

    @property
    def is_over(self) -> bool:
        """Whether nobody needs more answers about it."""
        return not self.left or self.job.abandoned or self.job.is_lost(self.index)


class Piece:
    """What runs without a look at the clock: an item from one `More` to the next."""

    __slots__ = ("beside", "cost", "fresh", "item", "state")

    def __init__(self, state: State, item: Item, cost: int, fresh: bool) -> None:
        self.state = state
        self.item = item
        self.cost = cost
        self.fresh = fresh  # whether it is its item's first
        self.beside = False  # whether it runs beside runners that are all busy


class Job:
    """A request that is decided as a whole, or fails as a whole.

    What the reader alone changes says so; the rest is changed under the worker's lock.
    """

    __slots__ = (
        "abandoned", "begun", "cost_begun", "cost_read", "created", "error", "features", "future", "has_begun",
        "has_turn", "lane", "prepared", "questions", "skipped", "states", "trace", "unread", "verdicts",
    )  # fmt: skip

    def __init__(
        self, states: Sequence[str], questions: Sequence[Question], future: "asyncio.Future[Any]", client: str = ""
    ) -> None:
        self.states = states
        self.questions = questions
        self.future = future
        self.features = False  # whether verdicts hold the model's features
        self.created = time.perf_counter()
        self.trace = tracing.current.get()
        self.lane: Lane[Piece] = Lane(client)
        self.abandoned = False  # nothing that has not begun will begin
        self.prepared: list[Any] = []  # reader: of the first questions
        self.has_turn = False  # reader: it waits to have something read
        self.unread = 0  # reader: the next state to read
        self.cost_read = 0  # of first pieces
        self.cost_begun = 0  # of first pieces
        self.begun = 0  # questions begun, or given up
        self.has_begun = False  # the time that it waited is known
        self.skipped = 0  # questions about states that could not be read
        self.error: DecidedError | None = None
        self.verdicts: dict[int, Verdict] = {}

    def encode_next(self, model: Model) -> Encoded:
        """Reader: the next state, tokenised."""
        if self.trace is None:
            return model.encode(self.prepared, self.states[self.unread])
        began = time.perf_counter()
        encoded = model.encode(self.prepared, self.states[self.unread])
        self.trace.encoding.append(time.perf_counter() - began)
        return encoded

    def begin(self, now: float) -> float:
        """The first of it runs. How long it has waited."""
        self.has_begun = True
        if self.trace is not None:
            self.trace.begin(now - self.created)
        return now - self.created

    def abandon(self) -> None:
        self.abandoned = self.lane.abandoned = True

    def unbegun(self) -> int:
        return len(self.states) * len(self.questions) - self.begun - self.skipped

    def complete(self, state: State) -> bool:
        """All about a state is answered. Whether there is something to deliver."""
        self.verdicts[state.index] = state.verdict
        return len(self.verdicts) == len(self.states)

    def is_lost(self, index: int) -> bool:
        """Whether the model failed on this state, or on all."""
        return self.error is not None

    def lose(self, index: int, error: DecidedError) -> None:
        """The model failed on this state."""
        self.error = error
        self.abandon()

    def skip(self, index: int, error: DecidedError) -> None:
        """The model cannot read this state."""
        self.lose(index, error)

    def deliver(self) -> None:
        """Event loop: what there is to tell."""
        if self.error is not None:
            self.refuse(self.error)
        elif not self.future.done():
            self.future.set_result([self.verdicts[index] for index in range(len(self.states))])

    def refuse(self, error: DecidedError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class StreamedJob(Job):
    """A request whose states are told one by one, each as it is ready. A state fails alone."""

    __slots__ = ("_emit", "_emitted", "_lost", "_ready")

    def __init__(
        self,
        states: Sequence[str],
        questions: Sequence[Question],
        future: "asyncio.Future[Any]",
        emit: Emit,
        client: str = "",
    ) -> None:
        super().__init__(states, questions, future, client)
        self._emit = emit
        self._emitted = 0  # event loop
        self._lost: set[int] = set()
        self._ready: deque[tuple[int, Verdict | DecidedError]] = deque()  # filled by all threads, emptied on the loop

    def complete(self, state: State) -> bool:
        self._ready.append((state.index, state.verdict))
        return True

    def is_lost(self, index: int) -> bool:
        return index in self._lost

    def lose(self, index: int, error: DecidedError) -> None:
        self._lost.add(index)
        kept = []
        for piece, cost in self.lane.waiting:
            if piece.state.index != index:
                kept.append((piece, cost))
            elif piece.fresh:
                self.begun += len(piece.item.questions)
                self.cost_begun += cost
        self.lane.waiting.clear()
        self.lane.waiting.extend(kept)
        self._ready.append((index, error))

    def skip(self, index: int, error: DecidedError) -> None:
        self.skipped += len(self.questions)
        self._ready.append((index, error))

    def deliver(self) -> None:
        while self._ready and not self.future.done():
            self._emit(*self._ready.popleft())
            self._emitted += 1
            if self._emitted == len(self.states):
                self.future.set_result([])
