"""The parts of a state that can be left out to see what an answer rests on: sentences of a text, fields of a record.

Pure, and linear in the length of the state, whatever it is made of.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from decided.contract.types import compact

MOST_PARTS = 15
"""Of one state. Asked once as it is and once without each of these, it costs at most sixteen times as much."""

_AFTER_SENTENCE = re.compile(r"(?<=[.!?…])[\"')\]»\u201d\u2019]*\s+|(?<=[。\uff01\uff1f])|\n+")
_AFTER_WORD = re.compile(r"\s+")

Key = str | int


class Span(NamedTuple):
    """Characters of a text, and where it goes on without them."""

    start: int
    end: int
    following: int

    def without(self, text: str) -> str:
        return text[: self.start] + text[self.following :]


class Field(NamedTuple):
    """A value inside a record, by the keys and indices that lead to it."""

    path: tuple[Key, ...]

    @property
    def pointer(self) -> str:
        """RFC 6901."""
        return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in self.path)

    def without(self, record: Any) -> str:
        rest = inside = record.copy()
        for key in self.path[:-1]:  # only what is on the way is copied
            inside[key] = inside = inside[key].copy()
        del inside[self.path[-1]]
        return compact(rest)


Part = Span | Field


def parts_of(state: Any) -> list[Span] | list[Field]:
    """What can be left out of a state as it was sent: nothing of a number, `true`, `false` or null."""
    return _spans(state) if isinstance(state, str) else _fields(state)


def _spans(text: str) -> list[Span]:
    """Sentences, or the words of a single one. More than can be asked about go together with their neighbours."""
    found: list[Span] = []
    for separator in (_AFTER_SENTENCE, _AFTER_WORD):
        ends = (end.end() for end in separator.finditer(text))
        found = list(islice(_pieces(text, ends), MOST_PARTS + 1))
        if len(found) > MOST_PARTS:
            return list(_pieces(text, _even_cuts(text, separator)))
        if len(found) != 1:
            break
    return found


def _even_cuts(text: str, separator: re.Pattern[str]) -> list[int]:
    """Where separators end, one for each equal part of the text: without a look at all that are in it."""
    begins = (len(text) * part // MOST_PARTS for part in range(1, MOST_PARTS))
    return sorted({found.end() for begin in begins if (found := separator.search(text, begin))})


def _pieces(text: str, cuts: Iterable[int]) -> Iterator[Span]:
    for start, following in pairwise(chain([0], cuts, [len(text)])):
        piece = text[start:following]
        if words := piece.strip():
            start += piece.index(words[0])
            yield Span(start, start + len(words), following)


def _fields(record: Any) -> list[Field]:
    """As deep as they can all be asked about. Of a record with too many of them, the longest."""
    waiting = deque(_inside((), record))
    if len(waiting) > MOST_PARTS:
        waiting = deque(nlargest(MOST_PARTS, waiting, key=lambda field: len(compact(field[1]))))
    found: list[Field] = []
    while waiting:
        path, value = waiting.popleft()
        inside = _inside(path, value)
        if inside and len(found) + len(waiting) + len(inside) <= MOST_PARTS:
            waiting.extend(inside)
        else:
            found.append(Field(path))
    return found


def _inside(path: tuple[Key, ...], value: Any) -> list[tuple[tuple[Key, ...], Any]]:
    if isinstance(value, dict):
        return [((*path, key), inner) for key, inner in value.items()]
    return [((*path, index), inner) for index, inner in enumerate(value)] if isinstance(value, list) else []
