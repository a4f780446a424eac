"""`decided eval`: ask labelled questions and say how good the answers are, of one model, or of two on the same rows."""

import asyncio
import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decided.backend import Backend, check_options, open_backend
from decided.client.protocol import origin
from decided.contract.types import Answer, Noul, Question, compact, type_of
from decided.errors import InputError, ModelError
from decided.evaluation import html, labelled, report
from decided.evaluation.labelled import BadLine, LabelledRow, Line
from decided.evaluation.report import Report, Section
from decided.evaluation.scoring import Scored
from decided.progress import Progress
from decided.settings import Settings

_LINES_AT_A_TIME = 64
_COMPLAINTS_SHOWN = 20
_MOST_SECTIONS = 20

Key = tuple[str, str, tuple[str, ...]]
"""What the questions of a section share: their title, their type and, where they do, their options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the command was told: labelled rows in, a report out."""

    labels: str
    json: bool = False
    html: Path | None = None
    limit: int | None = None
    against: str | None = None
    server: str | None = None
    api_key: str | None = None


async def evaluate(settings: Settings, task: Task) -> None:
    """Ask and report. Raises StartError when that is not possible."""
    if task.html is not None and (task.html.is_dir() or not task.html.parent.is_dir()):
        raise InputError(f"--html {task.html}: must be a file in a directory that exists")
    lines = labelled.lines(labelled.content(task.labels), task.limit)
    if not lines:
        raise InputError(f"{labelled.named(task.labels)} is empty")
    survey = await _survey(settings, task.server, task.api_key, lines)
    other: Survey | None = None
    if task.against is None and task.server is None and settings.profiles is not None:
        other = await _survey(dataclasses.replace(settings, profiles=None), None, None, lines)
        survey.model = f"{other.model} with profiles"
    elif task.against is not None:
        if task.against.startswith(("http://", "https://")):
            other = await _survey(*_against(settings, task), lines)
        else:
            other = await _survey(dataclasses.replace(settings, model=task.against), None, None, lines)
    found = _report(survey, other)
    if task.html is not None:
        try:
            task.html.write_text(html.html(found), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{task.html} cannot be written: {error.strerror or error}") from None
    if task.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    else:
        print("\n".join(report.text(found)))
        if task.html is not None:
            print(f"\nwritten: {task.html}")


def _against(settings: Settings, task: Task) -> tuple[Settings, str | None, str | None]:
    """The second server with its own key: a key goes to one origin, and never to another."""
    if task.server is None or origin(task.server) == origin(task.against or ""):
        return settings, task.against, task.api_key
    return dataclasses.replace(settings, api_key=None), task.against, settings.against_api_key


async def _survey(settings: Settings, server: str | None, api_key: str | None, lines: Sequence[Line]) -> "Survey":
    backend = await open_backend(settings, server, api_key)
    survey = Survey(backend, Progress(len(lines), "lines", sys.stderr, time.monotonic))
    try:
        await survey.take(lines)
    finally:
        await backend.close()
    if not survey.rows:
        raise InputError("none of the lines can be used")
    if survey.failed > len(survey.rows):  # the few that were answered may not be like the others
        raise ModelError(f"{survey.model}: no answer to {survey.failed} of {survey.failed + len(survey.rows)} lines")
    return survey


class Survey:
    """A model is asked every line; what it said is kept by line and question."""

    def __init__(self, backend: Backend, progress: Progress) -> None:
        self.model = backend.model
        self.rows: dict[int, tuple[LabelledRow, list[Scored]]] = {}
        self.bad = self.failed = 0
        self._decider = backend
        self._progress = progress

    async def take(self, lines: Sequence[Line]) -> None:
        waiting = iter(lines)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_LINES_AT_A_TIME, len(lines))):
                    group.create_task(self._work_off(waiting))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._progress.close()

    async def _work_off(self, waiting: Iterator[Line]) -> None:
        for line in waiting:
            try:
                row = labelled.read_row(line, self._decider.max_options)
            except BadLine as error:
                self.bad += 1
                self._complain(str(error))
            else:
                await self._ask(row)
            self._progress.advance()

    async def _ask(self, row: LabelledRow) -> None:
        questions: dict[str, Question] = dict(zip(row.names, row.questions, strict=True))
        check_options(self._decider, questions)
        async with aclosing(self._decider.batch([row.state], questions)) as results:
            async for result in results:
                if result.response is None:
                    self.failed += 1
                    self._complain(f"line {row.line}: {result.error.message if result.error else 'no answer'}")
                    continue
                self.rows[row.line] = (
                    row,
                    [
                        _score(result.response.answers[name], question, right)
                        for name, question, right in zip(row.names, row.questions, row.right, strict=True)
                    ],
                )

    def _complain(self, message: str) -> None:
        if self.bad + self.failed <= _COMPLAINTS_SHOWN:
            self._progress.say(f"skipped {message}")


def _score(answer: Answer, question: Question, right: int) -> Scored:
    return Scored([answer.probabilities[key] for key in question.keys()], right, answer.confidence)  # noqa: SIM118


def _report(survey: Survey, other: Survey | None) -> Report:
    """Both are judged on the rows that both have answered."""
    numbers = sorted(survey.rows.keys() & other.rows.keys() if other else survey.rows.keys())
    groups = _group([survey.rows[number][0] for number in numbers])
    first = [scored for number in numbers for scored in survey.rows[number][1]]
    second = [scored for number in numbers for scored in other.rows[number][1]] if other else []
    sections = []
    for (title, kind, names), places in groups.items():
        others = [second[place] for place in places] if other else []
        sections.append(Section.of(title, kind, names, [first[place] for place in places], others))
    skipped = survey.bad + survey.failed
    if len(sections) > 1:
        sections.insert(0, Section.of("all questions", "", (), first, second))
    return Report(survey.model, other.model if other else None, len(numbers), skipped, sections)


def _group(rows: Sequence[LabelledRow]) -> dict[Key, list[int]]:
    """Questions with the same words and options together; if that makes too many groups, all of a type."""
    exact: dict[Key, list[int]] = {}
    coarse: dict[Key, list[int]] = {}
    place = 0
    for row in rows:
        for name, question in zip(row.names, row.questions, strict=True):
            kind = type_of(question)
            names = tuple(question.keys())
            title = compact(question.instructions) if question.instructions else name
            exact.setdefault((title, kind, names), []).append(place)
            shared = names if isinstance(question, Noul) else ()
            coarse.setdefault((f"all of type {kind}", kind, shared), []).append(place)
            place += 1
    return exact if len(exact) <= _MOST_SECTIONS else coarse
