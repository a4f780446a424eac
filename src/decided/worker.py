"""Two threads make an Engine of a Model: one reads (tokenises), the other runs batches.

    event loop --jobs--> reader --items--> runner --finished jobs, one call per batch--> event loop
                            ^----- room ------'

Each thread owns its queue alone and hears of everything through its inbox, so there is no lock. Batches form by
themselves: whatever was read while one batch ran is there for the next, and an idle model starts at once. With a
model that overlaps, one more batch is launched before the results of the one before are waited for.
A batch may fail, the worker may not: a failing batch is halved until the guilty item fails alone.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from decided.answers import is_distribution
from decided.contract import Choice, Noul, Question, Score, encode
from decided.engine import Model, Reading, Tell, Verdict, overlaps
from decided.errors import InferenceFailed, ModelError, Unavailable
from decided.jobs import Job, Piece, ToldJob
from decided.scheduler import FairQueue

log = logging.getLogger("decided.worker")

M = TypeVar("M")

_CLOSE_WAIT_S = 1.0
_KNOWN_QUESTIONS, _KNOWN_QUESTIONS_BYTES = 128, 8192
"""Sets of questions that are remembered, and how large they may be."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch was, for the metrics."""

    questions: int
    fill: float
    waits: Sequence[float]


Results = Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Started:
    """A batch on its way: when it began, what waits for its results, and what to report of it."""

    batch: list[Piece]
    began: float
    results: Callable[[], Results]
    report: BatchReport


class Worker:
    """The Engine of an in-process Model."""

    remote = False

    def __init__(
        self, model: Model, stall_after_s: float, on_batch: Callable[[BatchReport], None] = lambda report: None
    ) -> None:
        self.card = model.card
        self._model = model
        self._stall_after_s = stall_after_s
        self._listener = on_batch
        self._on_batch: Callable[[BatchReport], None] = lambda report: None  # the warm-up is nobody's business
        self._jobs: set[Job] = set()
        self._arrived: list[Job] = []
        self._reader_inbox: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._runner_inbox: SimpleQueue[tuple[Job, int, Reading] | None] = SimpleQueue()
        self._known_questions: dict[bytes, Any] = {}  # the one used last comes last
        self._batch_began: float | None = None
        self._dead = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=name, daemon=True)
            for name, work in (("decided-reader", self._read_forever), ("decided-runner", self._run_forever))
        ]
        for thread in self._threads:
            thread.start()
        try:
            await self.decide(["A parcel arrived two days late."], _WARM_UP)
        except Exception as error:
            raise ModelError(f"the model {self.card.name!r} fails its warm-up: {error.__cause__ or error}") from error
        self._on_batch = self._listener

    async def decide(self, states: Sequence[str], questions: Sequence[Question]) -> list[Verdict]:
        return await self._work_off(Job(states, questions, self._loop.create_future()))

    async def decide_each(self, states: Sequence[str], questions: Sequence[Question], tell: Tell) -> None:
        await self._work_off(ToldJob(states, questions, self._loop.create_future(), tell))

    async def _work_off(self, job: Job) -> list[Verdict]:
        if self._dead:
            raise Unavailable("the inference worker has stopped")
        if not job.states:
            return []
        self._jobs.add(job)
        if not self._arrived:
            self._loop.call_soon(self._hand_over)
        self._arrived.append(job)
        try:
            return await job.future  # type: ignore[no-any-return]
        finally:
            job.abandon()
            self._jobs.discard(job)

    def _hand_over(self) -> None:
        """All that arrived in one turn of the loop: the reader is woken once for them, not once for each."""
        self._reader_inbox.put(self._arrived)
        self._arrived = []

    async def check(self) -> None:
        if self._dead:
            raise Unavailable("the inference worker has stopped")
        began = self._batch_began
        if began is not None and time.perf_counter() - began > self._stall_after_s:
            raise Unavailable("the inference worker is stuck")

    def queue_depth(self) -> int:
        return sum(job.unbegun() for job in self._jobs)

    async def close(self) -> None:
        self._reader_inbox.put(None)
        self._runner_inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join, _CLOSE_WAIT_S)

    # --- the reader thread ---

    def _read_forever(self) -> None:
        turns: deque[Job] = deque()  # one state each, in turn
        while True:
            for jobs in _drain(self._reader_inbox, block=not turns):
                if jobs is None:
                    return
                for job in jobs:
                    if not job.has_turn:
                        job.has_turn = True
                        turns.append(job)
            job = turns.popleft()
            if self._may_read(job):
                self._read(job)
            job.has_turn = self._may_read(job)
            if job.has_turn:
                turns.append(job)

    def _may_read(self, job: Job) -> bool:
        """Whether there is a state left to read, and not enough of the job read already."""
        ahead = job.cost_read - job.cost_begun
        return job.unread < len(job.states) and ahead < self._model.token_budget and not job.abandoned

    def _read(self, job: Job) -> None:
        try:
            if job.prepared is None:
                job.prepared = self._prepared(job.questions)
            reading = self._model.read(job.prepared, job.states[job.unread])
        except Exception as error:
            job.skip(job.unread, _failure("the model failed while reading", error))
            self._on_loop(job.deliver)
        else:
            for item in reading.items:
                job.cost_read += item.cost
            self._runner_inbox.put((job, job.unread, reading))
        job.unread += 1

    def _prepared(self, questions: Sequence[Question]) -> Any:
        """Most clients ask the same questions of every state: what was made of them is kept for the next."""
        key = encode(questions)
        prepared = self._known_questions.pop(key, None)
        if prepared is None:
            prepared = self._model.prepare(questions)
        if len(key) <= _KNOWN_QUESTIONS_BYTES:
            self._known_questions[key] = prepared
            if len(self._known_questions) > _KNOWN_QUESTIONS:
                del self._known_questions[next(iter(self._known_questions))]
        return prepared

    # --- the runner thread ---

    def _run_forever(self) -> None:
        queue: FairQueue[Piece] = FairQueue()
        ahead = overlaps(self._model)
        running: Started | None = None
        while True:
            for message in _drain(self._runner_inbox, block=not queue and running is None):
                if message is None:
                    return
                job, index, reading = message
                queue.push(job.lane, [((job, index, reading, item), item.cost) for item in reading.items])
            budget = self._model.token_budget
            batch = queue.take(budget)
            started = self._start(batch, budget) if batch else None
            if running is not None:
                self._finish(running, started)
            running = started
            if running is not None and not ahead:
                self._finish(running, None)
                running = None

    def _start(self, batch: list[Piece], budget: int) -> Started:
        began = time.perf_counter()
        self._batch_began = self._batch_began or began
        waits: list[float] = []
        cost = questions = 0
        for job, _, _, item in batch:
            cost += item.cost
            questions += len(item.questions)
            if not job.begun:
                waits.append(began - job.created)
            job.begun += len(item.questions)
            job.cost_begun += item.cost
            if job.unread < len(job.states):
                self._reader_inbox.put([job])  # there is room to read on
        return Started(batch, began, self._launched(batch), BatchReport(questions, cost / budget, waits))

    def _finish(self, running: Started, following: Started | None) -> None:
        finished = self._settle(running.batch, running.results)
        self._batch_began = None if following is None else following.began
        self._on_loop(self._deliver, finished, running.report)

    def _launched(self, batch: list[Piece]) -> Callable[[], Results]:
        items = [item for _, _, _, item in batch]
        if not overlaps(self._model):
            return lambda: self._model.run(items)
        try:
            return self._model.launch(items)
        except Exception as error:
            return partial(_throw, error)

    def _settle(self, batch: list[Piece], wait: Callable[[], Results] | None = None) -> list[Job]:
        """Run the batch, or wait for it; return the jobs that are complete with it."""
        try:
            results = wait() if wait is not None else self._model.run([item for _, _, _, item in batch])
            if [len(weights) for weights in results] != [len(item.questions) for _, _, _, item in batch]:
                raise ValueError("the model did not answer every question of every item")
        except Exception as error:
            if len(batch) == 1:
                self._lose(batch[0], "the model failed while running", error)
                return []
            middle = len(batch) // 2
            return self._settle_rest(batch[:middle]) + self._settle_rest(batch[middle:])
        return [piece[0] for piece, weights in zip(batch, results, strict=True) if self._record(piece, weights)]

    def _settle_rest(self, batch: list[Piece]) -> list[Job]:
        """A part of a batch that failed, without what is known to be guilty."""
        innocent = [piece for piece in batch if not piece[0].is_lost(piece[1])]
        return self._settle(innocent) if innocent else []

    def _record(self, piece: Piece, weights: Sequence[Sequence[float]]) -> bool:
        """Note the answers to an item; return whether its job has something to deliver with them."""
        job, index, reading, item = piece
        if job.is_lost(index):  # by a piece before this one
            return False
        if not all(map(is_distribution, weights)):
            self._lose(piece, "the model gave no distribution over the options")
            return False
        # A lane is first in, first out: a state's first item opens its verdict, its last one completes it.
        if item is reading.items[0]:
            job.verdicts.append(Verdict([()] * len(job.questions), reading.input_tokens, cuts=reading.cuts))
        answers = job.verdicts[-1].weights
        for number, of_options in zip(item.questions, weights, strict=True):
            answers[number] = of_options
        return item is reading.items[-1] and job.complete(index)

    def _lose(self, piece: Piece, reason: str, cause: Exception | None = None) -> None:
        job, index, _, _ = piece
        if not job.is_lost(index):
            job.lose(index, _failure(reason, cause))
            self._on_loop(job.deliver)

    # --- both threads, and the event loop ---

    def _deliver(self, finished: list[Job], report: BatchReport) -> None:
        for job in finished:
            job.deliver()
        self._on_batch(report)

    def _on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everyone who waited
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            log.critical("the inference worker has stopped", exc_info=True)
            self._on_loop(self._die)

    def _die(self) -> None:
        self._dead = True
        for job in self._jobs:
            job.refuse(InferenceFailed("the inference worker has stopped"))


def _failure(reason: str, cause: Exception | None) -> InferenceFailed:
    error = InferenceFailed(reason)
    error.__cause__ = cause
    return error


def _throw(error: Exception) -> Results:
    raise error


def _drain(inbox: "SimpleQueue[M]", block: bool) -> list[M]:
    """All messages there are; with `block`, at least one."""
    messages = [inbox.get()] if block else []
    try:
        while True:
            messages.append(inbox.get_nowait())
    except Empty:
        return messages


_WARM_UP: tuple[Question, ...] = (
    Choice({"delivery": "a late or lost parcel", "billing": None}, "What is this about?"),
    Score(["calm", "annoyed", "angry"], "How upset is the writer?"),
    Noul("Is this a complaint?"),
)
