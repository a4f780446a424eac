"""Two exported models that answer together: the mean of their answers, to fit temperatures on, and their card.

Logits are added up, each model's by its share. Training may go on with the same mean: it is what teachers say.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decided.engines.embedded.weights import digest, read_card
from training.calibrate import EDGES, load_answers, save_answers
from training.metrics import Answer


def mean(base: Sequence[Answer], small: Sequence[Answer], share: float) -> list[Answer]:
    """Of the same rows in the same order: so much of the base model's logits, the rest of the small one's."""
    if [a[:2] + a[3:] for a in base] != [a[:2] + a[3:] for a in small]:
        raise SystemExit("these are not answers to the same rows")
    return [
        one._replace(logits=share * one.logits + (1 - share) * other.logits)
        for one, other in zip(base, small, strict=True)
    ]


def card(base: Path, small: Path, share: float, temperatures: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    cards, shares = {"base": read_card(base), "small": read_card(small)}, {"base": share, "small": round(1 - share, 6)}
    return {
        **about,
        "parameters": sum(own["parameters"] for own in cards.values()),
        "members": {name: {"share": shares[name], "weights": digest(own)} for name, own in cards.items()},
        "temperatures": {"option_count_edges": list(EDGES), **temperatures},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    ways = parser.add_subparsers(dest="way", required=True)
    for way, about in (("answers", "the mean of two files of answers"), ("card", "the card of two exported models")):
        one = ways.add_parser(way, help=about)
        one.add_argument("base", type=Path, help="of the base model")
        one.add_argument("small", type=Path, help="of the small model")
        one.add_argument("out", type=Path)
        one.add_argument("--share", type=float, required=True, help="of the base model")
        if way == "card":
            one.add_argument("--temperatures", type=Path, required=True, help="made by training.calibrate --out")
            one.add_argument("--about", type=Path, required=True, help="JSON with name, description, licences, ...")
    args = parser.parse_args()
    if args.way == "answers":
        save_answers(args.out, mean(load_answers(args.base), load_answers(args.small), args.share))
    else:
        fitted, about = (json.loads(path.read_text(encoding="utf-8")) for path in (args.temperatures, args.about))
        args.out.parent.mkdir(parents=True, exist_ok=True)
        made = card(args.base, args.small, args.share, fitted, about)
        args.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
