"""`decided calibrate`: ask the model labelled questions, fit a temperature per type, say what it does.

The model is asked through the same seam as in the server, so what is fitted is what will be served, for every kind of
model, in this process or remote.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decided.backend import open_engine
from decided.contract.temperature import QUESTION_TYPES, fingerprint
from decided.contract.types import type_of
from decided.engines.api import Engine
from decided.errors import DecidedError, InputError, ModelError, Unavailable
from decided.evaluation import diagram, labelled, output
from decided.evaluation.asking import ask_engine, check_weights, texts_at_a_time
from decided.evaluation.complaints import Complaints
from decided.evaluation.fitting import Calibration, Fit, Judged, fit, reliability
from decided.evaluation.labelled import BadLine, LabelledRow
from decided.progress import Progress
from decided.settings import Settings
from decided.together import work_off
from decided.version import VERSION


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
    engine = await open_engine(settings)
    try:
        survey = FittingSurvey(engine, Progress(len(lines), "lines", sys.stderr, time.monotonic))
        await survey.take(lines, texts_at_a_time(settings, engine))
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
        self._complaints = Complaints(progress.say)

    @property
    def judged(self) -> dict[str, list[Judged]]:
        """By type, in the order of the lines: what is held back together must not hang on which answer came first."""
        found: dict[str, list[Judged]] = {kind: [] for kind in QUESTION_TYPES}
        for _, kind, one in sorted(self._judged, key=lambda row: row[0]):
            found[kind].append(one)
        return found

    async def take(self, lines: Sequence[labelled.Line], at_a_time: int) -> None:
        try:
            await work_off(lines, at_a_time, self._look_at)
        finally:
            self._progress.close()
        self._complaints.close()

    async def _look_at(self, line: labelled.Line) -> None:
        try:
            await self._ask(labelled.read_row(line, self.engine.card.max_options))
        except BadLine as error:
            self.bad += 1
            self._complaints.add(str(error))
        except DecidedError as error:
            self.failed += 1
            self._complaints.add(f"line {line.number}: {error.in_full}")
        self._progress.advance()

    async def _ask(self, row: LabelledRow) -> None:
        try:
            verdict = await ask_engine(self.engine, row.state, row.questions)
        except Unavailable as error:
            raise ModelError(f"gave up at line {row.line}: {error}") from None
        found = list(zip(row.questions, verdict.weights, row.right, strict=True))
        for question, weights, _ in found:
            check_weights(question, weights)
        for question, weights, right in found:
            self._judged.append((row.line, type_of(question), Judged([float(weight) for weight in weights], right)))
        self.answered += 1
        self.cut += any(verdict.cuts)


def _check(task: Task) -> None:
    """What can be known to fail later fails now: asking a model a thousand questions takes a while."""
    for flag, path in (("--out", task.out), ("--plot", task.plot)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise InputError(f"{flag} {path}: must be a file in a directory that exists")
        if path is not None:
            output.check(path)
    if labelled.is_table(task.labels):
        raise InputError(
            f"{task.labels} is a table, and labelled questions are wanted here, one JSON object per line; tables are "
            "for `decided teach` and `decided eval`"
        )


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
    with output.writing(path):
        path.write_bytes(content)


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
