"""The reliability diagram: how sure the model is against how often it is right, before and after calibration."""

import importlib.util
import logging
import math
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from decided.calibration import BINS, Bin, Fit
from decided.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _QUIET, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_BEFORE, _AFTER = "#e07a3f", "#2b6cb0"
_TICKS = [0, 0.2, 0.4, 0.6, 0.8, 1]
_FEW = 5


class Panel(NamedTuple):
    """One type of question: what was fitted, and its bins before and after."""

    title: str
    fit: Fit
    before: Sequence[Bin]
    after: Sequence[Bin]


def check_that_it_can_be_drawn() -> None:
    """Before the long work rather than after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("--plot needs matplotlib: pip install 'decided[plots]', or leave --plot out")


def draw(panels: Sequence[Panel], heading: str) -> bytes:
    """The diagram as PNG: a panel for each type of question, with the number of rows in each bin below it."""
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of its fonts

    figure = Figure(figsize=(max(4.6, 4.1 * len(panels)), 5.4), dpi=150, facecolor="white", layout="constrained")
    figure.suptitle(heading, color=_INK, fontsize=12, fontweight="bold", x=0.012, ha="left")
    columns = figure.subplots(2, len(panels), sharex=True, squeeze=False, gridspec_kw={"height_ratios": [3.4, 1]})
    for number, panel in enumerate(panels):
        upper, lower = columns[0][number], columns[1][number]
        _draw_curves(upper, panel)
        _draw_counts(lower, panel)
        if number == 0:
            upper.set_ylabel("how often it is right", color=_INK)
            lower.set_ylabel("rows", color=_INK)
    png = BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _draw_curves(axes: "Axes", panel: Panel) -> None:
    axes.set_title(
        f"{panel.title}   T = {panel.fit.temperature:.2f}   {panel.fit.rows:,} rows",
        color=_INK,
        fontsize=10.5,
        loc="left",
    )
    axes.plot([0, 1], [0, 1], color=_QUIET, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    series = (
        ("before", panel.before, _BEFORE, panel.fit.before.calibration_error, "o"),
        ("after", panel.after, _AFTER, panel.fit.after.calibration_error, "s"),
    )
    for name, bins, colour, error, marker in series:
        # The eye should go where the rows are: larger marks there, hollow ones off the line where hardly any are.
        full = [one for one in bins if one.rows >= _FEW]
        scarce = [one for one in bins if 0 < one.rows < _FEW]
        largest = max(one.rows for one in bins)
        axes.plot(_sure(full), _right(full), color=colour, linewidth=1.4, alpha=0.75, zorder=2)
        axes.scatter(
            _sure(full),
            _right(full),
            s=[14 + 70 * math.sqrt(one.rows / largest) for one in full],
            color=colour,
            marker=marker,
            edgecolor="white",
            linewidth=0.8,
            zorder=3,
            label=f"{name}: calibration error {error:.3f}",
        )
        axes.scatter(_sure(scarce), _right(scarce), s=14, facecolor="white", edgecolor=colour, marker=marker, zorder=3)
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xticks(_TICKS)
    axes.set_yticks(_TICKS)
    legend = axes.legend(loc="upper left", fontsize=8.5, frameon=False, labelcolor=_INK, handletextpad=0.2)
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([45])
    _quieten(axes)


def _sure(bins: Sequence[Bin]) -> list[float]:
    return [one.confidence for one in bins]


def _right(bins: Sequence[Bin]) -> list[float]:
    return [one.accuracy for one in bins]


def _draw_counts(axes: "Axes", panel: Panel) -> None:
    width = 1 / BINS
    for offset, bins, colour in ((0.08, panel.before, _BEFORE), (0.5, panel.after, _AFTER)):
        places = [(number + offset) * width for number in range(BINS)]
        axes.bar(places, [one.rows for one in bins], width=0.42 * width, align="edge", color=colour, zorder=2)
    axes.set_xlabel("how sure the model is (probability of its top option)", color=_INK, fontsize=9)
    _quieten(axes)


def _quieten(axes: "Axes") -> None:
    axes.grid(color=_GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_QUIET, labelsize=8.5, length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GRID)
