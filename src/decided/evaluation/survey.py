"""Labelled rows, asked: what a model said to each, and whether that was right."""

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TextIO

from decided.backend import Backend, open_backend
from decided.contract.types import Answer, Question
from decided.errors import InputError, ModelError
from decided.evaluation.complaints import Complaints
from decided.evaluation.labelled import LabelledRow
from decided.evaluation.scoring import Scored
from decided.paced import Paced
from decided.progress import Progress
from decided.settings import Settings
from decided.together import work_off

Wording = Mapping[str, Question]
"""Questions by name, to be asked in place of those of the rows."""


class Survey:
    """A model is asked about every row; what it said is kept by the row's number."""

    def __init__(self, backend: Backend, wording: Wording | None, progress: Progress, unit: str) -> None:
        self.model = backend.model
        self.rows: dict[int, tuple[LabelledRow, list[Scored]]] = {}
        self.bad = self.failed = 0
        self._max_options = backend.max_options
        self._wording = wording
        self._progress = progress
        self._complaints = Complaints(progress.say)
        self._unit = unit

    async def take(self, rows: Sequence[LabelledRow], paced: Paced) -> None:
        try:
            await work_off(rows, min(paced.most, len(rows)), partial(self._look_at, paced))
        finally:
            self._progress.close()
        self._complaints.close()

    async def _look_at(self, paced: Paced, row: LabelledRow) -> None:
        if any(len(question.keys()) > self._max_options for question in row.questions):
            self.bad += 1
            self._complain(row, f"too many options for this model, at most {self._max_options}")
        else:
            await self._ask(row, paced)
        self._progress.advance()

    async def _ask(self, row: LabelledRow, paced: Paced) -> None:
        questions: dict[str, Question] = dict(zip(row.names, row.questions, strict=True))
        asked = {name: self._wording[name] for name in questions} if self._wording is not None else questions
        async with aclosing(paced.batch([row.state], asked)) as results:
            async for result in results:
                if result.response is None:
                    self.failed += 1
                    self._complain(row, result.error.message if result.error else "no answer")
                    continue
                answers = result.response.answers
                pairs = zip(questions.items(), row.right, strict=True)
                self.rows[row.line] = row, [_score(answers[name], question, right) for (name, question), right in pairs]

    def _complain(self, row: LabelledRow, message: str) -> None:
        self._complaints.add(f"{self._unit} {row.line}: {message}")


async def survey(
    settings: Settings,
    server: tuple[str | None, str | None, str],
    rows: Sequence[LabelledRow],
    wording: Wording | None,
    concurrency: int | None,
    unit: str,
    stream: TextIO,
) -> Survey:
    """Ask the model that the settings name, or the server at an address with its key, and where that is looked for."""
    backend = await open_backend(settings, *server)
    found = Survey(backend, wording, Progress(len(rows), f"{unit}s", stream, time.monotonic), unit)
    try:
        await found.take(rows, Paced(backend, concurrency))
    finally:
        await backend.close()
    if found.bad == len(rows):
        raise InputError(f"none of the {unit}s can be used")
    if found.failed > len(found.rows):  # the few that were answered may not be like the others
        total = found.failed + len(found.rows)
        raise ModelError(f"{found.model}: no answer to {found.failed} of {total} {unit}s")
    return found


def _score(answer: Answer, question: Question, right: int) -> Scored:
    return Scored([answer.probabilities[key] for key in question.keys()], right, answer.confidence)  # noqa: SIM118
