"""Answers as columns of a table."""

import re
from typing import Any, NamedTuple

from decided.client.protocol import BatchResult
from decided.contract.types import Answer, Choice, ChoiceAnswer, Noul, NoulAnswer, Question, compact

ERROR, WARNING = "error", "warning"
EMPTY, UNSURE = "empty", "unsure"

_DECIMALS = 6
_UNSAFE = re.compile(r"[^\w.-]+")


class Names(NamedTuple):
    """The columns of the answers to one question, in their order."""

    answer: str
    level: str | None
    """The label of the level, and below the expected level: of levels alone."""
    score: str | None
    confidence: str
    shares: dict[str, str]
    """By option."""


class Columns:
    """The columns that the answers to some questions take: their names, their types, and what goes into them.

    With `min_confidence`, an answer below it is given as "unsure", so answers are texts then.
    """

    def __init__(self, questions: dict[str, Question], probabilities: bool = True, min_confidence: float = 0.0) -> None:
        self.questions = questions
        self.types: dict[str, type] = {}
        self._min_confidence = min_confidence
        self._taken = {WARNING, ERROR}
        answers = {name: self._free(_safe(name)) for name in questions}  # first: the rest gives way to them
        self.names: dict[str, Names] = {}
        for name, question in questions.items():
            column = answers[name]
            self.types[column] = _type(question, min_confidence)
            keys = question.keys() if probabilities else ()
            has_levels = not isinstance(question, Choice | Noul)
            self.names[name] = Names(
                column,
                self._add(f"{column}.level", str) if has_levels else None,
                self._add(f"{column}.score", float) if has_levels else None,
                self._add(f"{column}.confidence", float),
                {key: self._add(f"{column}.p.{_safe(key)}", float) for key in keys},
            )
        self.types |= {WARNING: str, ERROR: str}

    def values(self, result: BatchResult) -> dict[str, Any]:
        if result.response is None:
            return self.failed(result.error.message if result.error else "no answer")
        found: dict[str, Any] = {}
        for name in self.questions:
            found |= self._of(self.names[name], result.response.answers[name])
        return found | {WARNING: "; ".join(result.response.warnings) or None, ERROR: None}

    def failed(self, reason: str) -> dict[str, Any]:
        return dict.fromkeys(self.types) | {ERROR: reason}

    def _of(self, names: Names, answer: Answer) -> dict[str, Any]:
        found: dict[str, Any] = {names.answer: _plain(answer)}
        if self._min_confidence:
            found[names.answer] = UNSURE if answer.confidence < self._min_confidence else str(found[names.answer])
        if names.level and names.score and not isinstance(answer, ChoiceAnswer | NoulAnswer):
            found[names.level] = compact(answer.legend[str(answer.level)])
            found[names.score] = round(answer.score, _DECIMALS)
        found[names.confidence] = round(answer.confidence, _DECIMALS)
        for key, share in names.shares.items():
            found[share] = round(answer.probabilities[key], _DECIMALS)
        return found

    def _add(self, name: str, kind: type) -> str:
        free = self._free(name)
        self.types[free] = kind
        return free

    def _free(self, name: str) -> str:
        """A name that no other column has."""
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free


def _safe(name: str) -> str:
    """A name that data frames and databases take: letters, digits and _ . - alone."""
    return _UNSAFE.sub("_", name).strip("_") or "_"


def _type(question: Question, min_confidence: float) -> type:
    if min_confidence or isinstance(question, Choice):
        return str
    return bool if isinstance(question, Noul) else int


def _plain(answer: Answer) -> str | int | bool:
    if isinstance(answer, ChoiceAnswer):
        return answer.choice
    return answer.noul >= 0.5 if isinstance(answer, NoulAnswer) else answer.level
