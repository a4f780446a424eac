"""`decided eval`: ask labelled questions and say how good the answers are, of one model, or of two on the same rows."""

import dataclasses
import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from decided import questions
from decided.backend import KEY_PLACE, check_address
from decided.client.protocol import origin
from decided.contract.types import MAX_OPTIONS, Noul, Question, compact, type_of
from decided.engines.api import KINDS
from decided.errors import InputError
from decided.evaluation import html, labelled, output, report, verdict
from decided.evaluation.complaints import complain
from decided.evaluation.labelled import BadLine, LabelledRow
from decided.evaluation.labels import read_labels
from decided.evaluation.report import Case, Report, Section
from decided.evaluation.survey import Survey, Wording, survey
from decided.settings import Settings, all_settings, default_of

_MOST_SECTIONS = 20
_AGAINST_KEY_PLACE = "SERVICE_AGAINST_API_KEY"
_TOLD = ("revision", "dtype", "device", "temperature", "profiles", "rotations")
"""Settings that answers may hang on."""

Key = tuple[str, str, tuple[str, ...]]
"""What the questions of a section share: their title, their type and, where they do, their options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the command was told: labelled rows in, a report out."""

    labels: str
    questions: Path | None = None
    """With them, the labels are a table with a column for each; without, lines of labelled questions."""
    state_columns: tuple[str, ...] = ()
    input_format: str | None = None
    json: bool = False
    html: Path | None = None
    limit: int | None = None
    against: str | None = None
    against_questions: Path | None = None
    concurrency: int | None = None
    server: str | None = None
    api_key: str | None = None


class Contestant(NamedTuple):
    """Who answers: a model with its settings, or a server with its key; perhaps with another wording."""

    settings: Settings
    server: str | None = None
    api_key: str | None = None
    wording: Wording | None = None
    remark: str = ""
    """What sets it apart from another of the same model."""
    key_place: str = KEY_PLACE


async def evaluate(settings: Settings, task: Task) -> None:
    """Ask and report. Raises StartError when that is not possible."""
    _check(task)
    asked = None if task.questions is None else questions.read_file(task.questions)
    first, second = _contestants(settings, task, asked)
    unit = "line" if asked is None else "row"
    rows, problems, skipped = _from_lines(task) if asked is None else _from_table(task, asked)
    complain(problems)
    if not rows:
        raise InputError(f"none of the {unit}s can be used")
    one = await _ask(first, rows, task, unit)
    other = None if second is None else await _ask(second, rows, task, unit)
    found = _report(task, unit, skipped, (first, one), (second, other))
    if task.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    else:
        print("\n".join(report.text(found)))
    if task.html is not None:  # last: should the disk refuse, the report is there
        with output.writing(task.html):
            task.html.write_text(html.html(found), encoding="utf-8")
        if not task.json:
            print(f"\nwritten: {task.html}")


def _check(task: Task) -> None:
    """What can be known to fail later fails now."""
    if task.html is not None and (task.html.is_dir() or not task.html.parent.is_dir()):
        raise InputError(f"--html {task.html}: must be a file in a directory that exists")
    if task.html is not None:
        output.check(task.html)
    if task.questions is None:
        labelled.refuse_a_table(task.labels)
    if task.against is not None:
        kind, _, name = task.against.partition(":")
        if kind in ("http", "https") or (kind not in KINDS and name.isdigit()):  # a host and its port
            check_address("--against", task.against)
    if task.against_questions is not None:
        if task.questions is None:
            raise InputError("--against-questions needs --questions: the wording to compare with")
        if task.against is not None:
            raise InputError("compare models with --against, or wordings with --against-questions, not both")


# --- labels ---


LabelledRows = tuple[list[LabelledRow], list[str], int]
"""Rows to ask about, what is to be said about others, and how many those are."""


def _from_lines(task: Task) -> LabelledRows:
    rows, problems = [], []
    found = labelled.lines(labelled.content(task.labels), task.limit)
    if not found:
        raise InputError(f"{labelled.named(task.labels)} is empty")
    for line in found:
        try:
            rows.append(labelled.read_row(line, MAX_OPTIONS))
        except BadLine as error:
            problems.append(str(error))
    return rows, problems, len(problems)


def _from_table(task: Task, asked: dict[str, Question]) -> LabelledRows:
    """The labels by row, each option under the number that it has in its question."""
    found = read_labels(task.labels, task.input_format, asked, task.state_columns, task.limit, keep_repeated=True)
    rows: dict[int, LabelledRow] = {}
    for one in found.questions:
        keys = list(one.question.keys())
        for number, state, right in zip(one.rows, one.states, one.right, strict=True):
            row = rows.setdefault(number, LabelledRow(number, state, [], [], []))
            rows[number] = row._replace(
                questions=[*row.questions, one.question],
                right=[*row.right, keys.index(one.options[right])],
                names=[*row.names, one.name],
            )
    empty = sorted({number for one in found.questions for number in one.empty})
    problems = [*found.problems, *(f"row {number}: it has no text" for number in empty)]
    return [rows[number] for number in sorted(rows)], problems, len(problems)


# --- who answers ---


def _contestants(
    settings: Settings, task: Task, asked: dict[str, Question] | None
) -> tuple[Contestant, Contestant | None]:
    first = Contestant(settings, task.server, task.api_key)
    if task.against_questions is not None and task.questions is not None:
        wording = questions.read_file(task.against_questions)
        _check_wording(task.against_questions, asked or {}, wording)
        names = [task.questions.name, task.against_questions.name]
        if names[0] == names[1]:
            names = [str(task.questions), str(task.against_questions)]
        return first._replace(remark=names[0]), first._replace(wording=wording, remark=names[1])
    if task.against is not None:
        if not task.against.startswith(("http://", "https://")):
            here = Contestant(dataclasses.replace(settings, model=task.against), remark="in this process")
            return first._replace(remark=f"at {task.server}" if task.server else ""), here
        key, key_place = task.api_key, KEY_PLACE
        if task.server is None:
            key, key_place = settings.against_api_key or key, _AGAINST_KEY_PLACE
        elif origin(task.server) != origin(task.against):  # a key goes to one origin, and never to another
            key, key_place = settings.against_api_key, _AGAINST_KEY_PLACE
            settings = dataclasses.replace(settings, api_key=None)
        where = f"at {task.server}" if task.server else "in this process"
        rival = Contestant(settings, task.against, key, remark=f"at {task.against}", key_place=key_place)
        return first._replace(remark=where), rival
    if task.server is None and settings.profiles is not None:
        without = Contestant(dataclasses.replace(settings, profiles=None), remark="without profiles")
        return first._replace(remark="with profiles"), without
    return first, None


def _check_wording(path: Path, first: dict[str, Question], second: dict[str, Question]) -> None:
    """Another wording of the same questions: the labels must mean the same in both."""
    if first.keys() != second.keys():
        name = min(first.keys() ^ second.keys())
        raise InputError(f"--against-questions {path}: the question {name!r} is not in both files")
    for name, question in first.items():
        if type(question) is not type(second[name]) or {*question.keys()} != {*second[name].keys()}:
            raise InputError(
                f"--against-questions {path}: question {name!r} must have the same type and options as in the other "
                "file; instructions and descriptions may differ"
            )


async def _ask(who: Contestant, rows: Sequence[LabelledRow], task: Task, unit: str) -> Survey:
    server = (who.server, who.api_key, who.key_place)
    return await survey(who.settings, server, rows, who.wording, task.concurrency, unit, sys.stderr)


# --- the report ---


def _report(
    task: Task,
    unit: str,
    unusable: int,
    first: tuple[Contestant, Survey],
    second: tuple[Contestant | None, Survey | None],
) -> Report:
    """Both are judged on the rows that both have answered."""
    (who, one), (rival, other) = first, second
    same = other is not None and one.model == other.model
    names = [one.model, other.model] if other is not None else [one.model]
    if same and rival is not None:
        names = [who.remark or one.model, rival.remark or f"{one.model} again"]
    groups = _group(one, other)
    sections = [Section.of(*key, cases) for key, cases in groups.items()]
    if len(sections) > 1:
        every = [case for cases in groups.values() for case in cases]
        sections.insert(0, Section.of("all questions", "", (), every))
    found = Report(
        model=one.model,
        against=other.model if other is not None else None,
        names=names,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        labels=labelled.named(task.labels),
        unit=unit,
        settings=_settings_in_words(who, task),
        lines=len(one.rows.keys() & other.rows.keys() if other else one.rows.keys()),
        skipped=unusable + one.bad + one.failed,
        sections=sections,
    )
    identical = same and rival is not None and who[:4] == rival[:4]
    return msgspec.structs.replace(
        found, verdict=verdict.sentences(found, identical), next_steps=verdict.next_steps(found, task.questions)
    )


def _settings_in_words(who: Contestant, task: Task) -> list[str]:
    """What is not as it is by default, of what answers may hang on."""
    found = [f"questions {task.questions}"] if task.questions is not None else []
    if task.limit is not None:
        found.append(f"limit {task.limit}")
    if who.server is not None:
        return [*found, f"server {who.server}"]
    for item in all_settings():
        value = getattr(who.settings, item.name)
        if item.name in _TOLD and value != default_of(item):
            found.append(f"{item.name} {value}")
    return found


def _group(one: Survey, other: Survey | None) -> dict[Key, list[Case]]:
    """Questions with the same words and options together; if that makes too many groups, all of a type."""
    exact: dict[Key, list[Case]] = {}
    coarse: dict[Key, list[Case]] = {}
    for number in sorted(one.rows.keys() & other.rows.keys() if other else one.rows.keys()):
        row, said = one.rows[number]
        others = other.rows[number][1] if other else [None] * len(said)
        for name, question, scored, rival in zip(row.names, row.questions, said, others, strict=True):
            kind = type_of(question)
            options = tuple(question.keys())
            title = compact(question.instructions) if question.instructions else name
            case = Case(number, row.state, name, question, scored, rival)
            exact.setdefault((title, kind, options), []).append(case)
            shared = options if isinstance(question, Noul) else ()
            coarse.setdefault((f"all of type {kind}", kind, shared), []).append(case)
    return exact if len(exact) <= _MOST_SECTIONS else coarse
