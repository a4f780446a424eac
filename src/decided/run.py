"""`decided run`: a table in, the same table with answers out. Rows are asked side by side and written in order.

Of the rows that were taken from the input, at most `concurrency` are not yet written, whatever the order in which their
answers come: that bounds the memory, and it bounds what a run that is killed has asked in vain.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from decided import columns, parquet, questions
from decided.contract import Question, encode
from decided.decider import Decider, check_options, opened
from decided.errors import InputError
from decided.progress import Progress
from decided.settings import Settings
from decided.spool import Spool
from decided.tables import Row, Table, Words, format_of, state_of

_ROWS_PER_REQUEST = 16

Finished = tuple[Row, dict[str, Any]]
Sink = Callable[[list[Finished]], None]
Settle = Callable[[int, dict[str, Any]], None]


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
    concurrency: int = 128
    server: str | None = None
    api_key: str | None = None
    ray: str | None = None
    ray_workers: int | None = None


async def run(settings: Settings, task: Task) -> None:
    """Ask about every row. Raises StartError when that is not possible; what was done until then is kept."""
    table = Table(
        task.source, task.input_format or ("jsonl" if task.source == "-" else format_of(task.source, "INPUT"))
    )
    asked = questions.read_file(task.questions)
    kind = "jsonl" if task.out is None else format_of(str(task.out), "--out")
    _check(task, table, asked, kind)
    decider = await opened(settings, task.server, task.api_key)
    try:
        check_options(decider, asked)
        if task.out is None:
            await _to_standard_output(task, table, asked, decider)
        else:
            await _to_file(task, task.out, kind, table, asked, decider, str(settings.temperature))
    finally:
        await decider.close()


def _check(task: Task, table: Table, asked: Mapping[str, Question], kind: str) -> None:
    """What can be known to fail later fails now."""
    if kind == "parquet":
        parquet.check_that_it_can_be_used(f"--out {task.out}")
    if task.out is not None and not task.out.parent.is_dir():
        raise InputError(f"--out {task.out}: the directory does not exist")
    first = table.first()
    if first is None:
        return
    for name in columns.added(asked):
        if name in first.values:
            raise InputError(f"the input has a column {name!r} already: give the question, or the column, another name")
    for name in task.state_columns:
        if name not in first.values and not first.problem:
            raise InputError(f"--state-column {name}: the input has no such column")


async def _to_standard_output(task: Task, table: Table, asked: dict[str, Question], decider: Decider) -> None:
    words = Words("jsonl", [])

    def sink(finished: list[Finished]) -> None:
        sys.stdout.buffer.write(b"".join(words.row({**row.values, **added}) for row, added in finished))
        sys.stdout.buffer.flush()

    await _through(task, table.rows(), asked, decider, sink, _progress(table, 0))


async def _to_file(
    task: Task, out: Path, kind: str, table: Table, asked: dict[str, Question], decider: Decider, temperature: str
) -> None:
    added = columns.added(asked)
    written = "jsonl" if kind == "parquet" else kind
    words = Words(written, [*table.columns(), *added] if written != "jsonl" else [])
    identity = {
        "questions": encode(asked).decode(),
        "model": decider.model,
        "temperature": temperature,
        "state columns": ", ".join(task.state_columns),
        "columns": words.head().decode(),
    }
    spool = Spool(out, identity, words)
    rows = table.rows()
    try:
        spool.skip(rows)
        if spool.rows:
            print(f"going on after {spool.rows:,} rows", file=sys.stderr)
        await _through(task, rows, asked, decider, spool.add, _progress(table, spool.rows))
    except BaseException as error:
        spool.close()
        if not isinstance(error, InputError) and spool.rows:
            print(f"\n{spool.rows:,} rows are kept: the same command goes on after them", file=sys.stderr)
        raise
    if kind != "parquet":
        spool.finish()
        return
    spool.commit()
    made = out.with_name(out.name + ".making")
    parquet.write(made, lambda: _read_back(spool.part), Path(table.source) if table.kind == "parquet" else None, added)
    spool.finish(made)


def _read_back(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def _progress(table: Table, done: int) -> Progress:
    total = table.count() if sys.stderr.isatty() else None
    return Progress(total, "rows", sys.stderr, time.monotonic, done)


async def _through(
    task: Task, rows: Iterator[Row], asked: dict[str, Question], decider: Decider, sink: Sink, progress: Progress
) -> None:
    window = _Window(rows, sink, task.concurrency, progress)
    per_request = max(1, min(_ROWS_PER_REQUEST, task.concurrency // 2))  # two requests at least: no gap between them

    async def work() -> None:
        while chunk := await window.take(per_request):
            await ask_rows(task, asked, decider, chunk, window.settle)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(task.concurrency // per_request):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        progress.close()
    if window.failed:
        print(
            f"{window.failed:,} of {window.written:,} rows have an error: see the column '{columns.ERROR}'",
            file=sys.stderr,
        )


async def ask_rows(
    task: Task, asked: dict[str, Question], decider: Decider, chunk: list[tuple[int, Row]], settle: Settle
) -> None:
    """Ask about some rows, each with its number; settle each as soon as it is answered."""
    numbers, states = [], []
    for number, row in chunk:
        try:
            if row.problem:
                raise ValueError(row.problem)
            states.append(state_of(row, task.state_columns))
            numbers.append(number)
        except KeyError as missing:
            settle(number, columns.failed(asked, f"the column {missing} is missing"))
        except ValueError as problem:
            settle(number, columns.failed(asked, str(problem)))
    if states:
        async with aclosing(decider.batch(states, asked)) as results:
            async for result in results:
                settle(numbers[result.index], columns.values(asked, result))


class _Window:
    """The rows between input and output."""

    def __init__(self, rows: Iterator[Row], sink: Sink, size: int, progress: Progress) -> None:
        self.failed = self.written = 0
        self._rows = enumerate(rows)
        self._sink = sink
        self._room = size
        self._progress = progress
        self._open: dict[int, Row] = {}
        self._done: dict[int, dict[str, Any]] = {}
        self._freed = asyncio.Event()

    async def take(self, number: int) -> list[tuple[int, Row]]:
        """The next rows, as soon as there is room for so many; fewer, or none, at the end of the input."""
        while self._room < number:
            self._freed.clear()
            await self._freed.wait()
        chunk = list(islice(self._rows, number))
        self._room -= len(chunk)
        self._open |= dict(chunk)
        return chunk

    def settle(self, number: int, added: dict[str, Any]) -> None:
        """A row is finished. It is written when all before it are."""
        self._done[number] = added
        self.failed += added[columns.ERROR] is not None
        ready = []
        while self.written in self._done:
            ready.append((self._open.pop(self.written), self._done.pop(self.written)))
            self.written += 1
        if ready:
            self._sink(ready)
            self._room += len(ready)
            self._progress.advance(len(ready))
            self._freed.set()
