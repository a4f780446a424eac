"""Temperatures: how much an engine's probabilities are softened or sharpened, one per type of question.

A model can rank the options well and still be too sure of itself, or not sure enough. Dividing the logarithms of its
probabilities by one number, the temperature, changes how sure it is and never which option comes first.
`evaluation/fitting.py` finds the number.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decided.contract.answers import is_distribution
from decided.contract.types import Question, type_of

COOLEST, HOTTEST = 0.05, 20.0

QUESTION_TYPES = ("choice", "score", "noul")

CALIBRATED = "Calibrated:"
"""How the sentence begins with which a server says that it has temperatures."""

_FORMS = (
    f"must be a number from {COOLEST:g} to {HOTTEST:g}, pairs such as choice=1.2,noul=0.9, "
    "or a file that `decided calibrate` wrote"
)


def apply(weights: Sequence[float], temperature: float) -> Sequence[float]:
    """The weights at a temperature, the largest as 1. At 1 they are untouched, and so is what is no distribution: the
    one place that makes answers refuses that."""
    if temperature == 1 or not is_distribution(weights):
        return weights
    top = math.log(max(weights))
    return [math.exp((math.log(weight) - top) / temperature) if weight else 0.0 for weight in weights]


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperatures:
    """A temperature per type of question; 1 leaves probabilities as the engine gave them."""

    choice: float = 1.0
    score: float = 1.0
    noul: float = 1.0
    fingerprint: str = ""
    """Of the calibration file, if they came from one."""
    model: str = ""
    """The model that they were fitted for, if that is known."""

    @property
    def change_nothing(self) -> bool:
        return self.choice == self.score == self.noul == 1

    def of(self, question: Question) -> float:
        value: float = getattr(self, type_of(question))
        return value

    def apply(self, questions: Iterable[Question], weights: Sequence[Sequence[float]]) -> list[Sequence[float]]:
        """The weights of several questions, each at the temperature of its type."""
        return [apply(each, self.of(question)) for question, each in zip(questions, weights, strict=True)]

    def in_words(self) -> str:
        """A sentence for the description of the model; nothing when nothing is changed."""
        if self.change_nothing:
            return ""
        values = ((kind, getattr(self, kind)) for kind in QUESTION_TYPES)
        changed = ", ".join(f"{kind} T={value:.2f}" for kind, value in values if value != 1)
        return f"{CALIBRATED} {changed}{f' (calibration {self.fingerprint})' if self.fingerprint else ''}."

    def __str__(self) -> str:
        """In the form that `read_temperatures` reads."""
        if self.choice == self.score == self.noul:
            return f"{self.choice:g}"
        return ",".join(f"{kind}={getattr(self, kind):g}" for kind in QUESTION_TYPES)


# --- where temperatures come from ---


class _CalibrationFile(msgspec.Struct, frozen=True):
    """All that serving needs of the file."""

    temperatures: dict[str, float]
    model: str = ""


def read_temperatures(value: str) -> Temperatures:
    """Temperatures as a setting gives them: one for all types, some by type, or a calibration file. Or ValueError."""
    try:
        number = float(value)
    except ValueError:
        name, has_pairs, _ = value.partition("=")
        return _from_pairs(value) if has_pairs and name.strip().isidentifier() else _from_file(value)
    if not _in_range(number):
        raise ValueError(_FORMS)
    return Temperatures(choice=number, score=number, noul=number)


def fingerprint(content: bytes) -> str:
    """A short name for a calibration file: the same content has the same name everywhere."""
    return hashlib.sha256(content).hexdigest()[:8]


def _from_pairs(value: str) -> Temperatures:
    found: dict[str, float] = {}
    for pair in value.split(","):
        name, _, number = (part.strip() for part in pair.partition("="))
        try:
            temperature = float(number)
        except ValueError:
            raise ValueError(_FORMS) from None
        if name in found:
            raise ValueError(f"{_FORMS} (duplicate {name})")
        found[name] = temperature
    return _checked(found)


def _from_file(value: str) -> Temperatures:
    if not value.strip():
        raise ValueError(_FORMS)
    try:
        content = Path(value).read_bytes()
        calibration = msgspec.json.decode(content, type=_CalibrationFile)
    except OSError as error:
        raise ValueError(f"{_FORMS} (as a file: {error.strerror or error})") from None
    except (ValueError, RecursionError) as error:  # what msgspec raises is a ValueError
        raise ValueError(f"{_FORMS} (as a file: {error})") from None
    return _checked(calibration.temperatures, fingerprint(content), calibration.model)


def _checked(found: dict[str, float], name: str = "", model: str = "") -> Temperatures:
    for kind, temperature in found.items():
        if kind not in QUESTION_TYPES:
            raise ValueError(f"{_FORMS} ({kind!r} is not one of {', '.join(QUESTION_TYPES)})")
        if not _in_range(temperature):
            raise ValueError(f"{_FORMS} ({kind} is {temperature:g})")
    return Temperatures(**found, fingerprint=name, model=model)


def _in_range(temperature: float) -> bool:
    return COOLEST <= temperature <= HOTTEST
