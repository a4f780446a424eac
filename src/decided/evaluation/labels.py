"""Labels to learn from: a table with a text and a column per question, or lines of labelled questions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from decided.contract.decoding import quote, read_state
from decided.contract.types import MAX_OPTIONS, Choice, Noul, Question, compact
from decided.errors import InputError, Invalid
from decided.evaluation import labelled
from decided.evaluation.labelled import BadLine
from decided.profiles.fingerprint import canonical_keys, fingerprint
from decided.tables.tables import Row, Table, format_of, missing_column, usual_column

_YES, _NO = frozenset({"true", "yes", "y", "1", "1.0"}), frozenset({"false", "no", "n", "0", "0.0"})
"""With a point is how tables write whole numbers beside empty cells."""


@dataclass(slots=True)
class LabelledQuestion:
    """A question and the labels there are: for each, the row, the text and the right option in canonical order."""

    name: str
    question: Question
    rows: list[int] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    """Rows with a label and without a text."""
    repeated: int = 0
    contradicted: int = 0

    @property
    def options(self) -> Sequence[str]:
        return canonical_keys(self.question)

    def add(self, row: int, state: str, right: int) -> None:
        if state.strip():
            self.rows.append(row)
            self.states.append(state)
            self.right.append(right)
        else:
            self.empty.append(row)

    def tidy(self) -> None:
        """The same text with the same label counts once; a text with several labels keeps them, and is told."""
        seen = Counter(zip(self.states, self.right, strict=True))
        first = {pair: place for place, pair in reversed(list(enumerate(zip(self.states, self.right, strict=True))))}
        keep = sorted(first.values())
        self.repeated = seen.total() - len(keep)
        self.contradicted = sum(count > 1 for count in Counter(state for state, _ in seen).values())
        self.rows = [self.rows[place] for place in keep]
        self.states = [self.states[place] for place in keep]
        self.right = [self.right[place] for place in keep]


class Source(NamedTuple):
    """The model that the labels are held against, and the digest of its weights if there is one."""

    model: str
    weights: str = ""


@dataclass(slots=True)
class LabelEvidence:
    """A labelled question with what the model said: weights in the options' canonical order, features if it gives any.
    A row that was not answered is None."""

    labels: LabelledQuestion
    weights: list[list[float] | None] = field(default_factory=list)
    features: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Labels:
    """All labels of a source, by question, and why some of its rows could not be used."""

    questions: list[LabelledQuestion]
    rows: int = 0
    problems: list[str] = field(default_factory=list)


def read_labels(
    source: str,
    kind: str | None,
    asked: Mapping[str, Question] | None,
    columns: Sequence[str],
    limit: int | None,
    keep_repeated: bool = False,
) -> Labels:
    """With questions, a table of a column for each; without, lines of labelled questions. To learn from, the same text
    with the same label counts once; to judge by, as often as it comes."""
    chosen = kind or ("jsonl" if source == "-" else format_of(source, "LABELS"))
    found = _from_lines(source, limit) if asked is None else _from_table(Table(source, chosen), asked, columns, limit)
    for one in () if keep_repeated else found.questions:
        one.tidy()
    if not found.rows:
        raise InputError(f"{labelled.named(source)} is empty")
    return found


def _from_lines(source: str, limit: int | None) -> Labels:
    by_fingerprint: dict[str, LabelledQuestion] = {}
    found = Labels([])
    for line in labelled.lines(labelled.content(source), limit):
        found.rows += 1
        try:
            row = labelled.read_row(line, MAX_OPTIONS)
        except BadLine as error:
            found.problems.append(str(error))
            continue
        for name, question, right in zip(row.names, row.questions, row.right, strict=True):
            one = by_fingerprint.setdefault(fingerprint(question), LabelledQuestion(name, question))
            one.add(row.line, row.state, one.options.index(question.keys()[right]))
    found.questions = list(by_fingerprint.values())
    return found


def _from_table(table: Table, asked: Mapping[str, Question], columns: Sequence[str], limit: int | None) -> Labels:
    found = Labels([LabelledQuestion(name, question) for name, question in asked.items()])
    text = _text_columns(table, asked, columns)
    for number, row in _numbered(table, limit):
        found.rows += 1
        if row.problem:
            found.problems.append(row.problem)
            continue
        try:
            values = [row.values[column] for column in text]
            state = read_state(values[0] if len(text) == 1 else dict(zip(text, values, strict=True)))
            cells = ((one, row.values.get(one.name)) for one in found.questions)
            labels = [(one, _right(one, cell)) for one, cell in cells if cell is not None and cell != ""]
            for one, right in labels:  # all of them, or, if one of them is none, none
                one.add(number, state, right)
        except KeyError as error:
            found.problems.append(f"row {number}: no column {error}")
        except Invalid as error:
            found.problems.append(f"row {number}: {error}")
    return found


def _numbered(table: Table, limit: int | None) -> Iterator[tuple[int, Row]]:
    for number, row in enumerate(table.rows(), start=1):
        if limit is not None and number > limit:
            return
        yield number, row


def _text_columns(table: Table, asked: Mapping[str, Question], columns: Sequence[str]) -> Sequence[str]:
    """The columns named; else `state` or `text`; else the one column that is no question."""
    first = table.first()
    there = list(first.values) if first is not None else []
    if missing := [name for name in asked if there and name not in there and table.kind != "jsonl"]:
        said = missing_column(missing[0], there, "the labels have")
        raise InputError(f"{said}. Each question needs a column of its name")
    if columns:
        return columns
    if usual := usual_column(there):
        return [usual]
    others = [name for name in there if name not in asked]
    if len(others) == 1 or not there:
        return others or ["state"]
    raise InputError(f"which column is the text? Name it with --state-column: {', '.join(others) or 'there is none'}")


def _right(one: LabelledQuestion, cell: Any) -> int:
    """Which option a cell names, however it is written."""
    question, said = one.question, compact(cell).strip()
    if isinstance(question, Noul):
        if said.lower() in _YES | _NO:
            return 0 if said.lower() in _YES else 1
        raise Invalid(f"question {quote(one.name)}: {quote(said)} is neither yes nor no")
    keys = names = list(one.options)
    if said in keys:
        return keys.index(said)
    if not isinstance(question, Choice):
        names = [compact(label) for label in question.criteria]
        if said in names:
            return names.index(said)
        if said.removesuffix(".0") in keys:  # as above
            return keys.index(said.removesuffix(".0"))
    raise Invalid(f"question {quote(one.name)}: {quote(said)} is not one of the options{_meant(said, names)}")


def _meant(said: str, names: Sequence[str]) -> str:
    """A hint at the name that is nearly what was said."""
    known = {name.casefold(): name for name in names}
    near = get_close_matches(said.casefold(), known, 1)
    return f"; did you mean {quote(known[near[0]])}?" if near else ""


def profile_path(folder: Path, name: str, mark: str) -> Path:
    """Where the profile of a question goes: teaching it again replaces the file, under whatever name."""
    if before := sorted(folder.glob(f"*-{mark[:6]}.json")):
        return before[0]
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name).strip("-")[:40]
    return folder / f"{plain or 'question'}-{mark[:6]}.json"
