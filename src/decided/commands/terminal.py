"""Answers for people: the options of a question as bars, widest first where their order is nobody's choice."""

from collections.abc import Iterator

from decided.contract.types import Answer, ChoiceAnswer, NoulAnswer, SingleResponse, compact
from decided.printable import printable

_WIDTH = 24
_NAME_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def lines(response: SingleResponse, plain: bool = False) -> Iterator[str]:
    """A block of lines per question. `plain` leaves out all but ASCII."""
    return map(printable, _lines(response, plain))


def _lines(response: SingleResponse, plain: bool) -> Iterator[str]:
    for number, (name, answer) in enumerate(response.answers.items()):
        if number:
            yield ""
        yield from _block(name, answer, plain)
    for warning in response.warnings:
        yield ""
        yield f"warning: {warning}"


def _block(name: str, answer: Answer, plain: bool) -> Iterator[str]:
    yield f"{name}  {_said(answer)}  (confidence {answer.confidence:.2f}{', cut' if answer.truncated else ''})"
    rows = [(_label(answer, key), share) for key, share in answer.probabilities.items()]
    if isinstance(answer, ChoiceAnswer):
        rows.sort(key=lambda row: -row[1])
    width = max(len(label) for label, _ in rows)
    for label, share in rows:
        yield f"  {label:{width}}  {share:5.1%}  {bar(share, plain)}".rstrip()


def _said(answer: Answer) -> str:
    if isinstance(answer, ChoiceAnswer):
        return _short(answer.choice)
    if isinstance(answer, NoulAnswer):
        return "yes" if answer.noul >= 0.5 else "no"
    return f"{_short(compact(answer.legend.get(str(answer.level), answer.level)))}  (expected level {answer.score:.2f})"


def _label(answer: Answer, key: str) -> str:
    if isinstance(answer, NoulAnswer):
        return {"true": "yes", "false": "no"}.get(key, key)
    if isinstance(answer, ChoiceAnswer):
        return _short(key)
    return _short(f"{key} {compact(answer.legend.get(key, ''))}".rstrip())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _NAME_WIDTH else text[: _NAME_WIDTH - 3] + "..."


def bar(share: float, plain: bool = False) -> str:
    if plain:
        return "#" * round(share * _WIDTH)
    whole, rest = divmod(round(share * _WIDTH * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
