"""What a report comes to, in sentences: how good it is, when to act on it, where it errs, and what to do next."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from decided.evaluation.report import Report, Section, short
from decided.evaluation.scoring import TARGET, Comparison

_FEW = 100
_PLAIN_P = 0.05
_CLEARLY_OFF = 2.0  # times the noise
_WIDE = 60
_WORTH_NAMING = 0.1  # of all mistakes


def sentences(report: Report, identical: bool) -> list[str]:
    """A paragraph for each question, the comparison first where there is one."""
    parts = report.sections[1:] or report.sections
    found = []
    if identical:
        found.append("Both are the same model with the same settings: there is nothing to compare.")
    for section in parts:
        name = f"{short(section.name, _WIDE)}: " if len(parts) > 1 else ""
        if section.comparison is not None and not identical:
            found.append(name + _compared(report, section.comparison))
        found.append(name + " ".join(_judged(section)))
    return found


def _judged(section: Section) -> Iterator[str]:
    one = section.a.scores
    yield f"{_percent(one.accuracy.value)} right ({one.accuracy.low:.0%}-{one.accuracy.high:.0%})."
    act = section.a.act
    if act is not None and act.accuracy is not None and act.threshold == 0:
        yield f"Every answer can be acted on, if {TARGET:.0%} right is enough."
    elif act is not None and act.accuracy is not None:
        yield (
            f"Act from confidence {act.threshold:.2f}: {act.share:.0%} of the answers, "
            f"{_percent(act.accuracy.value)} of them right ({act.accuracy.low:.0%}-{act.accuracy.high:.0%})."
        )
    elif one.rows < _FEW:
        yield f"Too few rows to say from which confidence on {TARGET:.0%} are right."
    else:
        yield f"No confidence is high enough for {TARGET:.0%} right."
    if section.mistakes:
        (truth, answer), count = Counter((wrong.truth, wrong.answer) for wrong in section.mistakes).most_common(1)[0]
        if count > 1 and count >= _WORTH_NAMING * len(section.mistakes):
            truth, answer = short(truth, 40), short(answer, 40)
            yield f"Most frequent mistake: {truth} taken for {answer} ({count} of {len(section.mistakes)})."
    sure = sum(rows * sure for rows, sure, _ in section.a.bins) / one.rows
    if one.calibration_error > _CLEARLY_OFF * one.calibration_noise and one.rows >= _FEW:
        yield f"It is {'over' if sure > one.accuracy.value else 'under'}confident: {sure:.0%} sure on average."


def _compared(report: Report, one: Comparison) -> str:
    if not one.only_a_right and not one.only_b_right:
        return "Both are right on the same rows."
    points = f"{abs(one.accuracy.value) * 100:.1f} points"
    counts = f"of {one.rows} rows, only the first is right on {one.only_a_right}, only the second on {one.only_b_right}"
    if one.mcnemar_p >= _PLAIN_P:
        return f"No clear difference: {counts} (p = {one.mcnemar_p:.2g})."
    better = report.names[0 if one.accuracy.value > 0 else 1]
    return f"{better} is better by {points}: {counts} (p = {one.mcnemar_p:.2g})."


def next_steps(report: Report, questions: Path | None) -> list[str]:
    """At most two, those that are worth most."""
    found = []
    parts = report.sections[1:] or report.sections
    rows = min(section.a.scores.rows for section in parts)
    if rows < _FEW:
        widest = max(parts, key=lambda section: section.a.scores.accuracy.high - section.a.scores.accuracy.low)
        half = (widest.a.scores.accuracy.high - widest.a.scores.accuracy.low) / 2
        found.append(f"Label more: {rows} rows tell the accuracy to within {half:.0%} only; 200 are a good start.")
    if any(section.a.scores.accuracy.value < TARGET for section in parts):
        if questions is not None and report.against is None:
            found.append(
                "Say in an option's description what sets it apart, and compare the two wordings with "
                "--against-questions."
            )
        if rows >= _FEW and "with profiles" not in report.names:
            given = f" --questions {questions}" if questions is not None else ""
            found.append(f"Learn from these labels: decided teach {report.labels}{given} --out profiles/")
    return found[:2] or ["Nothing to fix. Serve it, and measure again when the texts change."]


def _percent(share: float) -> str:
    return f"{share:.0%}" if 0.005 < share < 0.995 or share in (0.0, 1.0) else f"{share:.1%}"
