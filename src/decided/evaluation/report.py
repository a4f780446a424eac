"""The report of `decided eval`: what it holds, and how it reads in a terminal. `html.py` makes a page of it."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from decided.contract.types import Choice, Noul, Question, compact
from decided.evaluation import scoring
from decided.evaluation.labelled import ALONE
from decided.evaluation.scoring import Comparison, Coverage, Interval, Scored, Scores
from decided.printable import printable

_MOST_OPTIONS = 30  # of which a confusion table can still be read
_HISTOGRAM_BINS = 20
_LINE_WIDTH = 100
_MISTAKES_SHOWN = 10

EXPLAINED = {
    "Brier score": "how far the probabilities are from the truth: 0 is perfect, 2 the worst; always guessing evenly "
    "between two options gives 0.5.",
    "Calibration error": "how far a probability is from how often such answers are right, on average. An error near "
    "the noise, which chance alone makes on so many rows, is none.",
}
"""The figures that few people know, in a line each."""


class Case(NamedTuple):
    """A question about a row, and what was said to it; perhaps by two."""

    row: int
    text: str
    name: str
    question: Question
    scored: Scored
    other: Scored | None


class Mistake(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row that was answered wrongly."""

    row: int
    question: str
    text: str
    answer: str
    truth: str
    confidence: float
    other: str | None = None
    """What the second model said."""

    @classmethod
    def of(cls, case: Case) -> "Mistake":
        def label(option: int) -> str:
            return _label(case.question, option)

        other = None if case.other is None else label(case.other.chosen)
        said = case.scored
        return cls(case.row, case.name, case.text, label(said.chosen), label(said.right), said.confidence, other)


def _label(question: Question, option: int) -> str:
    if isinstance(question, Noul):
        return ("yes", "no")[option]
    return question.keys()[option] if isinstance(question, Choice) else compact(question.criteria[option])


class SectionScores(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model on the questions of a section."""

    scores: Scores
    bins: list[tuple[int, float, float]]
    """Of the reliability diagram: rows, how sure the model is, how often it is right."""
    histogram: list[int]
    """Rows by confidence, in equal steps from 0 to 1."""
    curve: list[tuple[float, float]]
    """The share of answers taken, the most confident first, and how many of those are right."""
    act: Coverage | None = None
    """The confidence from which on enough answers are right to act on them."""
    confusion: list[list[int]] | None = None
    """For each right option, how often each option was chosen."""

    @classmethod
    def of(cls, rows: Sequence[Scored], options: int) -> "SectionScores":
        histogram = [0] * _HISTOGRAM_BINS
        for row in rows:
            histogram[min(int(row.confidence * _HISTOGRAM_BINS), _HISTOGRAM_BINS - 1)] += 1
        return cls(
            scoring.scores(rows, options or None),
            [(one.rows, one.confidence, one.accuracy) for one in scoring.bins(rows)],
            histogram,
            scoring.coverage_curve(rows),
            scoring.act_from(rows),
            scoring.confusion(rows, options) if 0 < options <= _MOST_OPTIONS else None,
        )


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """Questions that belong together, answered by one model or by two."""

    title: str
    name: str
    """How the questions are called in the file; or the title, where they are not or differ."""
    type: str
    options: list[str]
    """Empty where the questions do not share their options."""
    a: SectionScores
    b: SectionScores | None = None
    comparison: Comparison | None = None
    mistakes: list[Mistake] = []
    """Of the first model, the most confident first: what is wrong and looks right does most harm."""

    @classmethod
    def of(cls, title: str, kind: str, options: Sequence[str], cases: Sequence[Case]) -> "Section":
        rows = [case.scored for case in cases]
        others = [case.other for case in cases if case.other is not None]
        names = {case.name for case in cases}
        wrong = sorted((case for case in cases if not case.scored.hit), key=lambda case: -case.scored.confidence)
        return cls(
            title,
            name=names.pop() if len(names) == 1 and names != {ALONE} else title,
            type=kind,
            options=list(options),
            a=SectionScores.of(rows, len(options)),
            b=SectionScores.of(others, len(options)) if others else None,
            comparison=scoring.compare(rows, others) if others else None,
            mistakes=[Mistake.of(case) for case in wrong] if kind else [],
        )


class Report(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    model: str
    against: str | None
    names: list[str]
    """What the one or the two that were asked are called here: their models, or what sets them apart."""
    date: str
    labels: str
    """The file."""
    unit: str
    """Lines or rows, in the singular."""
    settings: list[str]
    lines: int
    skipped: int
    sections: list[Section]
    verdict: list[str] = []
    next_steps: list[str] = []

    @property
    def title(self) -> str:
        if self.against is None:
            return self.model
        which = f"{self.model}: " if self.against == self.model else ""
        return which + " against ".join(self.names)

    @property
    def counted(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.lines} {self.unit}{'' if self.lines == 1 else 's'}{skipped}"


def text(report: Report) -> Iterator[str]:
    """The report for a terminal."""
    yield f"{report.title} on {report.labels}, {report.date}: {report.counted}"
    if report.settings:
        yield f"with {', '.join(report.settings)}"
    yield ""
    for sentence in report.verdict:
        yield textwrap.fill(sentence, _LINE_WIDTH)
    for step in report.next_steps:
        yield textwrap.fill(f"Next: {step}", _LINE_WIDTH)
    for section in report.sections:
        yield ""
        yield from _section(section, report)
    yield ""
    for name, meaning in EXPLAINED.items():
        yield textwrap.fill(f"{name}: {meaning}", _LINE_WIDTH)


def _section(section: Section, report: Report) -> Iterator[str]:
    kind = f" ({section.type})" if section.type else ""
    yield f"{short(section.title, 90)}{kind}"
    has_f1 = section.a.scores.macro_f1 is not None
    head = "  macro-F1" if has_f1 else ""
    wide = min(28, max(16, *map(len, report.names)))
    yield f"  {'':{wide}}  rows  accuracy  95 % interval{head}  Brier  log-loss  calibration error (noise)"
    parts = parts_of(report, section)
    for name, part in parts:
        one = part.scores
        f1 = f"  {one.macro_f1:8.3f}" if has_f1 else ""
        yield (
            f"  {short(name, wide):{wide}} {one.rows:5}  {one.accuracy.value:8.1%}  {interval(one.accuracy):>13}{f1}  "
            f"{one.brier:5.3f}  {one.log_loss:8.3f}  {one.calibration_error:.3f} ({one.calibration_noise:.3f})"
        )
    for name, part in parts:
        kept = [one for one in part.scores.coverage if one.accuracy is not None]
        label = f" ({short(name, 28)})" if section.b else ""
        yield f"  confidence from{label}  " + "  ".join(f"{one.threshold:5.2f}" for one in kept)
        yield f"    answers{' ' * len(label)}       " + "  ".join(f"{one.share:5.0%}" for one in kept)
        yield f"    accuracy{' ' * len(label)}      " + "  ".join(
            f"{one.accuracy.value:5.0%}" for one in kept if one.accuracy is not None
        )
    if section.a.confusion is not None and len(section.options) <= 10:
        yield from _confusion(section)
    if section.comparison is not None:
        yield from _comparison(section.comparison)
    if section.mistakes:
        yield from _mistakes(section, report.unit)


def parts_of(report: Report, section: Section) -> list[tuple[str, SectionScores]]:
    """The one or the two that were asked, by name."""
    return list(zip(report.names, [part for part in (section.a, section.b) if part is not None], strict=True))


def _confusion(section: Section) -> Iterator[str]:
    names = [short(name, 12) for name in section.options]
    width = max(5, *(len(name) for name in names))
    yield f"  {'actual / predicted':{max(width, 18)}}  " + "  ".join(f"{name:>{width}}" for name in names)
    for name, line in zip(names, section.a.confusion or [], strict=True):
        yield f"    {name:{max(width, 18) - 2}}  " + "  ".join(f"{count:{width}}" for count in line)


def _mistakes(section: Section, unit: str) -> Iterator[str]:
    yield f"  wrong answers, most confident first ({len(section.mistakes)}):"
    for wrong in section.mistakes[:_MISTAKES_SHOWN]:
        said = f"{short(wrong.answer, 24)} ({wrong.confidence:.2f}), is {short(wrong.truth, 24)}"
        yield f"    {unit} {wrong.row}: said {said}: {short(wrong.text, 60)}"
    if len(section.mistakes) > _MISTAKES_SHOWN:
        yield f"    and {len(section.mistakes) - _MISTAKES_SHOWN} more: see --json or --html"


def _comparison(one: Comparison) -> Iterator[str]:
    yield (
        f"  difference in accuracy {one.accuracy.value:+.1%} ({one.accuracy.low:+.1%} to {one.accuracy.high:+.1%}): "
        f"only the first is right in {one.only_a_right} rows, only the second in {one.only_b_right}; "
        f"McNemar's exact p = {one.mcnemar_p:.3g}"
    )
    yield (
        f"  difference in Brier    {one.brier.value:+.3f} ({one.brier.low:+.3f} to {one.brier.high:+.3f}), "
        f"lower is better; permutation p = {one.brier_p:.3g}"
    )


def interval(one: Interval) -> str:
    return f"{one.low:.1%}-{one.high:.1%}"


def short(words: str, width: int) -> str:
    words = printable(" ".join(words.split()))
    return words if len(words) <= width else words[: width - 3] + "..."
