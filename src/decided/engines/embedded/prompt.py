"""How a state and a question become text and token blocks. No dependencies: training and serving share one rule.

A question is `[CLS] kind: instructions [SEP]` followed by one block per option, `[MASK] option text`. Every option
block starts at the same position, sees the state, the instructions, itself and the other options' markers, and nothing
else: the answer cannot depend on the order of the options. Levels of a score do have an order, so it is written out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

CLS, SEP, MARK = 101, 102, 103
WINDOW = 510  # state tokens in one window; with [CLS] and [SEP] the 512 positions the base was trained with
MAX_WINDOWS = 16
MAX_STATE_TOKENS = WINDOW * MAX_WINDOWS
INSTRUCTION_TOKENS = 320
OPTION_TOKENS = 160  # 1 + 320 + 1 + 1 + 160 positions still fit 512
QUESTION_TOKENS = 8192  # instructions and options together: 256 options of 30 tokens

KINDS = ("choice", "score", "noul")
_LEADS = {"choice": "choose", "score": "rate", "noul": "yes or no"}


class Rendered(NamedTuple):
    """The texts of one question: the instructions with their lead, and one text per option, in the caller's order."""

    instructions: str
    options: list[str]


def text_of(value: object) -> str:
    """Strings as they are, anything else as compact JSON with non-ASCII kept."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def words_of(name: str) -> str:
    """An identifier read as words: `sideEffects` and `side_effects` both become `side effects`."""
    out: list[str] = []
    for i, char in enumerate(name):
        if char == "_":
            out.append(" ")
        elif char.isupper() and i and name[i - 1].islower():
            out.append(" " + char.lower())
        else:
            out.append(char)
    return "".join(out)


def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


def _named(name: str, description: object) -> str:
    """One choice option. A description that only repeats the name is not said twice."""
    if description is None or description == "":
        return words_of(name)
    text = text_of(description)
    return text if _letters(text) == _letters(name) else f"{words_of(name)}: {text}"


def _listed(criteria: object) -> Sequence[object]:
    if not isinstance(criteria, Sequence):
        raise TypeError("criteria must be a list here")
    return criteria


def render(kind: str, instructions: object, criteria: object) -> Rendered:
    """The texts of one question. Noul options are always [no, yes], in that order."""
    lead = f"{_LEADS[kind]}: {'' if instructions is None else text_of(instructions)}"
    if kind == "choice":
        if isinstance(criteria, Mapping):
            return Rendered(lead, [_named(str(name), description) for name, description in criteria.items()])
        return Rendered(lead, [words_of(str(name)) for name in _listed(criteria)])
    if kind == "score":
        criteria = _listed(criteria)
        return Rendered(lead, [f"{i} of {len(criteria)}: {text_of(level)}" for i, level in enumerate(criteria, 1)])
    outcomes = criteria if isinstance(criteria, Mapping) else {}
    described = [(word, outcomes.get(key)) for word, key in (("no", "false"), ("yes", "true"))]
    return Rendered(lead, [f"{word}: {text_of(d)}" if d else word for word, d in described])


def windows(tokens: int) -> list[tuple[int, int]]:
    """(start, length) of the windows of a state. All about equally long: a tail of a few tokens would be read badly."""
    count = max(1, -(-tokens // WINDOW))
    edges = [tokens * i // count for i in range(count + 1)]
    return [(a, b - a) for a, b in pairwise(edges)]
