"""Excel tables, by openpyxl, which is the extra `excel`: one sheet, read and written a row at a time."""

import datetime
import importlib.util
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from decided.contract.types import compact
from decided.errors import InputError
from decided.extras import install_command

_MOST_ROWS, _MOST_COLUMNS = 2**20 - 1, 2**14  # what a sheet can hold, below its header
_MOST_CHARACTERS = 32_767
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SHEET = "answers"


def check_that_it_can_be_used(what: str) -> None:
    """Before the long work rather than after it."""
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(f"{what} needs openpyxl: {install_command('excel')}")


def sheets(path: Path) -> list[str]:
    with closing(_opened(path)) as book:
        return list(book.sheetnames)


def columns(path: Path, sheet: str | None) -> list[str]:
    with closing(_opened(path)) as book:
        _, cells = next(_filled(book, path, sheet), (0, ()))
        return _header(cells) if cells else []


def rows(path: Path, sheet: str | None) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Number, values and problem of each row below the header."""
    with closing(_opened(path)) as book:
        header: list[str] | None = None
        for number, cells in _filled(book, path, sheet):
            if header is None:
                header = _header(cells)
                continue
            values = dict.fromkeys(header) | dict(zip(header, map(_value, cells), strict=False))
            beyond = [_value(cell) for cell in cells[len(header) :] if cell is not None]
            problem = f"row {number}: cells beyond the last named column: {compact(beyond)}" if beyond else ""
            yield number, values, problem


def _filled(book: Any, path: Path, sheet: str | None) -> Iterator[tuple[int, Sequence[Any]]]:
    """The rows of the sheet that have any value, each with its number."""
    if sheet is not None and sheet not in book.sheetnames:
        raise InputError(f"--sheet {sheet}: {path} has the sheets {', '.join(map(repr, book.sheetnames))}")
    table = book[sheet] if sheet is not None else book.worksheets[0]
    table.reset_dimensions()  # what a file says of its own size is often wrong
    for number, cells in enumerate(table.iter_rows(values_only=True), start=1):
        if any(cell is not None for cell in cells):
            yield number, cells


def check_that_it_fits(rows: int, columns: int) -> None:
    if rows > _MOST_ROWS or columns > _MOST_COLUMNS:
        most = f"{_MOST_ROWS:,} rows and {_MOST_COLUMNS:,} columns"
        raise InputError(f"an Excel sheet holds at most {most}: write .csv or .parquet")


def write(
    out: Path, finished: Callable[[], Iterable[dict[str, Any]]], head: Sequence[str], added: Collection[str]
) -> None:
    """A workbook of one sheet: the columns of `head` and those that came with the rows, then those that were added.
    What begins with = stays a text and becomes no formula."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.writer.excel import ExcelWriter

    before = dict.fromkeys(head) | dict.fromkeys(name for row in finished() for name in row if name not in added)
    columns = [*before, *added]
    book = Workbook(write_only=True)
    sheet = book.create_sheet(_SHEET)
    sheet.freeze_panes = "A2"

    def cell(value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        made = WriteOnlyCell(sheet, _UNPRINTABLE.sub("\ufffd", compact(value))[:_MOST_CHARACTERS])
        made.data_type = "s"
        return made

    try:
        sheet.append([cell(name) for name in columns])
        for number, row in enumerate(finished(), start=1):
            check_that_it_fits(number, len(columns))
            sheet.append([cell(row.get(name)) for name in columns])
        with ZipFile(out, "w", ZIP_DEFLATED) as archive:
            ExcelWriter(book, archive).save()
    except OSError:
        for left_open in (sheet._rows, sheet._writer):  # or they fail again when they are deleted, with a traceback
            with suppress(Exception):
                left_open.close()
        raise


def _opened(path: Path) -> Any:
    check_that_it_can_be_used(str(path))
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        return load_workbook(path, read_only=True, data_only=True)
    except (BadZipFile, InvalidFileException, KeyError, ValueError) as error:
        raise InputError(f"{path} is not an Excel workbook (.xlsx): {error}") from None


def _header(cells: Sequence[Any]) -> list[str]:
    """The names of the columns. One without a name in between is called by its letter."""
    from openpyxl.utils import get_column_letter

    last = max(place for place, cell in enumerate(cells) if cell is not None)
    named = enumerate(cells[: last + 1], start=1)
    names = [get_column_letter(place) if cell is None else compact(_value(cell)).strip() for place, cell in named]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the first row has a duplicate column: {name!r}")
    return names


def _value(cell: Any) -> Any:
    """A value that JSON knows: dates and times as they are written in it."""
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, datetime.timedelta) else cell
