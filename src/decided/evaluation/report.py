"""The report of `decided eval`: what it holds, and how it reads in a terminal. `html.py` makes a page of it."""

from collections.abc import Iterator, Sequence

import msgspec

from decided.evaluation import scoring
from decided.evaluation.scoring import Comparison, Interval, Scored, Scores

_MOST_OPTIONS = 30  # of which a confusion table can still be read
_HISTOGRAM_BINS = 20


class SectionScores(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model on the questions of a section."""

    scores: Scores
    bins: list[tuple[int, float, float]]
    """Of the reliability diagram: rows, how sure the model is, how often it is right."""
    histogram: list[int]
    """Rows by confidence, in equal steps from 0 to 1."""
    curve: list[tuple[float, float]]
    """The share of answers taken, the surest first, and how many of those are right."""
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
            scoring.confusion(rows, options) if 0 < options <= _MOST_OPTIONS else None,
        )


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """Questions that belong together, answered by one model or by two."""

    title: str
    type: str
    options: list[str]
    """Empty where the questions do not share their options."""
    a: SectionScores
    b: SectionScores | None = None
    comparison: Comparison | None = None

    @classmethod
    def of(
        cls, title: str, kind: str, options: Sequence[str], rows: Sequence[Scored], others: Sequence[Scored]
    ) -> "Section":
        second = SectionScores.of(others, len(options)) if others else None
        comparison = scoring.compare(rows, others) if others else None
        return cls(title, kind, list(options), SectionScores.of(rows, len(options)), second, comparison)


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str
    against: str | None
    lines: int
    skipped: int
    sections: list[Section]


def text(report: Report) -> Iterator[str]:
    """The report for a terminal."""
    skipped = f", {report.skipped} skipped" if report.skipped else ""
    versus = f" against {report.against}" if report.against else ""
    yield f"{report.model}{versus}: {report.lines} lines{skipped}"
    for section in report.sections:
        yield ""
        yield from _section(section, report)


def _section(section: Section, report: Report) -> Iterator[str]:
    kind = f" ({section.type})" if section.type else ""
    yield f"{short(section.title, 90)}{kind}"
    yield f"  {'':16}  rows  accuracy  95 % interval  macro-F1  Brier  log-loss  calibration error (noise)"
    parts = [(report.model, section.a), *([(report.against or "", section.b)] if section.b else [])]
    for name, part in parts:
        one = part.scores
        f1 = "-" if one.macro_f1 is None else f"{one.macro_f1:.3f}"
        yield (
            f"  {short(name, 16):16} {one.rows:5}  {one.accuracy.value:8.1%}  {interval(one.accuracy):>13}  {f1:>8}  "
            f"{one.brier:5.3f}  {one.log_loss:8.3f}  {one.calibration_error:.3f} ({one.calibration_noise:.3f})"
        )
    for name, part in parts:
        kept = [one for one in part.scores.coverage if one.accuracy is not None]
        label = f" ({short(name, 16)})" if section.b else ""
        yield f"  confidence from{label}  " + "  ".join(f"{one.threshold:5.2f}" for one in kept)
        yield f"    answers{' ' * len(label)}       " + "  ".join(f"{one.share:5.0%}" for one in kept)
        yield f"    accuracy{' ' * len(label)}      " + "  ".join(
            f"{one.accuracy.value:5.0%}" for one in kept if one.accuracy is not None
        )
    if section.a.confusion is not None and len(section.options) <= 10:
        yield from _confusion(section)
    if section.comparison is not None:
        yield from _comparison(section.comparison)


def _confusion(section: Section) -> Iterator[str]:
    names = [short(name, 12) for name in section.options]
    width = max(5, *(len(name) for name in names))
    yield f"  {'actual / predicted':{max(width, 18)}}  " + "  ".join(f"{name:>{width}}" for name in names)
    for name, line in zip(names, section.a.confusion or [], strict=True):
        yield f"    {name:{max(width, 18) - 2}}  " + "  ".join(f"{count:{width}}" for count in line)


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
    words = " ".join(words.split())
    return words if len(words) <= width else words[: width - 3] + "..."
