"""Labelled questions: lines of JSON, each a state with one question or several, and the answers that are right."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from decided.contract.decoding import option_number, quote, read_object, read_request
from decided.contract.types import Question, encode
from decided.errors import DecidedError, InputError, Invalid
from decided.tables.tables import FORMATS

ALONE = "question"
"""The name of a question that stands alone on its line."""


class Line(NamedTuple):
    """One line of the input that is not empty, and its number in it."""

    number: int
    text: bytes


class LabelledRow(NamedTuple):
    """A state and its questions, and for each question the number of the option that is right."""

    line: int
    state: str
    questions: Sequence[Question]
    right: Sequence[int]
    names: Sequence[str]


class BadLine(Exception):
    """A line that cannot be used. The message says which, and why."""

    def __init__(self, line: int, reason: object) -> None:
        super().__init__(f"line {line}: {reason}")


def content(source: str) -> bytes:
    """All of a file, or of standard input."""
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"{named(source)} cannot be read: {error.strerror or error}") from None


def named(source: str) -> str:
    return "standard input" if source == "-" else source


def is_table(source: str) -> bool:
    """Whether a file is named as one that has a column for each question, and not a question on each line."""
    return FORMATS.get(Path(source).suffix.lower(), "jsonl") != "jsonl"


def refuse_a_table(source: str) -> None:
    """Where no questions are given, each line has its own."""
    if is_table(source):
        raise InputError(f"{source}: a table needs --questions FILE, and a column for each of the questions")


def lines(content: bytes, limit: int | None = None) -> list[Line]:
    """The lines that are not empty; the first `limit` of them."""
    found = (Line(number, text) for number, text in enumerate(content.split(b"\n"), start=1) if text.strip())
    return [line for _, line in zip(range(limit), found, strict=False)] if limit is not None else list(found)


def read_row(line: Line, max_options: int) -> LabelledRow:
    """The labelled questions of a line, checked as the server checks a request; or BadLine."""
    try:
        body = _in_plural(read_object(line.text.strip(), "the line"))
        request = read_request(encode(body), max_options)
        right = _right(request.questions, body.get("answers"))
    except DecidedError as error:
        raise BadLine(line.number, error) from None
    questions = request.questions
    return LabelledRow(line.number, request.states[0], list(questions.values()), right, list(questions))


def _in_plural(row: dict[str, Any]) -> dict[str, Any]:
    """One question and its answer, as a set of one."""
    if "question" not in row:
        return row
    if "questions" in row or "answers" in row:
        raise Invalid("use 'question' with 'answer', or 'questions' with 'answers', not both")
    if "answer" not in row:
        raise Invalid("the field 'answer' is missing")
    return {**row, "questions": {ALONE: row["question"]}, "answers": {ALONE: row["answer"]}}


def _right(questions: dict[str, Question], answers: object) -> list[int]:
    if not isinstance(answers, dict):
        raise Invalid("the field 'answers' must be an object with an answer for each question")
    if strangers := answers.keys() - questions.keys():
        raise Invalid(f"answer for an unknown question: {quote(min(strangers))}")
    if missing := questions.keys() - answers.keys():
        raise Invalid(f"question {quote(min(missing))}: no answer")
    return [option_number(name, question, answers[name]) for name, question in questions.items()]
