"""Plots as SVG, by hand: an axis, a curve, some bars. Colours are classes, for whoever draws to fill in.

A bin is (rows, how sure the model is, how often it is right).
"""

from collections.abc import Iterator, Sequence

from decided.evaluation.scoring import wilson

WIDTH, HEIGHT = 300, 220
COLOURS = ("a", "b")

FEW = 10
"""A bin of fewer rows says little, and looks it."""

_EDGE = 34

STYLE = """\
svg text { font: 11px system-ui, sans-serif; fill: var(--quiet); } .grid { stroke: var(--line); }
.ideal { stroke: var(--quiet); stroke-dasharray: 4 3; } svg .a { stroke: var(--a); fill: var(--a); }
svg .b { stroke: var(--b); fill: var(--b); } svg polyline { fill: none !important; stroke-width: 2; }
svg rect.a, svg rect.b { stroke: none; opacity: .75; } svg .range { opacity: .45; }
svg circle.few { fill: none; } svg .few { opacity: .4; stroke-dasharray: 2 2; }
"""
LIGHT = "--ink: #1f2933; --quiet: #66727f; --line: #d8dee4; --paper: #ffffff; --a: #2b6cb0; --b: #c05621;"
DARK = "--ink: #e6edf3; --quiet: #9aa7b4; --line: #36414c; --paper: #12181f; --a: #63a4e6; --b: #f0954f;"

Bins = Sequence[tuple[int, float, float]]


def reliability(series: Sequence[Bins]) -> str:
    """How sure the model is against how often it is right, with the range in which the truth lies; larger marks where
    more rows are, and hollow ones where they are few, which the curve leaves out."""
    drawn = [*_axes(), f'<line class="ideal" x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}"/>\n']
    for colour, bins in zip(COLOURS, series, strict=False):
        full = [one for one in bins if one[0]]
        most = max(rows for rows, _, _ in full)
        drawn.append(_curve(colour, [(sure, right) for rows, sure, right in full if rows >= FEW]))
        drawn += (_mark(colour, bin_, most) for bin_ in full)
    return "".join(drawn)


def _mark(colour: str, bin_: tuple[int, float, float], most: int) -> str:
    rows, sure, right = bin_
    few = " few" if rows < FEW else ""
    range_ = wilson(round(rows * right), rows)
    return (
        f'<line class="{colour} range{few}" x1="{_x(sure)}" y1="{_y(range_.low)}" x2="{_x(sure)}" '
        f'y2="{_y(range_.high)}"/>\n'
        f'<circle class="{colour}{few}" cx="{_x(sure)}" cy="{_y(right)}" r="{2 + 4 * (rows / most) ** 0.5:.1f}">'
        f"<title>{rows} rows, sure {sure:.2f}, right {right:.2f} ({range_.low:.2f} to {range_.high:.2f})</title>"
        "</circle>\n"
    )


def histogram(series: Sequence[Sequence[int]]) -> str:
    """How many rows fall into each of some equal parts of 0 to 1."""
    most = max(max(counts) for counts in series)
    drawn = [*_axes(str(most))]
    for number, (colour, counts) in enumerate(zip(COLOURS, series, strict=False)):
        step = (_x(1) - _x(0)) / len(counts)
        wide = (step - 1) / len(series)
        drawn += (
            f'<rect class="{colour}" x="{_x(0) + place * step + number * wide:.1f}" y="{_y(rows / most)}" '
            f'width="{wide:.1f}" height="{_y(0) - _y(rows / most):.1f}"><title>{rows} rows</title></rect>\n'
            for place, rows in enumerate(counts)
            if rows
        )
    return "".join(drawn)


def curves(series: Sequence[Sequence[tuple[float, float]]]) -> str:
    return "".join([*_axes(), *(_curve(colour, points) for colour, points in zip(COLOURS, series, strict=False))])


def _x(value: float) -> float:
    return round(_EDGE + value * (WIDTH - _EDGE - 10), 1)


def _y(value: float) -> float:
    return round(HEIGHT - 22 - value * (HEIGHT - 32), 1)


def _axes(high: str = "100%") -> Iterator[str]:
    for step in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield f'<line class="grid" x1="{_x(0)}" y1="{_y(step)}" x2="{_x(1)}" y2="{_y(step)}"/>\n'
        yield f'<text x="{_x(step)}" y="{HEIGHT - 6}" text-anchor="middle">{step:g}</text>\n'
    yield f'<text x="{_EDGE - 5}" y="{_y(1) + 4}" text-anchor="end">{high}</text>\n'
    yield f'<text x="{_EDGE - 5}" y="{_y(0) + 4}" text-anchor="end">0</text>\n'


def _curve(colour: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{colour}" points="{" ".join(f"{_x(x)},{_y(y)}" for x, y in points)}"/>\n'
