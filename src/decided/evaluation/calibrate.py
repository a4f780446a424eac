"""`decided calibrate`: ask the model labelled questions, fit a temperature per type, say what it does.

The model is asked through the same seam as in the server, so what is fitted is what will be served, for every kind of
model, in this process or remote.
"""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from decided.contract.answers import is_distribution
from decided.contract.temperature import QUESTION_TYPES, fingerprint
from decided.contract.types import type_of
from decided.engines.api import Engine, Verdict
from decided.errors import DecidedError, InferenceFailed, InputError, ModelError, Unavailable
from decided.evaluation import diagram, labelled
from decided.evaluation.fitting import Calibration, Fit, Judged, fit, reliability
from decided.evaluation.labelled import BadLine, LabelledRow
from decided.progress import Progress
from decided.retries import Backoff
from decided.serving.metrics import Metrics
from decided.serving.start import start_engine
from decided.settings import Settings
from decided.version import VERSION

_LINES_AT_A_TIME = 64
"""Enough for the engine to form full batches of them, few enough to be let go of at once."""
_COMPLAINTS_SHOWN = 20
_RETRIES, _FIRST_PAUSE_S = 4, 1.0
"""While the engine is away: a restart of it must not cost the lines that fall into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the command was told: labelled rows in, a file and a picture out."""

    labels: str
    """A path, or `-` for standard input."""
    out: Path | None = None
    plot: Path | None = None
    limit: int | None = None


async def calibrate(settings: Settings, task: Task) -> None:
    """Fit temperatures and report. Raises StartError when that is not possible."""
    _check(task)
    lines = labelled.lines(labelled.content(task.labels), task.limit)
    if not lines:
        raise InputError(f"{labelled.named(task.labels)} is empty")
    engine = await start_engine(settings, Metrics())
    try:
        await _check_engine(engine)
        # A remote engine's time limit runs while a line waits for its turn there: no more lines than turns.
        at_a_time = min(_LINES_AT_A_TIME, settings.remote_concurrency) if engine.remote else _LINES_AT_A_TIME
        survey = FittingSurvey(engine, Progress(len(lines), "lines", sys.stderr, time.monotonic))
        await survey.take(lines, at_a_time)
    finally:
        await engine.close()
    _report(task, survey, len(lines))


class FittingSurvey:
    """The model is asked every line; what it said is kept by type of question, what went wrong is said and counted."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self.engine = engine
        self._judged: list[tuple[int, str, Judged]] = []
        self.answered = self.bad = self.failed = self.cut = 0
        self._progress = progress

    @property
    def judged(self) -> dict[str, list[Judged]]:
        """By type, in the order of the lines: what is held back together must not hang on which answer came first."""
        found: dict[str, list[Judged]] = {kind: [] for kind in QUESTION_TYPES}
        for _, kind, one in sorted(self._judged, key=lambda row: row[0]):
            found[kind].append(one)
        return found

    async def take(self, lines: Sequence[labelled.Line], at_a_time: int) -> None:
        waiting = iter(lines)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_a_time):
                    group.create_task(self._work_off(waiting))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._progress.close()
        hidden = self.bad + self.failed - _COMPLAINTS_SHOWN
        if hidden > 0:
            self._progress.say(f"... and {hidden} more lines like these")

    async def _work_off(self, waiting: Iterator[labelled.Line]) -> None:
        """One of several that take the next line and ask, each its own."""
        for line in waiting:
            try:
                await self._ask(labelled.read_row(line, self.engine.card.max_options))
            except BadLine as error:
                self.bad += 1
                self._complain(str(error))
            except DecidedError as error:
                self.failed += 1
                reason = f"{error}: {error.reason}" if isinstance(error, InferenceFailed) else str(error)
                self._complain(f"line {line.number}: {reason}")
            self._progress.advance()

    async def _ask(self, row: LabelledRow) -> None:
        verdict = await self._verdict(row)
        found = list(zip(row.questions, verdict.weights, row.right, strict=True))
        for question, weights, _ in found:
            if len(weights) != len(question.keys()) or not is_distribution(weights):
                raise InferenceFailed("the model gave no distribution over the options")
        for question, weights, right in found:
            self._judged.append((row.line, type_of(question), Judged([float(weight) for weight in weights], right)))
        self.answered += 1
        self.cut += any(verdict.cuts)

    async def _verdict(self, row: LabelledRow) -> Verdict:
        backoff = Backoff(_FIRST_PAUSE_S)
        for _ in range(_RETRIES):
            try:
                return (await self.engine.decide([row.state], row.questions))[0]
            except Unavailable:
                await asyncio.sleep(backoff.next())
        try:
            return (await self.engine.decide([row.state], row.questions))[0]
        except Unavailable as error:
            raise ModelError(f"gave up at line {row.line}: {error}") from None

    def _complain(self, message: str) -> None:
        if self.bad + self.failed <= _COMPLAINTS_SHOWN:
            self._progress.say(f"skipped {message}")


def _check(task: Task) -> None:
    """What can be known to fail later fails now: asking a model a thousand questions takes a while."""
    for flag, path in (("--out", task.out), ("--plot", task.plot)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise InputError(f"{flag} {path}: must be a file in a directory that exists")
    if labelled.is_table(task.labels):
        raise InputError(
            f"{task.labels} is a table, and labelled questions are wanted here, a JSON object a line; tables are for "
            "`decided teach` and `decided eval`"
        )


async def _check_engine(engine: Engine) -> None:
    """A server starts without its remote engine and waits for it; here nobody waits."""
    try:
        await engine.check()
    except Unavailable as error:
        raise ModelError(str(error)) from None


def _report(task: Task, survey: FittingSurvey, lines: int) -> None:
    if survey.bad == lines:
        raise InputError(f"{labelled.named(task.labels)}: none of the lines can be used")
    if survey.failed > survey.answered:  # the few that were answered may not be like the others
        raise ModelError(f"the model failed on {survey.failed} of {survey.failed + survey.answered} lines")
    judged = {kind: rows for kind, rows in survey.judged.items() if rows}
    fits = {kind: fit(rows) for kind, rows in judged.items()}
    temperatures = {kind: one.temperature for kind, one in fits.items()}
    skipped = f", {survey.bad + survey.failed} skipped" if survey.bad + survey.failed else ""
    card = survey.engine.card
    print(f"{card.name} ({card.kind}): {survey.answered} lines{skipped}\n")
    print("\n".join(table(fits)))
    if survey.cut:
        print(f"\nIn {survey.cut} lines the model did not read everything: they were too long for it.")
    print()
    if task.out is not None:
        content = Calibration(card.name, card.kind, VERSION, temperatures, fits).encoded()
        _write(task.out, content)
        print(f"written: {task.out} (calibration {fingerprint(content)})")
    if task.plot is not None:
        panels = [
            diagram.Panel(
                kind,
                one,
                reliability(judged[kind], 1.0),
                reliability(judged[kind], one.temperature),
            )
            for kind, one in fits.items()
        ]
        _write(task.plot, diagram.draw(panels, f"Reliability of {card.name}"))
        print(f"written: {task.plot}")
    if all(temperature == 1 for temperature in temperatures.values()):
        print("nothing to change: every temperature is 1")
        return
    by_type = ",".join(f"{kind}={temperature:g}" for kind, temperature in temperatures.items())
    print(f"to use:  decided serve --temperature {task.out or by_type}")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def table(fits: dict[str, Fit]) -> list[str]:
    """What was found, for people: a line per type of question, and below them what there is to say."""
    lines = [
        "                              |    log-loss     | calibration error",
        "type     rows    T   accuracy | before    after | before    after",
        "------------------------------+-----------------+------------------",
    ]
    for kind, one in fits.items():
        before, after = one.before, one.after
        lines.append(
            f"{kind:6} {one.rows:6d} {one.temperature:5.2f} {before.accuracy:8.1%}  "
            f"| {before.log_loss:6.3f} {after.log_loss:8.3f} | {before.calibration_error:6.3f} "
            f"{after.calibration_error:8.3f}"
        )
    notes = [f"{kind}: {one.note}" for kind, one in fits.items() if one.note]
    return [*lines, "", *notes] if notes else lines
