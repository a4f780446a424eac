"""One request on its way through the worker's threads: decided as a whole, or told state by state."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from decided.contract import Question
from decided.engine import Item, Reading, Tell, Verdict
from decided.errors import DecidedError
from decided.scheduler import Lane

Piece = tuple["Job", int, Reading, Item]
"""An item, and whose it is: the job, the number of its state, and that state's reading."""


class Job:
    """A request that is decided as a whole, or fails as a whole. Each field has one writer, named beside it."""

    __slots__ = ("abandoned", "begun", "cost_begun", "cost_read", "created", "error", "future", "has_turn", "lane",
                 "prepared", "questions", "skipped", "states", "unread", "verdicts")  # fmt: skip

    def __init__(self, states: Sequence[str], questions: Sequence[Question], future: "asyncio.Future[Any]") -> None:
        self.states = states
        self.questions = questions
        self.future = future
        self.created = time.perf_counter()
        self.lane: Lane[Piece] = Lane()
        self.abandoned = False  # event loop: nothing that has not begun will begin
        self.prepared: Any = None  # reader
        self.has_turn = False  # reader: it waits to have a state read
        self.unread = 0  # reader: the next state to read
        self.cost_read = 0  # reader
        self.skipped = 0  # reader: questions about states that could not be read
        self.cost_begun = 0  # runner
        self.begun = 0  # runner: questions begun, or given up
        self.error: DecidedError | None = None  # runner or reader
        self.verdicts: list[Verdict] = []  # runner

    def abandon(self) -> None:
        self.abandoned = self.lane.abandoned = True

    def unbegun(self) -> int:
        return len(self.states) * len(self.questions) - self.begun - self.skipped

    def complete(self, index: int) -> bool:
        """Runner: the last of `verdicts`, on this state, is complete. Whether there is something to deliver."""
        return index == len(self.states) - 1

    def is_lost(self, index: int) -> bool:
        """Whether nobody needs more answers about this state."""
        return self.error is not None

    def lose(self, index: int, error: DecidedError) -> None:
        """Runner: the model failed on this state."""
        self.error = error
        self.abandon()

    def skip(self, index: int, error: DecidedError) -> None:
        """Reader: the model cannot read this state."""
        self.lose(index, error)

    def deliver(self) -> None:
        """Event loop: what there is to tell."""
        if self.error is not None:
            self.refuse(self.error)
        elif not self.future.done():
            self.future.set_result(self.verdicts)

    def refuse(self, error: DecidedError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class ToldJob(Job):
    """A request whose states are told one by one, each as it is ready. A state fails alone."""

    __slots__ = ("_lost", "_ready", "_tell", "_told")

    def __init__(
        self, states: Sequence[str], questions: Sequence[Question], future: "asyncio.Future[Any]", tell: Tell
    ) -> None:
        super().__init__(states, questions, future)
        self._tell = tell
        self._told = 0  # event loop
        self._lost: set[int] = set()  # runner
        self._ready: deque[tuple[int, Verdict | DecidedError]] = deque()  # filled by both threads, emptied on the loop

    def complete(self, index: int) -> bool:
        self._ready.append((index, self.verdicts.pop()))
        return True

    def is_lost(self, index: int) -> bool:
        return index in self._lost

    def lose(self, index: int, error: DecidedError) -> None:
        self._lost.add(index)
        self.verdicts.clear()  # there is at most one, of this state: a lane is first in, first out
        kept = []
        for piece, cost in self.lane.waiting:
            if piece[1] == index:
                self.begun += len(piece[3].questions)
                self.cost_begun += cost
            else:
                kept.append((piece, cost))
        self.lane.waiting.clear()
        self.lane.waiting.extend(kept)
        self._ready.append((index, error))

    def skip(self, index: int, error: DecidedError) -> None:
        self.skipped += len(self.questions)
        self._ready.append((index, error))

    def deliver(self) -> None:
        while self._ready and not self.future.done():
            self._tell(*self._ready.popleft())
            self._told += 1
            if self._told == len(self.states):
                self.future.set_result([])
