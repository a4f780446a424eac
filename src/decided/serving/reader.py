"""What has arrived is read (tokenised) in turns: some questions or one state of a job, then another client's.

Whichever thread has the time reads, but only one at a time: it takes the reader, and leaves it.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from decided.engines.api import Model
from decided.fair_queue import ClientTurns
from decided.serving.job import Job, State
from decided.serving.question_cache import QuestionCache

_SHORT = 4096
"""Characters of a state that are tokenised in a millisecond or two."""


class Illegible(NamedTuple):
    """A state that the model failed to read."""

    job: Job
    number: int
    cause: Exception


class Reader:
    """What others call, they call under the owner's lock; `turn` needs none."""

    def __init__(self, model: Model, ahead: int) -> None:
        self._model = model
        self._ahead = ahead  # what a job may cost that is read and has not begun
        self._questions = QuestionCache(model)
        self._arrived: deque[Job] = deque()
        self._turns: ClientTurns[Job] = ClientTurns()  # of the thread that reads
        self._taken = False

    def put(self, jobs: Iterable[Job]) -> None:
        """There is something of them to read, or room to read on."""
        self._arrived.extend(jobs)

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to read and nobody who does."""
        return not self._taken and self.has_more

    @property
    def has_more(self) -> bool:
        return bool(self._arrived or self._turns)

    @property
    def next_is_short(self) -> bool:
        """Whether the next turn is soon over. Only while `has_more`."""
        job = self._turns.first() if self._turns else self._arrived[0]
        return job.unread == len(job.states) or len(job.states[job.unread]) <= _SHORT

    def take(self) -> bool:
        """Whether the calling thread is the one to read from now on."""
        wanted = self.is_wanted
        self._taken = self._taken or wanted
        return wanted

    def leave(self) -> None:
        self._taken = False

    def turn(self) -> State | Illegible | None:
        """Read for one turn; return what there is to schedule, or to refuse. Only while `has_more`."""
        if self._turns or len(self._arrived) > 1:
            while self._arrived:
                self._wait(self._arrived.popleft())
            job = self._turns.pop()
        else:
            job = self._arrived.popleft()
        job.has_turn = False
        found = self._read(job) if self._may_read(job) else None
        if self._may_read(job):
            self._wait(job)
        return found

    def _wait(self, job: Job) -> None:
        if not job.has_turn:
            job.has_turn = True
            self._turns.push(job.lane.client, job)

    def _may_read(self, job: Job) -> bool:
        """Whether there is a state left to read, and not enough of the job read already."""
        is_left = job.unread < len(job.states) and not job.abandoned
        return is_left and job.cost_read - job.cost_begun < self._ahead

    def _read(self, job: Job) -> State | Illegible | None:
        """Some questions, or, when there are none left, a state."""
        index = job.unread
        try:
            if not self._questions.prepare(job):
                return None
            encoded = job.encode_next(self._model)
        except Exception as error:
            job.unread += 1
            return Illegible(job, index, error)
        job.unread += 1
        encoded.items[0].wants_features = job.features
        for item in encoded.items:
            job.cost_read += item.cost
        return State(job, index, encoded)
