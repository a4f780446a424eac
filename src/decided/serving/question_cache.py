"""What a model made of questions: most clients ask the same ones of every state, so it is kept for the next request."""

from typing import Any

from decided.contract.types import encode
from decided.engines.api import Model
from decided.serving.job import Job

_KNOWN_QUESTIONS, _KNOWN_BYTES = 256, 4096
"""Questions that are remembered, and how large one may be."""
_TURN_BYTES = 8192
"""Of questions, prepared before another request has its turn."""


class QuestionCache:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[bytes, Any] = {}  # the one used last comes last

    def prepare(self, job: Job) -> bool:
        """Go on with the questions of a job. Whether all are prepared; many long ones take several turns."""
        read = 0
        for question in job.questions[len(job.prepared) :]:
            if read > _TURN_BYTES:
                return False
            key = encode(question)
            prepared = self._known.pop(key, None)
            if prepared is None:
                [prepared] = self._model.prepare([question])
                read += len(key)
            if len(key) <= _KNOWN_BYTES:
                self._known[key] = prepared
                if len(self._known) > _KNOWN_QUESTIONS:
                    del self._known[next(iter(self._known))]
            job.prepared.append(prepared)
        return True
