"""`decided ask` without arguments, in a terminal: a text, then one question after the other about it."""

from collections.abc import Awaitable, Callable

from decided.contract.types import Question
from decided.errors import InputError
from decided.questions import from_words

_HELP = """\
Type or paste a text and end it with an empty line. Then ask about it:
  Is the customer angry?                               yes or no
  Which team? | billing | delivery | other             one of these
  How urgent is it? < can wait < this week < today     a level, the lowest first
An empty question asks for another text, an empty text ends.
"""

Ask = Callable[[str, dict[str, Question]], Awaitable[None]]


def parse(line: str) -> dict[str, Question]:
    """A question as it is typed."""
    for sign, kind in (("|", "choice"), ("<", "score")):
        if sign in line:
            words = [word.strip() for word in line.split(sign)]
            if not all(words):
                raise InputError(f"something is missing between two {sign}")
            return from_words([(kind, words)])
    return from_words([("noul", [line.strip()])])


def read_text(read: Callable[[str], str]) -> str:
    """Lines up to an empty one."""
    lines = [read("text> ")]
    while lines[-1].strip():
        lines.append(read("    > "))
    return "\n".join(lines).strip()


async def converse(ask: Ask, read: Callable[[str], str] = input) -> None:
    """Until the end of the input, or an empty text."""
    print(_HELP)
    try:
        while text := read_text(read):
            while line := read("question> ").strip():
                try:
                    await ask(text, parse(line))
                except InputError as error:
                    print(f"{error}\n")
    except EOFError:
        print()
