"""How a question is worded, in training and in serving. A state is worded by `compact`, as everywhere."""

from typing import NamedTuple

from decided.contract.types import Choice, Noul, Option, Question
from decided.engines.prompts import instructions, words


class Rendered(NamedTuple):
    """The texts of one question: the instructions with their lead, and one text per option, in the caller's order."""

    instructions: str
    options: list[str]


def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


def _named(option: Option) -> str:
    """One option of a choice. A description that only repeats the name is not said twice."""
    name, description = option
    if not description:
        return words(name)
    return description if _letters(description) == _letters(name) else f"{words(name)}: {description}"


def render(question: Question) -> Rendered:
    """The texts of one question. Those of a noul are always [no, yes]."""
    about, options = instructions(question), question.options()
    if isinstance(question, Choice):
        return Rendered(f"choose: {about}", [_named(option) for option in options])
    if isinstance(question, Noul):
        yes, no = (f": {option.description}" if option.description else "" for option in options)
        return Rendered(f"yes or no: {about}", [f"no{no}", f"yes{yes}"])
    levels = [f"{i} of {len(options)}: {option.description}" for i, option in enumerate(options, 1)]
    return Rendered(f"rate: {about}", levels)
