"""Answers as columns of a table."""

import re
from typing import Any

from decided.client.protocol import BatchResult
from decided.contract.types import Answer, Choice, ChoiceAnswer, Noul, NoulAnswer, Question, compact

ERROR, WARNING = "error", "warning"
EMPTY, UNSURE = "empty", "unsure"

_DECIMALS = 6
_UNSAFE = re.compile(r"[^\w.-]+")


class Columns:
    """The columns that the answers to some questions take: their names, their types, and what goes into them.

    With `min_confidence`, an answer below it is given as "unsure", so answers are texts then.
    """

    def __init__(self, questions: dict[str, Question], probabilities: bool = True, min_confidence: float = 0.0) -> None:
        self.questions = questions
        self.types: dict[str, type] = {}
        self._min_confidence = min_confidence
        self._answers = {name: self._add(_safe(name), _type(each, min_confidence)) for name, each in questions.items()}
        self.types.clear()  # in order: each question's columns together
        self._shares: dict[str, dict[str, str]] = {}
        for name, question in questions.items():
            column = self._answers[name]
            self.types[column] = _type(question, min_confidence)
            if not isinstance(question, Choice | Noul):
                self.types |= {f"{column}.level": str, f"{column}.score": float}
            self.types[f"{column}.confidence"] = float
            keys = question.keys() if probabilities else ()
            self._shares[name] = {key: self._add(f"{column}.p.{_safe(key)}", float) for key in keys}
        self.types |= {WARNING: str, ERROR: str}

    def name_of(self, question: str) -> str:
        """The column with the answer to a question."""
        return self._answers[question]

    def values(self, result: BatchResult) -> dict[str, Any]:
        if result.response is None:
            return self.failed(result.error.message if result.error else "no answer")
        found: dict[str, Any] = {}
        for name in self.questions:
            found |= self._of(name, result.response.answers[name])
        return found | {WARNING: "; ".join(result.response.warnings) or None, ERROR: None}

    def failed(self, reason: str) -> dict[str, Any]:
        return dict.fromkeys(self.types) | {ERROR: reason}

    def _of(self, name: str, answer: Answer) -> dict[str, Any]:
        column = self._answers[name]
        found: dict[str, Any] = {column: _plain(answer)}
        if self._min_confidence:
            found[column] = UNSURE if answer.confidence < self._min_confidence else str(found[column])
        if not isinstance(answer, ChoiceAnswer | NoulAnswer):
            found[f"{column}.level"] = compact(answer.legend[str(answer.level)])
            found[f"{column}.score"] = round(answer.score, _DECIMALS)
        found[f"{column}.confidence"] = round(answer.confidence, _DECIMALS)
        for key, share in self._shares[name].items():
            found[share] = round(answer.probabilities[key], _DECIMALS)
        return found

    def _add(self, name: str, kind: type) -> str:
        """A name that no other column has."""
        number, free = 1, name
        while free in self.types or free in (WARNING, ERROR):
            number += 1
            free = f"{name}_{number}"
        self.types[free] = kind
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
