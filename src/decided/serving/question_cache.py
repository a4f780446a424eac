"""What a model made of questions: most clients ask the same ones of every state, so it is kept for the next request."""

from typing import Any

from decided.contract.types import encode
from decided.engines.api import Model
from decided.serving.job import Job

_KEPT, _KEPT_BYTES = 256, 4096
"""How many are kept, and how large one may be."""
_TURN_BYTES = 8192
"""Of questions, prepared before another request has its turn."""


class QuestionCache:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._questions = _Recent()
        self._requests = _Recent()  # all the questions of one: the usual client asks the very same again

    def prepare(self, job: Job) -> bool:
        """Go on with the questions of a job. Whether all are prepared; many long ones take several turns."""
        if job.prepared:
            return self._go_on(job)
        key = encode(job.questions)
        prepared = self._requests.get(key)
        if prepared is not None:
            job.prepared = prepared
            return True
        if not self._go_on(job):
            return False
        self._requests.put(key, job.prepared)
        return True

    def _go_on(self, job: Job) -> bool:
        read = 0
        for question in job.questions[len(job.prepared) :]:
            if read > _TURN_BYTES:
                return False
            key = encode(question)
            prepared = self._questions.get(key)
            if prepared is None:
                [prepared] = self._model.prepare([question])
                read += len(key)
                self._questions.put(key, prepared)
            job.prepared.append(prepared)
        return True


class _Recent:
    """What was used last, by a small key."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}  # the one used last comes last

    def get(self, key: bytes) -> Any:
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
        return found

    def put(self, key: bytes, made: Any) -> None:
        if len(key) <= _KEPT_BYTES:
            self._kept[key] = made
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
