"""Answers as columns of a table."""

from collections.abc import Iterator, Mapping
from typing import Any

from decided.contract import Choice, ChoiceAnswer, Noul, NoulAnswer, Question
from decided.exchange import BatchResult

ERROR, WARNING = "error", "warning"

_DECIMALS = 6


def added(questions: Mapping[str, Question]) -> dict[str, type]:
    """The columns that the answers to these questions take, each with the type of its values."""
    found: dict[str, type] = {}
    for name, question in questions.items():
        found[name] = str if isinstance(question, Choice) else bool if isinstance(question, Noul) else int
        if not isinstance(question, Choice | Noul):
            found[f"{name}.score"] = float
        found[f"{name}.confidence"] = float
        found |= {f"{name}.p.{key}": float for key in question.keys()}  # noqa: SIM118
    return found | {WARNING: str, ERROR: str}


def values(questions: Mapping[str, Question], result: BatchResult) -> dict[str, Any]:
    """What goes into those columns."""
    if result.response is None:
        said = result.error.message if result.error else "no answer"
        return failed(questions, said)
    found: dict[str, Any] = {}
    for name in questions:
        found |= _of(name, result.response.answers[name])
    return found | {WARNING: "; ".join(result.response.warnings) or None, ERROR: None}


def failed(questions: Mapping[str, Question], reason: str) -> dict[str, Any]:
    return dict.fromkeys(added(questions)) | {ERROR: reason}


def _of(name: str, answer: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(answer, ChoiceAnswer):
        yield name, answer.choice
    elif isinstance(answer, NoulAnswer):
        yield name, answer.noul >= 0.5
    else:
        yield name, answer.level
        yield f"{name}.score", round(answer.score, _DECIMALS)
    yield f"{name}.confidence", round(answer.confidence, _DECIMALS)
    for key, share in answer.probabilities.items():
        yield f"{name}.p.{key}", round(share, _DECIMALS)
