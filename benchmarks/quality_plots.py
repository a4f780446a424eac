"""The pictures of docs/model.md, from what quality.py wrote with --json.

cd docs/images && ../../.venv/bin/python ../../benchmarks/quality_plots.py dev.json reliability.png --sizes sizes.png \\
    --curve curve.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

BINS = 10
INK, QUIET = "#0b6b5b", "#9aa5a1"
RIVALS = {  # published: parameters in millions, accuracy on JevBench-240
    "jevhome-E": (48, 55.8),
    "Verdict 1.4": (151, 64.2),
    "laya": (421, 70.8),
    "Von 1.3": (395, 72.2),
    "jevhome-ettin-1b": (1000, 82.3),
}
GUESSING = 39.8
RELEASED = {"decided-small-8": (33.0, 78.4), "base-10": (110.0, 83.6), "decided-ensemble-7": (143.0, 84.1)}
ABOVE = ("Von 1.3", "decided-ensemble-7")  # the others have their names below
CURVES = {  # of each release, in 8 bits from base-4 on, and what we want
    "everyday questions": ((80.8, 86.3, 88.8, 90.8, 90.4, 90.0, 91.2, 91.7, 91.3, 93.8, 96.3), 90.0),
    "JevBench-240": ((79.5, 81.3, 81.5, 81.6, 82.7, 83.6, 84.0, 84.0, 83.6, 83.5, 84.1), 85.0),
    "18 tasks never trained on": ((57.0, 58.1, 59.4, 59.6, 60.8, 60.9, 62.8, 62.7, 63.8, 63.7, 63.8), 62.0),
}
TRAINED = (
    "base-1\n143M tokens\n35,000\nby hand",
    "base-2\n492M\n50,000",
    "base-3\n875M\n118,000",
    "base-4\n1,148M\n146,000",
    "ensemble-1\nbase-4 and\nsmall-3",
    "ensemble-2\n1,285M\n204,000",
    "ensemble-3\n1,528M\n256,000",
    "ensemble-4\n1,739M\n297,000",
    "ensemble-5\n2,003M\n354,000",
    "ensemble-6\n2,236M\n412,000",
    "ensemble-7\n2,546M\n609,000",
)


def reliability(results: dict[str, Any], path: Path) -> None:
    tops = results["tops"]
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(5, 5.6), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    rows = [[t for t in tops if min(int(t[0] * BINS), BINS - 1) == b] for b in range(BINS)]
    middles = [(b + 0.5) / BINS for b in range(BINS)]
    means = [(sum(t[0] for t in r) / len(r), sum(t[1] for t in r) / len(r)) for r in rows if r]
    above.plot([0, 1], [0, 1], "--", color=QUIET, linewidth=1)
    above.plot(*zip(*means, strict=True), "o-", color=INK)
    above.set(
        ylabel="share that is right", ylim=(0, 1), xlim=(0, 1), title=f"{len(tops):,} questions of 18 unseen tasks"
    )
    below.bar(middles, [len(r) for r in rows], width=0.09, color=INK)
    below.set(xlabel="probability of the answer given", ylabel="questions")
    _save(figure, path)


def sizes(path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.axhline(GUESSING, linestyle="--", color=QUIET, linewidth=1)
    axes.annotate("guessing", (1100, GUESSING + 0.7), color=QUIET, ha="right")
    for name, (millions, accuracy) in RIVALS.items():
        axes.plot(millions, accuracy, "o", color=QUIET)
        place = (0, 6 if name in ABOVE else -13)
        axes.annotate(name, (millions, accuracy), place, textcoords="offset points", ha="center", color="#555")
    for name, (size, ours) in RELEASED.items():
        axes.plot(size, ours, "o", color=INK, markersize=9)
        place = (9, 6 if name in ABOVE else -13)
        axes.annotate(f"{name}: {ours:.1f}", (size, ours), place, textcoords="offset points", color=INK)
    axes.set(xscale="log", xlim=(22, 1400), ylim=(35, 90), xlabel="million parameters", ylabel="JevBench-240 accuracy")
    axes.set_xticks([33, 100, 300, 1000], ["33", "100", "300", "1000"])
    axes.minorticks_off()
    _save(figure, path)


def curve(path: Path) -> None:
    figure, axes = plt.subplots(figsize=(12, 3.8), layout="constrained")
    places = range(len(TRAINED))
    for shade, (name, (reached, wanted)) in zip((INK, "#c0762b", "#4a5fa5"), CURVES.items(), strict=True):
        axes.axhline(wanted, linestyle=":", color=shade, linewidth=1)
        axes.plot(places, reached, "o-", color=shade)
        beside = (8, 3 if reached[-1] > wanted else -10)  # off the dotted line
        axes.annotate(
            f"{name}: {reached[-1]}", (places[-1], reached[-1]), beside, textcoords="offset points", color=shade
        )
    axes.set(xlim=(-0.2, 12.8), ylim=(55, 98), ylabel="% right (dotted: wanted)")
    axes.set_xticks(places, TRAINED)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path)
    parser.add_argument("reliability", type=Path, help="the reliability diagram of what dev.json holds")
    parser.add_argument("--sizes", type=Path, help="the released models beside others, by size")
    parser.add_argument("--curve", type=Path, help="the releases, by what they were trained on")
    args = parser.parse_args()
    reliability(json.loads(args.dev.read_text())["results"], args.reliability)
    if args.sizes:
        sizes(args.sizes)
    if args.curve:
        curve(args.curve)


if __name__ == "__main__":
    main()
