"""`decided run`: a table in, the same table with answers out. Rows are asked side by side and written in order.

Of the rows that were taken from the input, at most `concurrency` are not yet written, whatever the order in which their
answers come: that bounds the memory. How many of them are asked at a time follows the answers (`paced.py`), so that a
run that is killed has asked for about a second in vain.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from decided import questions
from decided.backend import Backend, check_options, open_backend
from decided.contract.types import encode
from decided.errors import InputError
from decided.paced import Paced
from decided.progress import Progress
from decided.settings import Settings
from decided.tables import excel, parquet
from decided.tables.columns import EMPTY, Columns
from decided.tables.dialect import DELIMITERS, LATIN
from decided.tables.resumable import Spool, check_that_it_is_free, write_whole
from decided.tables.summary import Summary
from decided.tables.tables import (
    BINARY,
    Row,
    RowText,
    Table,
    format_of,
    is_empty,
    missing_column,
    state_of,
    usual_column,
)
from decided.together import together

Finished = tuple[Row, dict[str, Any]]
Sink = Callable[[list[Finished]], None]
Settle = Callable[[int, dict[str, Any]], None]
Settled = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the command was told."""

    source: str
    """A path, or `-` for standard input."""
    questions: Path
    out: Path | None = None
    """Without one, rows go to standard output."""
    input_format: str | None = None
    state_columns: tuple[str, ...] = ()
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    empty: str = "skip"
    """What becomes of a row without a text: `skip` it, or `ask` all the same."""
    probabilities: bool = True
    min_confidence: float = 0.0
    concurrency: int | None = None
    server: str | None = None
    api_key: str | None = None
    ray: str | None = None
    ray_workers: int | None = None


async def run(settings: Settings, task: Task) -> None:
    """Ask about every row. Raises StartError when that is not possible; what was done until then is kept."""
    table = Table(
        task.source,
        task.input_format or ("jsonl" if task.source == "-" else format_of(task.source, "INPUT")),
        task.encoding,
        task.delimiter,
        task.sheet,
    )
    asked = Columns(questions.read_file(task.questions), task.probabilities, task.min_confidence)
    kind = "jsonl" if task.out is None else format_of(str(task.out), "--out")
    _check(task, table, asked, kind)
    backend = await _open(settings, task)
    try:
        check_options(backend, asked.questions)
        if task.out is None:
            await _to_standard_output(task, table, asked, backend)
        else:
            await _to_file(task, task.out, kind, table, asked, backend, str(settings.temperature))
    finally:
        await backend.close()


async def _open(settings: Settings, task: Task) -> Backend:
    if task.ray is None:
        return await open_backend(settings, task.server, task.api_key)
    from decided.tables.ray import open_on_cluster

    return await open_on_cluster(settings, task.server, task.api_key, task.ray, task.ray_workers)


def _check(task: Task, table: Table, asked: Columns, kind: str) -> None:
    """What can be known to fail later fails now."""
    if kind == "parquet":
        parquet.check_that_it_can_be_used(f"--out {task.out}")
    if kind == "xlsx":
        excel.check_that_it_can_be_used(f"--out {task.out}")
        excel.check_that_it_fits(table.count() or 0, len(asked.types))
    if table.kind == "xlsx" and task.sheet is None and len(names := excel.sheets(Path(table.source))) > 1:
        print(f"{table.source}: reading the sheet {names[0]!r} of {len(names)}; --sheet names another", file=sys.stderr)
    if task.out is not None and not task.out.parent.is_dir():
        raise InputError(f"--out {task.out}: the directory does not exist")
    if task.out is not None:
        check_that_it_is_free(task.out)
    columns = table.head()
    if not columns:
        if table.first() is None:  # an export that failed looks like this
            print(f"{table.source if table.is_file else 'standard input'} is empty", file=sys.stderr)
        return
    if table.kind in DELIMITERS and task.encoding is None and table.dialect().encoding == LATIN:
        print(f"{table.source} is not UTF-8: read as Windows-1252; --encoding says otherwise", file=sys.stderr)
    if not task.state_columns and usual_column(columns) is None and len(columns) > 1 and sys.stderr.isatty():
        print("asking about whole rows, all columns together; --state-column names the text", file=sys.stderr)
    for name in asked.types:
        if name in columns:
            raise InputError(f"the input has a column {name!r} already: give the question, or the column, another name")
    for name in task.state_columns:
        if name not in columns and task.delimiter is not None and len(columns) == 1 and table.kind in DELIMITERS:
            said = f"the first line has no {task.delimiter!r}: is --delimiter right? It is {columns[0]!r}"
            raise InputError(f"--state-column {name}: {said}")
        if name not in columns:
            raise InputError(f"--state-column {name}: {missing_column(name, columns)}")


async def _to_standard_output(task: Task, table: Table, asked: Columns, backend: Backend) -> None:
    words = RowText("jsonl", [])

    def sink(finished: list[Finished]) -> None:
        lines = b"".join(words.row({**row.values, **added}) for row, added in finished)
        try:
            write_whole(sys.stdout.buffer, lines)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(f"standard output cannot be written: {error.strerror or error}") from None

    await _through(task, table.rows(), asked, backend, sink, _progress(table, 0), Summary(asked))


async def _to_file(
    task: Task, out: Path, kind: str, table: Table, asked: Columns, backend: Backend, temperature: str
) -> None:
    added = asked.types
    written = "jsonl" if kind in BINARY else kind
    names = [*table.columns(), *added] if written != "jsonl" else []
    words = RowText(written, names, table.dialect().delimiter)
    identity = {
        "questions": encode(asked.questions).decode(),
        "model": backend.model,
        "temperature": temperature,
        "state columns": ", ".join(task.state_columns),
        "columns": words.head().decode(),
        "answers": f"{' '.join(added)}, empty: {task.empty}, confidence from {task.min_confidence:g}",
    }
    spool = Spool(out, identity, words)
    rows = table.rows()
    try:
        spool.skip(rows)
        if spool.rows:
            print(f"resuming after {spool.rows:,} rows", file=sys.stderr)
        progress = _progress(table, spool.rows)
        await _through(task, rows, asked, backend, spool.add, progress, Summary(asked))
        if kind in BINARY:
            _make(out, kind, table, added, spool)
        else:
            spool.finish()
    except BaseException as error:
        spool.close()
        if not isinstance(error, InputError) and spool.rows:
            print(f"\n{spool.rows:,} rows saved: run the same command to resume", file=sys.stderr)
        raise


def _make(out: Path, kind: str, table: Table, added: dict[str, type], spool: Spool) -> None:
    """The table that a library writes, of the rows that are all there."""
    spool.commit()
    made = out.with_name(out.name + ".making")
    try:
        with spool.writing():
            if kind == "parquet":
                same = Path(table.source) if table.kind == "parquet" else None
                parquet.write(made, lambda: _read_back(spool.part), same, table.head(), added)
            else:
                excel.write(made, lambda: _read_back(spool.part), table.head(), added)
        spool.finish(made)
    finally:
        with suppress(OSError):
            made.unlink()


def _read_back(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def _progress(table: Table, done: int) -> Progress:
    total = table.count() if sys.stderr.isatty() else None
    return Progress(total, "rows", sys.stderr, time.monotonic, done)


async def _through(
    task: Task,
    rows: Iterator[Row],
    asked: Columns,
    backend: Backend,
    sink: Sink,
    progress: Progress,
    summary: Summary,
) -> None:
    began = time.monotonic()

    def settled(added: dict[str, Any]) -> None:
        summary.add(added)
        progress.advance()

    try:
        await _ask_rows(task, rows, asked, backend, sink, settled)
    finally:
        progress.close()
    lines = summary.lines(time.monotonic() - began)
    if sys.stderr.isatty():
        print("\n".join(lines), file=sys.stderr)
    elif summary.failed:
        print(next(lines), file=sys.stderr)


async def _ask_rows(
    task: Task, rows: Iterator[Row], asked: Columns, backend: Backend, sink: Sink, settled: Settled
) -> None:
    """Ask about every row. The sink gets them in order; `settled` hears of each as soon as it is answered."""
    paced = Paced(backend, task.concurrency)
    window = _Window(rows, sink, paced.most, settled)
    async with together() as group:
        while chunk := await window.take(paced.per_request):
            group.create_task(_ask(task, asked, paced, chunk, window.settle))


async def _ask(task: Task, asked: Columns, paced: Paced, chunk: list[tuple[int, Row]], settle: Settle) -> None:
    """Ask about some rows, each with its number; settle each as soon as it is answered."""
    numbers, states = [], []
    for number, row in chunk:
        try:
            if row.problem:
                raise ValueError(row.problem)
            state = state_of(row, task.state_columns)
            if task.empty == "skip" and is_empty(state):
                raise ValueError(EMPTY)
            states.append(state)
            numbers.append(number)
        except KeyError as missing:
            settle(number, asked.failed(f"the column {missing} is missing"))
        except ValueError as problem:
            settle(number, asked.failed(str(problem)))
    async with aclosing(paced.batch(states, asked.questions)) as results:
        async for result in results:
            settle(numbers[result.index], asked.values(result))


class _Window:
    """The rows between input and output."""

    def __init__(self, rows: Iterator[Row], sink: Sink, size: int, settled: Settled) -> None:
        self._rows = enumerate(rows)
        self._sink = sink
        self._room = size
        self._settled = settled
        self._written = 0
        self._open: dict[int, Row] = {}
        self._done: dict[int, dict[str, Any]] = {}
        self._freed = asyncio.Event()

    async def take(self, number: int) -> list[tuple[int, Row]]:
        """The next rows, as soon as there is room for some; none at the end of the input."""
        await asyncio.sleep(0)  # what was taken before is asked before more is read
        while not self._room:
            self._freed.clear()
            await self._freed.wait()
        chunk = list(islice(self._rows, min(number, self._room)))
        self._room -= len(chunk)
        self._open |= dict(chunk)
        return chunk

    def settle(self, number: int, added: dict[str, Any]) -> None:
        """A row is finished. It is written when all before it are."""
        self._done[number] = added
        self._settled(added)
        ready = []
        while self._written in self._done:
            ready.append((self._open.pop(self._written), self._done.pop(self._written)))
            self._written += 1
        if ready:
            self._sink(ready)
            self._room += len(ready)
            self._freed.set()
