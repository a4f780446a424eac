"""Answers that wait for their outcome, and the file of those that have one.

What a server said is remembered for a while: the model's weights and features, and texts only if the operator wants
them. When the truth comes, both are written as a line, from which `decided teach --outcomes` learns.
"""

import asyncio
import os
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from decided.contract.decoding import option_number, quote
from decided.contract.types import OutcomesReceipt, OutcomesRequest, Question, encode
from decided.engines.api import ModelCard, Verdict
from decided.errors import InputError, Invalid, Unavailable, UnknownRequest
from decided.profiles.floats import pack

MOST_REMEMBERED_BYTES = 64 * 2**20
MOST_FILE_BYTES = 64 * 2**20
"""The file is then put aside as FILE.1, in place of the one before."""
_ENTRY_BYTES = 2000
_WORDS = 3
"""Bytes in memory for a byte of a question on the wire, or more."""


class OutcomeLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One outcome: the question, what the model itself said, and the option that turned out to be right."""

    time: float
    request_id: str
    name: str
    question: Question
    weights: Sequence[float]
    """In the order of the question's options, as is `right`."""
    right: int
    model: str
    digest: str = ""
    """Of the model's weights."""
    features: str = ""
    """float32, little endian, in base64."""
    index: int = 0
    state: str = ""
    client: str = ""
    """Who asked, and told: request ids are chosen by clients, and two may choose the same."""


class Settled(NamedTuple):
    """An outcome that was new: for the metrics."""

    question: Question
    weights: Sequence[float]
    features: Any
    right: int


class _Remembered(NamedTuple):
    questions: Mapping[str, Question]
    verdict: Verdict
    state: str
    outcomes: dict[str, int]
    """By question, those that are written already."""
    size: int


class _Shelf:
    """What one client's requests were answered, by request id and index, the oldest first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[tuple[str, int], _Remembered] = OrderedDict()
        self.size = 0

    def put(self, key: tuple[str, int], entry: _Remembered) -> int:
        """How many more bytes are in use with it."""
        known = self.entries.pop(key, None)
        self.entries[key] = entry
        more = entry.size - (known.size if known else 0)
        self.size += more
        return more

    def drop_oldest(self) -> int:
        _, entry = self.entries.popitem(last=False)
        self.size -= entry.size
        return entry.size


class Ledger:
    """Remembers answers by client and request id, and writes down outcomes. When there is no room, whoever has most of
    it makes some, so that a busy client cannot have the answers of others forgotten."""

    def __init__(self, path: Path, card: ModelCard, keep_texts: bool) -> None:
        self.keep_texts = keep_texts
        self._path = path
        self._card = card
        self._shelves: dict[str, _Shelf] = defaultdict(_Shelf)
        self._bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._asked_last: tuple[Mapping[str, Question], int] = ({}, 0)  # the states of a batch share their questions
        try:
            _append(path, b"")
        except OSError as error:
            raise InputError(f"--outcomes {path} cannot be written: {error.strerror or error}") from None

    def remember(
        self, client: str, request_id: str, index: int, questions: Mapping[str, Question], verdict: Verdict, state: str
    ) -> None:
        kept = state if self.keep_texts else ""
        size = _ENTRY_BYTES + self._size_of(questions) + _size_of_verdict(verdict) + len(kept)
        entry = _Remembered(questions, verdict, kept, {}, size)
        self._bytes += self._shelves[client].put((request_id, index), entry)
        while self._bytes > MOST_REMEMBERED_BYTES:
            self._bytes -= max(self._shelves.values(), key=lambda shelf: shelf.size).drop_oldest()

    def _size_of(self, questions: Mapping[str, Question]) -> int:
        if questions is not self._asked_last[0]:
            self._asked_last = questions, _WORDS * len(encode(questions))
        return self._asked_last[1]

    async def record(self, client: str, told: OutcomesRequest) -> tuple[OutcomesReceipt, list[Settled]]:
        """Write down what is new. All of it is, or none: a name or an answer that is wrong is refused before.

        One write at a time, which ends even if its client leaves: a disk that hangs holds up one thread, and nobody but
        those who tell outcomes.
        """
        while self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing])
        shelf = self._shelves.get(client)
        entry = shelf.entries.get((told.request_id, told.index)) if shelf else None
        if entry is None:
            raise UnknownRequest(told.request_id)
        names = list(entry.questions)
        fresh: dict[str, int] = {}
        for name, answer in told.outcomes.items():
            if name not in entry.questions:
                raise Invalid(f"question {quote(name)}: the request with this id did not ask it")
            right = option_number(name, entry.questions[name], answer)
            if entry.outcomes.get(name) != right:
                fresh[name] = right
        lines = b"".join(
            encode(self._line(client, told, entry, name, names.index(name), right)) + b"\n"
            for name, right in fresh.items()
        )
        if lines:
            self._writing = asyncio.ensure_future(self._write(lines, entry, fresh))
            await asyncio.shield(self._writing)
        settled = [
            Settled(entry.questions[name], entry.verdict.weights[names.index(name)], entry.verdict.features, right)
            for name, right in fresh.items()
        ]
        return OutcomesReceipt(len(fresh), len(told.outcomes) - len(fresh)), settled

    def _line(
        self, client: str, told: OutcomesRequest, entry: _Remembered, name: str, place: int, right: int
    ) -> OutcomeLine:
        return OutcomeLine(
            round(time.time(), 3),
            told.request_id,
            name,
            entry.questions[name],
            [float(weight) for weight in entry.verdict.weights[place]],
            right,
            self._card.name,
            self._card.weights,
            "" if entry.verdict.features is None else pack(entry.verdict.features),
            told.index,
            entry.state,
            client,
        )

    async def _write(self, lines: bytes, entry: _Remembered, fresh: dict[str, int]) -> None:
        await asyncio.to_thread(self._append, lines)
        entry.outcomes.update(fresh)

    def _append(self, lines: bytes) -> None:
        try:
            if self._path.exists() and self._path.stat().st_size + len(lines) > MOST_FILE_BYTES:
                self._path.replace(older(self._path))
            _append(self._path, lines)
        except OSError as error:
            raise Unavailable(f"the outcomes cannot be written: {error.strerror or error}") from None


def _append(path: Path, lines: bytes) -> None:
    """All of them or, with OSError, none: half a line would spoil the next one. The file may hold texts, so it is for
    its owner's eyes alone."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size, left = os.fstat(file).st_size, memoryview(lines)
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _size_of_verdict(verdict: Verdict) -> int:
    features = 0 if verdict.features is None else len(verdict.features)
    return 32 * sum(map(len, verdict.weights)) + 8 * features


def older(path: Path) -> Path:
    """Where outcomes are put aside when the file is full."""
    return path.with_name(path.name + ".1")
