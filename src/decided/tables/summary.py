"""What a run came to, for people: rows, errors, rate, and how the answers are spread."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from decided.contract.types import Choice, Noul, compact
from decided.progress import clock_time
from decided.tables.columns import ERROR, Columns

_BAR = 20
_MOST = 12
_WIDE = 40


class Summary:
    """Counts the answers as they are written."""

    def __init__(self, columns: Columns) -> None:
        self.rows = self.failed = 0
        self._columns = columns
        self._answers: dict[str, Counter[str]] = {name: Counter() for name in columns.questions}
        self._confidence = dict.fromkeys(columns.questions, 0.0)

    def add(self, values: Mapping[str, Any]) -> None:
        self.rows += 1
        if values[ERROR] is not None:
            self.failed += 1
            return
        for name, counts in self._answers.items():
            columns = self._columns.names[name]
            counts[str(values[columns.level or columns.answer])] += 1
            self._confidence[name] += values[columns.confidence]

    def lines(self, seconds: float) -> Iterator[str]:
        answered = self.rows - self.failed
        rate = f", {self.rows / seconds:.1f} a second" if seconds >= 1 else ""
        errors = f"; {self.failed:,} have an error, see the column '{ERROR}'" if self.failed else ""
        yield f"{self.rows:,} rows in {clock_time(seconds)}{rate}{errors}"
        for name, counts in self._answers.items():
            if answered:
                yield f"\n{name}  (mean confidence {self._confidence[name] / answered:.2f})"
                yield from self._spread(name, counts, answered)

    def _spread(self, name: str, counts: Counter[str], answered: int) -> Iterator[str]:
        """The commonest first; levels in their own order."""
        shown = counts.most_common(_MOST)
        question = self._columns.questions[name]
        if not isinstance(question, Choice | Noul):
            order = [compact(label) for label in question.criteria]
            shown.sort(key=lambda entry: order.index(entry[0]) if entry[0] in order else len(order))
        width = min(_WIDE, max(len(answer) for answer, _ in shown))
        for answer, count in shown:
            bar = "#" * round(_BAR * count / answered)
            yield f"  {answer[:_WIDE]:{width}}  {count:>8,}  {bar}"
        if len(counts) > _MOST:
            yield f"  and {len(counts) - _MOST} other answers"
