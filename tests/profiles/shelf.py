"""Profiles made by hand, for a question that the fake model is asked."""

from pathlib import Path
from typing import Any

import msgspec

from decided.contract.types import Choice
from decided.profiles.fingerprint import fingerprint
from decided.profiles.profile import FORMAT, Figures, Head, Profile, Sets, Threshold

TOPIC = {"type": "choice", "instructions": "What is it about?", "criteria": {"parcel": None, "bill": "payments"}}
QUESTION = msgspec.convert({**TOPIC}, Choice)
FIGURES = Figures(0.5, 0.7, 0.1)


def made(**changes: Any) -> Profile:
    """With a head that says `bill` (the first, in the order of names) whenever the text speaks of money."""
    fields: dict[str, Any] = {
        "format": FORMAT, "name": "topic", "question": QUESTION, "fingerprint": fingerprint(QUESTION), "model": "fake",
        "weights": "", "recipe": "head", "labels": 30, "before": FIGURES, "after": FIGURES, "scale": 0.0,
        "bias": [-2.0, 2.0], "head": Head.of([[0.0, 8.0], [0.0, 0.0]]),
        "threshold": Threshold(0.9, 0.95, (0.95, 0.9, 0.99), 0.5), "sets": Sets(0.9, 0.01, 1.5),
    }  # fmt: skip
    return Profile(**(fields | changes))


def written(folder: Path, profile: Profile | None = None, name: str = "topic.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes((profile or made()).encoded())
    return path
