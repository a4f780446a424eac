"""Threads make an Engine of a Model: runners read (tokenise) what has arrived, and run it piece by piece.

    event loop --jobs--> reader --states--> scheduler --pieces--> model --finished jobs--> event loop
                            ^------- room to read on -----------'

Reader and scheduler are plain data behind one lock, held for microseconds. A model that several threads may run gets a
runner for each core, and one more for short pieces beside long ones. Any other has one runner, and batches form by
themselves: what was read while one ran is there for the next. A runner with nothing to run reads, and then runs what it
has read, so that a lone request wakes a single thread; one more thread reads while all runners run. A failing batch is
halved until the guilty item fails alone.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from decided import tracing
from decided.contract.answers import is_distribution
from decided.contract.types import Question
from decided.engines.api import NOBODY, Caller, Emit, Model, More, Result, Verdict, is_parallel, overlaps
from decided.errors import DeviceLost, InferenceFailed, ModelError, Unavailable
from decided.serving.job import Job, Piece, State, StreamedJob
from decided.serving.reader import Illegible, Reader
from decided.serving.scheduler import Scheduler
from decided.serving.sleepers import CallingLock, Sleepers
from decided.serving.warm_up import WARM_UP

log = logging.getLogger("decided.serving.worker")

_CLOSE_WAIT_S = 1.0
_READ_FOR_S = 0.002
"""How long a runner reads before it runs what it has read, where one batch takes all that is there."""


class BatchReport(NamedTuple):
    """What one batch was, for the metrics. Questions count where they begin."""

    questions: int
    fill: float
    waits: Sequence[float]


Wait = Callable[[], Sequence[Result]]


class Started(NamedTuple):
    """A batch on its way: what waits for its results, and what to report of it."""

    batch: list[Piece]
    results: Wait
    report: BatchReport


class Worker:
    """The Engine of an in-process Model."""

    remote = False

    def __init__(
        self, model: Model, stall_after_s: float, on_batch: Callable[[BatchReport], None] = lambda report: None
    ) -> None:
        self.card = model.card
        self.gives_features: bool = getattr(model, "gives_features", False)
        self._model = model
        self._stall_after_s = stall_after_s
        self._listener = on_batch
        self._on_batch: Callable[[BatchReport], None] = lambda report: None  # the warm-up is nobody's business
        self._jobs: set[Job] = set()
        self._arrived: list[Job] = []
        self._runners, room = (model.runners, model.room) if is_parallel(model) else (1, 0)
        self._parallel = is_parallel(model)
        self._reader = Reader(model, model.token_budget * self._runners)
        self._scheduler = Scheduler(self._runners, room)
        self._lock = CallingLock()
        self._sleepers = [Sleepers(self._lock) for _ in range(3)]
        self._idle, self._idle_beside, self._idle_reader = self._sleepers
        self._closing = False
        self._began: dict[int, float] = {}  # when each batch that runs did
        self._dead = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        work: list[tuple[str, Callable[[], None]]] = [("decided-reader", self._read_forever)]
        work += [(f"decided-runner-{number}", self._run_forever) for number in range(self._runners)]
        if self._parallel:
            work.append(("decided-runner-beside", partial(self._run_forever, beside=True)))
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=name, daemon=True) for name, work in work
        ]
        for thread in self._threads:
            thread.start()
        try:
            await self.decide(["A parcel arrived two days late."], WARM_UP)
        except Exception as error:
            raise ModelError(f"the model {self.card.name!r} failed its warm-up: {error.__cause__ or error}") from error
        self._on_batch = self._listener

    def decide(
        self, states: Sequence[str], questions: Sequence[Question], features: bool = False, *, caller: Caller = NOBODY
    ) -> Coroutine[Any, Any, list[Verdict]]:
        return self._work_off(Job(states, questions, self._loop.create_future(), caller.client), features)

    async def decide_each(
        self,
        states: Sequence[str],
        questions: Sequence[Question],
        emit: Emit,
        features: bool = False,
        *,
        caller: Caller = NOBODY,
    ) -> None:
        job = StreamedJob(states, questions, self._loop.create_future(), emit, caller.client)
        await self._work_off(job, features)

    async def _work_off(self, job: Job, features: bool) -> list[Verdict]:
        job.features = features
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
        except BaseException:
            self._give_up(job)
            raise
        finally:
            self._jobs.discard(job)
            del job  # which knows its error, which knows this frame: a circle

    def _give_up(self, job: Job) -> None:
        with self._lock:
            running = self._scheduler.drop(job)
            self._wake_one()  # there may be room for another
        for piece in running:
            piece.item.stop()

    def _hand_over(self) -> None:
        """All that arrived in one turn of the loop: a thread is woken once for them, not once for each."""
        with self._lock:
            self._reader.put(self._arrived)
            self._wake_reader()
        self._arrived = []

    async def check(self) -> None:
        if self._dead:
            raise Unavailable("the inference worker has stopped")
        began = min(list(self._began.values()), default=None)
        if began is not None and time.perf_counter() - began > self._stall_after_s:
            raise Unavailable("the inference worker is stuck")

    def queue_depth(self) -> int:
        return sum(job.unbegun() for job in self._jobs)

    async def close(self) -> None:
        with self._lock:
            self._closing = True
            for sleepers in self._sleepers:
                sleepers.wake_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, _CLOSE_WAIT_S)
        if not any(thread.is_alive() for thread in self._threads):
            for sleepers in self._sleepers:
                sleepers.close()

    # --- reading: the reader thread, and runners with nothing to run ---

    def _read_forever(self) -> None:
        while True:
            with self._lock:
                if self._closing:
                    return
                reads = self._reader.take()
                if not reads:
                    self._idle_reader.enter()
            if reads:
                self._read()
            else:
                self._idle_reader.sleep()

    def _read(self, is_runner: bool = False) -> None:
        """Until there is nothing left; a runner only until it has something to run."""
        until = time.perf_counter() + _READ_FOR_S
        while True:
            found = self._reader.turn()
            with self._lock:
                if isinstance(found, State):
                    self._scheduler.add(found)
                    if not is_runner:
                        self._wake_one()
                elif found is not None:
                    self._refuse(found)
                if self._closing or not self._reader.has_more or (is_runner and self._has_enough(until)):
                    self._reader.leave()
                    return

    def _has_enough(self, until: float) -> bool:
        """Whether a runner that reads had better run. Where a batch takes all that is there, a little more may come."""
        if not self._scheduler:
            return False
        return self._parallel or time.perf_counter() > until or not self._reader.next_is_short

    def _refuse(self, found: Illegible) -> None:
        found.job.skip(found.number, _failure("the model failed while reading", found.cause))
        self._on_loop(found.job.deliver)

    def _wake_reader(self) -> None:
        """Whenever something may have become free to read. Under the lock."""
        if self._reader.is_wanted and not self._idle.wake():
            self._idle_reader.wake()

    # --- the runner threads ---

    def _run_forever(self, beside: bool = False) -> None:
        ahead = overlaps(self._model)
        running: Started | None = None
        while True:
            batch = self._next(beside, block=running is None)
            if batch is None:
                return
            started = self._start(batch) if batch else None
            if running is not None:
                self._finish(running)
            running = started
            if running is not None and not ahead:
                self._finish(running)
                running = None

    def _next(self, beside: bool, block: bool) -> list[Piece] | None:
        """What to run now; nothing, if nothing is there and something runs; None at the end."""
        idle = self._idle_beside if beside else self._idle
        while True:
            with self._lock:
                if self._closing:
                    return None
                batch = self._take(beside)
                if batch or not block:
                    return batch
                reads = not beside and self._reader.take()
                if not reads:
                    idle.enter()
            if reads:
                self._read(is_runner=True)
            else:
                idle.sleep()

    def _take(self, beside: bool) -> list[Piece]:
        if beside:
            batch = self._scheduler.take_beside()
        else:
            # Where cores work side by side, a piece each: more at a time would wait for one core while another is idle.
            batch = self._scheduler.take(0 if self._parallel else self._model.token_budget)
        if batch:
            self._wake_one()
            jobs = [piece.state.job for piece in batch]
            self._reader.put([job for job in jobs if job.unread < len(job.states)])  # there is room to read on
            self._wake_reader()
        return batch

    def _wake_one(self) -> None:
        """Whenever something may have become free to run. Under the lock."""
        if self._scheduler:
            self._idle.wake()
            if self._parallel and self._scheduler.is_busy:
                self._idle_beside.wake()

    def _start(self, batch: list[Piece]) -> Started:
        began = time.perf_counter()
        waits: list[float] = []
        cost = questions = 0
        for piece in batch:
            job = piece.state.job
            cost += piece.cost
            if piece.fresh:
                questions += len(piece.item.questions)
            if not job.has_begun:
                waits.append(job.begin(began))
        self._began[id(batch)] = began
        report = BatchReport(questions, cost / self._model.token_budget, waits)
        return Started(batch, self._launch(batch), report)

    def _finish(self, running: Started) -> None:
        finished = self._settle(running.batch, running.results)
        tracing.ran({piece.state.job.trace for piece in running.batch}, since=self._began.pop(id(running.batch)))
        if finished or running.report.questions:
            self._on_loop(self._deliver, finished, running.report)

    def _launch(self, batch: list[Piece]) -> Wait:
        items = [piece.item for piece in batch]
        if not overlaps(self._model):
            return lambda: self._model.run(items)
        try:
            return self._model.launch(items)
        except DeviceLost:
            raise
        except Exception as error:
            return partial(_throw, error)

    def _settle(self, batch: list[Piece], wait: Wait | None = None) -> list[Job]:
        """Run the batch, or wait for it; return the jobs that have something to deliver with it."""
        try:
            results = wait() if wait is not None else self._model.run([piece.item for piece in batch])
            for piece, result in zip(batch, results, strict=True):
                if not isinstance(result, More) and len(result) != len(piece.item.questions):
                    raise ValueError("the model left questions unanswered")
        except DeviceLost:
            raise
        except Exception as error:
            if len(batch) == 1:
                with self._lock:
                    self._lose(batch[0], "the model failed while running", error)
                return []
            middle = len(batch) // 2
            return self._settle_rest(batch[:middle]) + self._settle_rest(batch[middle:])
        sound = [isinstance(result, More) or all(map(is_distribution, result)) for result in results]
        with self._lock:
            finished = [
                piece.state.job
                for piece, result, is_sound in zip(batch, results, sound, strict=True)
                if self._record(piece, result, is_sound)
            ]
            self._wake_one()
        return finished

    def _settle_rest(self, batch: list[Piece]) -> list[Job]:
        """A part of a batch that failed, without what is known to be guilty."""
        with self._lock:
            for piece in batch:
                if piece.state.is_over:
                    self._scheduler.end(piece)
        innocent = [piece for piece in batch if not piece.state.is_over]
        return self._settle(innocent) if innocent else []

    def _record(self, piece: Piece, result: Result, is_sound: bool) -> bool:
        """Note what a run gave; return whether its job has something to deliver with it."""
        state = piece.state
        if isinstance(result, More):
            self._scheduler.put_back(piece, result.cost)
            return False
        if not is_sound:
            self._lose(piece, "the model gave no distribution over the options")
            return False
        if piece.item.features is not None:
            state.verdict.features = piece.item.features
        for number, of_options in zip(piece.item.questions, result, strict=True):
            state.verdict.weights[number] = of_options
        was_over = state.is_over  # lost by a piece before this one, or given up
        return self._scheduler.end(piece) and not was_over and state.job.complete(state)

    def _lose(self, piece: Piece, reason: str, cause: Exception | None = None) -> None:
        state = piece.state
        self._scheduler.end(piece)
        if not state.job.abandoned and not state.job.is_lost(state.index):
            self._scheduler.lose(state, _failure(reason, cause))
            self._on_loop(state.job.deliver)
            self._reader.put([state.job])  # what was given up makes room to read on
            self._wake_reader()
            self._wake_one()

    # --- all threads, and the event loop ---

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


def _throw(error: Exception) -> Sequence[Result]:
    raise error
