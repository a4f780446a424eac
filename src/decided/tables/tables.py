"""Tables of any length, a row at a time: CSV, lines of JSON, Parquet and Excel, from a file or standard input."""

import csv
import io
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from decided.contract.decoding import read_object
from decided.contract.types import compact
from decided.errors import InputError, Unreadable
from decided.tables import excel, parquet
from decided.tables.dialect import DELIMITERS, SAMPLE_BYTES, Dialect, sniff

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
BINARY = {"parquet": "Parquet", "xlsx": "Excel"}
"""Formats that are read by a library, and written when all rows are there."""


class Row(NamedTuple):
    """A row, and why it cannot be used, if it cannot."""

    values: dict[str, Any]
    problem: str = ""


def format_of(path: str, flag: str) -> str:
    """The format that a file's name tells."""
    found = FORMATS.get(Path(path).suffix.lower())
    if found is None:
        raise InputError(f"{flag} {path}: the name must end in one of {', '.join(FORMATS)}")
    return found


class Table:
    """A table to be read from its first row: a file as often as one likes, standard input once."""

    def __init__(
        self,
        source: str,
        kind: str,
        encoding: str | None = None,
        delimiter: str | None = None,
        sheet: str | None = None,
    ) -> None:
        self.source = source
        self.kind = kind
        self._asked = (encoding, delimiter)
        self._sheet = sheet
        self._dialect: Dialect | None = None
        self._header: list[str] = []
        self.is_file = source != "-"
        if kind in BINARY and not self.is_file:
            raise InputError(f"{BINARY[kind]} cannot be read from standard input: name a file")
        if self.is_file and not Path(source).is_file():
            pipe = f"a pipe can be read only once; give it as standard input: - < {source}"
            raise InputError(f"{source} cannot be read: {pipe if Path(source).is_fifo() else 'there is no such file'}")
        self._coming: Iterator[Row] | None = None

    def rows(self) -> Iterator[Row]:
        if self._coming is not None:
            return self._coming
        return self._read()

    def first(self) -> Row | None:
        """The first row, which `rows` will give all the same."""
        if self.is_file:
            with closing(self._read()) as opened:
                return next(opened, None)
        rows = self.rows()
        found = next(rows, None)
        self._coming = rows if found is None else chain([found], rows)
        return found

    def dialect(self) -> Dialect:
        """How a CSV file is written; for other kinds, how one would be."""
        if self.kind in DELIMITERS and self._dialect is None:
            self.first()
        return self._dialect or Dialect("utf-8", DELIMITERS["csv"])

    def head(self) -> list[str]:
        """The columns that the table begins with: those of its header, which needs no rows below it, or those of the
        first line of JSON. There are none if that is missing or cannot be read."""
        if self.kind == "parquet":
            return parquet.columns(Path(self.source))
        if self.kind == "xlsx":
            return excel.columns(Path(self.source), self._sheet)
        first = self.first()
        if self.kind in DELIMITERS:
            return self._header
        return list(first.values) if first is not None and not first.problem else []

    def columns(self) -> list[str]:
        """All columns that any row has, as far as that can be told beforehand. A file of JSON is read through."""
        if self.kind != "jsonl":
            return self.head()
        first = self.first()
        rows = self.rows() if self.is_file else [first] if first is not None else []
        return list(dict.fromkeys(name for row in rows for name in row.values))

    def count(self) -> int | None:
        """How many rows there are, if that can be told without taking them."""
        if not self.is_file:
            return None
        return parquet.count(Path(self.source)) if self.kind == "parquet" else sum(1 for _ in self.rows())

    def _read(self) -> Generator[Row, None, None]:
        try:
            if self.kind == "parquet":
                yield from (Row(values) for values in parquet.rows(Path(self.source)))
                return
            if self.kind == "xlsx":
                found = excel.rows(Path(self.source), self._sheet)
                yield from (Row(values, problem) for _, values, problem in found)
                return
            with Path(self.source).open("rb", SAMPLE_BYTES) if self.is_file else sys.stdin.buffer as stream:
                if self.kind == "jsonl":
                    yield from _json_rows(stream)
                else:
                    self._dialect = sniff(_peek(stream), self.kind, *self._asked)
                    yield from self._csv_rows(stream, self._dialect)
        except OSError as error:
            raise InputError(f"{self.source} cannot be read: {error.strerror or error}") from None

    def _csv_rows(self, stream: BinaryIO, dialect: Dialect) -> Iterator[Row]:
        csv.field_size_limit(sys.maxsize)
        lenient = "surrogateescape" if dialect.encoding.startswith("utf-8") else "replace"
        with io.TextIOWrapper(stream, dialect.encoding, errors=lenient, newline="") as text:
            lines: list[str] = []  # of the row that is being read
            reader = csv.reader(_noted(text, lines), delimiter=dialect.delimiter, strict=True)
            try:
                self._header = header = list(map(_repaired, next(reader, [])))
                if len(set(header)) < len(header):
                    twice = next(name for name in header if header.count(name) > 1)
                    raise InputError(f"the first line has a duplicate column: {twice!r}")
                lines.clear()
                for cells in reader:
                    lines.clear()
                    if cells:
                        yield _csv_row(header, cells, reader.line_num)
            except csv.Error as error:
                name = self.source if self.is_file else "standard input"
                wrong = _wrong_quote(error, lines, reader.line_num, dialect.delimiter)
                raise InputError(f"{name} cannot be read: {wrong}") from None


def _json_rows(stream: BinaryIO) -> Iterator[Row]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            yield Row(read_object(line.strip(), f"line {number}"))
        except Unreadable as error:
            yield Row({"unreadable": line.strip().decode(errors="replace")}, str(error))


def _peek(stream: BinaryIO) -> bytes:
    """The beginning of the stream, which is still there to be read."""
    return stream.peek(SAMPLE_BYTES) if isinstance(stream, io.BufferedReader) else b""


def _noted(text: Iterable[str], lines: list[str]) -> Iterator[str]:
    for line in text:
        lines.append(line)
        yield line


def _wrong_quote(error: csv.Error, lines: list[str], last: int, delimiter: str) -> str:
    """Why the row of these lines, of which the last has that number, cannot be read."""
    if str(error) != "unexpected end of data":
        begin = last - len(lines) + 1
        return f"line {last}: {error} (the row begins in line {begin}); a quote within a cell must be written twice"
    *_, cell = next(csv.reader(lines, delimiter=delimiter))  # takes what is open as closed at the end
    within = len(list(io.StringIO(cell, newline="")))
    return f"the quote that opens a cell in line {last - max(1, within) + 1} is never closed"


def _csv_row(header: Sequence[str], cells: Sequence[str], line: int) -> Row:
    problem = ""
    if len(cells) != len(header):
        problem = f"line {line}: {len(cells)} cells in place of {len(header)}"
        if beyond := list(map(_repaired, cells[len(header) :])):
            problem += f"; without a column: {compact(beyond)}"
    elif not _is_text(cells):
        problem = f"line {line}: not valid UTF-8"
    return Row(dict(zip(header, map(_repaired, cells) if problem else cells, strict=False)), problem)


def _is_text(cells: Sequence[str]) -> bool:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True


def _repaired(cell: str) -> str:
    """The cell as a text that can be written, whatever bytes it was read from."""
    return cell.encode("utf-8", "surrogateescape").decode(errors="replace")


def missing_column(name: str, found: Iterable[str], where: str = "the input has") -> str:
    """What to say about a column that is not there."""
    names = list(found)
    near = get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where} no column {name!r}; {hint}it has {', '.join(map(repr, names))}"


def is_empty(state: Any) -> bool:
    """Whether there is nothing to ask about: no text, or a record without any."""
    if isinstance(state, dict):
        return all(map(is_empty, state.values()))
    return state is None or (isinstance(state, str) and not state.strip())


def usual_column(names: Collection[str]) -> str | None:
    """Where the text is, if nobody says so and a column is called like it."""
    return next((name for name in ("state", "text") if name in names), None)


def state_of(row: Row, columns: Sequence[str]) -> Any:
    """What is asked about: the columns named; else the column `state`, or `text`; else the whole row. KeyError names
    what is missing."""
    if not columns:
        usual = usual_column(row.values)
        return row.values if usual is None else row.values[usual]
    if len(columns) == 1:
        return row.values[columns[0]]
    return {column: row.values[column] for column in columns}


class RowText:
    """Rows in words: bytes of CSV or lines of JSON."""

    def __init__(self, kind: str, columns: Sequence[str], delimiter: str = ",") -> None:
        self.quoted = kind != "jsonl"
        """Whether an end of line may stand inside a value."""
        self._columns = columns
        self._delimiter = DELIMITERS["tsv"] if kind == "tsv" else delimiter

    def head(self) -> bytes:
        return self._line(self._columns) if self.quoted else b""

    def row(self, values: dict[str, Any]) -> bytes:
        if not self.quoted:
            return msgspec.json.encode(values) + b"\n"
        if strange := values.keys() - set(self._columns):
            raise InputError(f"a row has the column {min(strange)!r}, which the first row lacks: use .jsonl")
        return self._line([_cell(values.get(column)) for column in self._columns])

    def _line(self, cells: Sequence[str]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerow(cells)
        return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return compact(value)
