"""The reliability diagram: how sure the model is against how often it is right, before and after calibration."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from decided.evaluation import svg
from decided.evaluation.fitting import Bin, Fit

_GAP, _TOP, _LEGEND = 24, 64, 16


class Panel(NamedTuple):
    """One type of question: what was fitted, and its bins before and after."""

    title: str
    fit: Fit
    before: Sequence[Bin]
    after: Sequence[Bin]


def draw(panels: Sequence[Panel], heading: str) -> bytes:
    """The diagram as SVG: a panel for each type of question, with the number of rows in each bin below it."""
    width = _GAP + len(panels) * (svg.WIDTH + _GAP)
    height = _TOP + 2 * (svg.HEIGHT + _LEGEND) + 3 * _GAP
    style = f"svg {{ {svg.LIGHT} }} @media (prefers-color-scheme: dark) {{ svg {{ {svg.DARK} }} }}\n{svg.STYLE}"
    style += ".heading { font-size: 15px; font-weight: 600; } .heading, .title { fill: var(--ink); }\n"
    drawn = "".join(_panel(panel, _GAP + place * (svg.WIDTH + _GAP)) for place, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f"<style>{style}</style>\n"
        f'<rect width="100%" height="100%" style="fill: var(--paper)"/>\n'
        f'<text class="heading" x="{_GAP}" y="30">{escape(heading)}</text>\n{drawn}</svg>\n'
    ).encode()


def _panel(panel: Panel, left: int) -> str:
    fit = panel.fit
    title = f"{panel.title}: T = {fit.temperature:.2f}, {fit.rows:,} rows"
    rows = _TOP + svg.HEIGHT + 2 * _LEGEND + _GAP
    return (
        f'<text class="title" x="{left}" y="54">{escape(title)}</text>\n'
        f'<g transform="translate({left} {_TOP})">{svg.reliability([panel.after, panel.before])}</g>\n'
        f"{_legend(left, _TOP + svg.HEIGHT + 12, fit)}"
        f'<text x="{left}" y="{rows - 6}">rows, by how sure the model is</text>\n'
        f'<g transform="translate({left} {rows})">'
        f"{svg.histogram([[one.rows for one in panel.after], [one.rows for one in panel.before]])}</g>\n"
    )


def _legend(left: int, top: int, fit: Fit) -> str:
    lines = (
        ("b", f"before: calibration error {fit.before.calibration_error:.3f}"),
        ("a", f"after: calibration error {fit.after.calibration_error:.3f}"),
    )
    return "".join(
        f'<circle class="{colour}" cx="{left + 40}" cy="{top + place * _LEGEND - 4}" r="4"/>'
        f'<text x="{left + 50}" y="{top + place * _LEGEND}">{words}</text>\n'
        for place, (colour, words) in enumerate(lines)
    )
