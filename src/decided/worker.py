"""Two threads make an Engine of a Model: one reads (tokenises), the other runs batches.

    event loop --jobs--> reader --items--> runner --finished jobs, one call per batch--> event loop
                            ^----- room ------'

Each thread owns its fair queue alone and hears of everything through its inbox, so there is no lock. Batches form by
themselves: whatever was read while one batch ran is there for the next, and an idle model starts at once.
A batch may fail, the worker may not: a failing batch is halved until the guilty item fails alone.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from decided.answers import is_distribution
from decided.contract import Choice, Noul, Question, Score
from decided.engine import Cut, Decision, Item, Model, Reading, Verdict
from decided.errors import InferenceFailed, ModelError, Unavailable
from decided.scheduler import FairQueue, Lane

log = logging.getLogger("decided.worker")

M = TypeVar("M")

_CLOSE_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch was, for the metrics."""

    questions: int
    fill: float
    waits: Sequence[float]


class Job:
    """One request on its way through the threads. Each field has one writer, named beside it."""

    __slots__ = ("ahead", "begun", "created", "decisions", "failed", "future", "missing", "prepared", "questions",
                 "read_lane",  "run_lane", "states", "total", "unread")  # fmt: skip

    def __init__(self, states: Sequence[str], questions: Sequence[Question], future: "asyncio.Future[Any]") -> None:
        self.states = states
        self.questions = questions
        self.future = future
        self.created = time.perf_counter()
        self.total = len(states) * len(questions)
        self.read_lane: Lane[Job] = Lane()
        self.run_lane: Lane[Piece] = Lane()
        self.prepared: Any = None  # reader
        self.unread = 0  # reader: the next state to read
        self.ahead: list[int] = [0, 0]  # cost read (reader) and cost begun (runner)
        self.begun = 0  # runner: questions begun
        self.failed = False  # runner or reader: the future has its error
        self.missing = [len(questions)] * len(states)  # runner
        self.decisions: list[Decision] = [Decision([Verdict(())] * len(questions), 0) for _ in states]  # runner

    def abandon(self) -> None:
        """Nothing of this job that has not begun will begin. Called on the event loop."""
        self.read_lane.abandoned = self.run_lane.abandoned = True


@dataclass(slots=True)
class Piece:
    """An item, and whose it is."""

    job: Job
    state: int
    reading: Reading
    item: Item


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
        self._reader_inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._runner_inbox: SimpleQueue[tuple[Job, int, Reading] | None] = SimpleQueue()
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

    async def decide(self, states: Sequence[str], questions: Sequence[Question]) -> list[Decision]:
        if self._dead:
            raise Unavailable("the inference worker has stopped")
        if not states:
            return []
        job = Job(states, questions, self._loop.create_future())
        self._jobs.add(job)
        self._reader_inbox.put(job)
        try:
            return await job.future  # type: ignore[no-any-return]
        finally:
            job.abandon()
            self._jobs.discard(job)

    async def check(self) -> None:
        if self._dead:
            raise Unavailable("the inference worker has stopped")
        began = self._batch_began
        if began is not None and time.perf_counter() - began > self._stall_after_s:
            raise Unavailable("the inference worker is stuck")

    def queue_depth(self) -> int:
        return sum(job.total - job.begun for job in self._jobs)

    async def close(self) -> None:
        self._reader_inbox.put(None)
        self._runner_inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join, _CLOSE_WAIT_S)

    # --- the reader thread ---

    def _read_forever(self) -> None:
        queue: FairQueue[Job] = FairQueue()
        inbox = self._reader_inbox
        while True:
            for job in _drain(inbox, block=not queue):
                if job is None:
                    return
                self._queue_reading(queue, job)
            for job in queue.take(1):
                if self._read(job):
                    self._queue_reading(queue, job)

    def _queue_reading(self, queue: FairQueue[Job], job: Job) -> None:
        """Ask for a turn to read the job's next state, unless enough of it has been read for now."""
        read, begun = job.ahead
        if job.unread < len(job.states) and not job.read_lane.queued and read - begun < self._model.token_budget:
            queue.push(job.read_lane, [(job, len(job.states[job.unread]) + 1)])

    def _read(self, job: Job) -> bool:
        index = job.unread
        try:
            if job.prepared is None:
                job.prepared = self._model.prepare(job.questions)
            reading = self._model.read(job.prepared, job.states[index])
        except Exception as error:
            self._fail(job, "the model failed while reading", error)
            return False
        job.unread += 1
        job.ahead[0] += sum(item.cost for item in reading.items)
        self._runner_inbox.put((job, index, reading))
        return True

    # --- the runner thread ---

    def _run_forever(self) -> None:
        queue: FairQueue[Piece] = FairQueue()
        inbox = self._runner_inbox
        budget = self._model.token_budget
        while True:
            for message in _drain(inbox, block=not queue):
                if message is None:
                    return
                job, index, reading = message
                queue.push(job.run_lane, [(Piece(job, index, reading, item), item.cost) for item in reading.items])
            batch = queue.take(budget)
            if batch:
                self._run(batch, budget)

    def _run(self, batch: list[Piece], budget: int) -> None:
        self._batch_began = began = time.perf_counter()
        waits = [began - piece.job.created for piece in batch if not piece.job.begun]
        cost = 0
        for piece in batch:
            job, item = piece.job, piece.item
            cost += item.cost
            job.begun += len(item.questions)
            job.ahead[1] += item.cost
            if job.unread < len(job.states):
                self._reader_inbox.put(job)  # there is room to read on
        finished = self._settle(batch)
        self._batch_began = None
        report = BatchReport(sum(len(piece.item.questions) for piece in batch), cost / budget, waits)
        self._on_loop(self._deliver, finished, report)

    def _settle(self, batch: list[Piece]) -> list[Job]:
        """Run the batch; return the jobs that are complete with it."""
        batch = [piece for piece in batch if not piece.job.failed]
        if not batch:
            return []
        try:
            results = self._model.run([piece.item for piece in batch])
            if [len(weights) for weights in results] != [len(piece.item.questions) for piece in batch]:
                raise ValueError("the model did not answer every question of every item")
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0].job, "the model failed while running", error)
                return []
            middle = len(batch) // 2
            return self._settle(batch[:middle]) + self._settle(batch[middle:])
        finished = (self._record(piece, weights) for piece, weights in zip(batch, results, strict=True))
        return [job for job in finished if job is not None]

    def _record(self, piece: Piece, weights: Sequence[Sequence[float]]) -> Job | None:
        """Note an item's verdicts; return its job if that was the last."""
        job, index, reading = piece.job, piece.state, piece.reading
        if not all(is_distribution(of_options) for of_options in weights):
            self._fail(job, "the model gave no distribution over the options")
            return None
        decision = job.decisions[index]
        for number, of_options in zip(piece.item.questions, weights, strict=True):
            cuts: Sequence[Cut] = reading.cuts[number] if reading.cuts else ()
            decision.verdicts[number] = Verdict(of_options, cuts)
        decision.input_tokens = reading.input_tokens
        job.missing[index] -= len(piece.item.questions)
        last = index == len(job.states) - 1 and not job.missing[index]
        return job if last else None  # a lane is first in, first out: the last piece of the last state ends the job

    # --- both threads, and the event loop ---

    def _fail(self, job: Job, reason: str, cause: Exception | None = None) -> None:
        job.failed = True
        job.abandon()
        error = InferenceFailed(reason)
        error.__cause__ = cause
        self._on_loop(_refuse, job, error)

    def _deliver(self, finished: list[Job], report: BatchReport) -> None:
        for job in finished:
            if not job.future.done():
                job.future.set_result(job.decisions)
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
            _refuse(job, InferenceFailed("the inference worker has stopped"))


def _refuse(job: Job, error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)


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
