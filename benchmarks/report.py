"""Numbers into lines: percentiles, spreads, plain-text tables, a progress line and the JSON file."""

import json
import platform
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, and the range that holds the middle half of the values."""
    return {"median": median(values), "low": percentile(values, 0.25), "high": percentile(values, 0.75)}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, the first to the left and the others to the right."""
    widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def progress(text: str) -> None:
    """One line that is written over on a terminal, and left out elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def write_json(path: Path, what: str, settings: dict[str, Any], results: dict[str, Any]) -> None:
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    document = {"benchmark": what, "machine": machine, "settings": settings, "results": results}
    path.write_text(json.dumps(document, indent=2) + "\n")
