"""Temperatures: how much an engine's probabilities are softened or sharpened, one per type of question.

A model can rank the options well and still be too sure of itself, or not sure enough. Dividing the logarithms of its
probabilities by one number, the temperature, changes how sure it is and never which option comes first. The number is
fitted on questions whose answers are known, as the one that makes those answers most likely.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from decided.answers import is_distribution
from decided.contract import Choice, Noul, Question

COOLEST, HOTTEST = 0.05, 20.0
LEAST_ROWS = 20
BINS = 15

QUESTION_TYPES = ("choice", "score", "noul")

_FORMS = (
    f"must be a number from {COOLEST:g} to {HOTTEST:g}, pairs such as choice=1.2,noul=0.9, "
    "or a file that `decided calibrate` wrote"
)
_LEAST_SHARE = 1e-12
"""Nothing is impossible to the fit: one option that got nothing and was right would otherwise cost infinitely much."""


def type_of(question: Question) -> str:
    if isinstance(question, Noul):
        return "noul"
    return "choice" if isinstance(question, Choice) else "score"


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
        return f"Calibrated: {changed}{f' (calibration {self.fingerprint})' if self.fingerprint else ''}."

    def __str__(self) -> str:
        """In the form that `read_temperatures` reads."""
        if self.choice == self.score == self.noul:
            return f"{self.choice:g}"
        return ",".join(f"{kind}={getattr(self, kind):g}" for kind in QUESTION_TYPES)


# --- where temperatures come from ---


class Figures(msgspec.Struct, frozen=True):
    """How good probabilities are, on rows whose answers are known."""

    accuracy: float
    log_loss: float
    calibration_error: float


class Fit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found for one type of question. A note says why a temperature is not what the rows alone would say."""

    rows: int
    temperature: float
    before: Figures
    after: Figures
    note: str = ""


class Calibration(msgspec.Struct, frozen=True):
    """The calibration file: what was fitted, for which model, and what it did to the rows that it was fitted on."""

    model: str
    kind: str
    version: str
    temperatures: dict[str, float]
    fits: dict[str, Fit]

    def encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


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
            raise ValueError(f"{_FORMS} ({name} stands twice)")
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
            raise ValueError(f"{_FORMS} ({kind!r} is none of {', '.join(QUESTION_TYPES)})")
        if not _in_range(temperature):
            raise ValueError(f"{_FORMS} ({kind} is {temperature:g})")
    return Temperatures(**found, fingerprint=name, model=model)


def _in_range(temperature: float) -> bool:
    return COOLEST <= temperature <= HOTTEST


# --- fitting ---


class Judged(NamedTuple):
    """A question that was asked: the weights that the engine gave, and the number of the option that is right."""

    weights: Sequence[float]
    right: int


class Bin(NamedTuple):
    """The rows whose top option got about the same probability."""

    rows: int
    confidence: float
    accuracy: float


def fit(judged: Sequence[Judged]) -> Fit:
    """The temperature at which the right answers are most likely, and what it does."""
    before = figures(judged, 1.0)
    if len(judged) < LEAST_ROWS:
        return Fit(len(judged), 1.0, before, before, f"kept at 1: fewer than {LEAST_ROWS} rows")
    logs = [([math.log(max(share, _LEAST_SHARE)) for share in _relative(row.weights)], row.right) for row in judged]

    def loss(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        return math.fsum(_surprise(row, right, temperature) for row, right in logs)

    # The loss is convex in 1/T, so in log T it has one valley: a search that narrows it down cannot miss.
    lowest, highest = math.log(COOLEST), math.log(HOTTEST)
    found = golden_section(loss, lowest, highest)
    if loss(found) > loss(0.0) - 1e-9 * len(judged):
        return Fit(len(judged), 1.0, before, before, "kept at 1: no other temperature is better")
    if found - lowest < 0.01:
        return Fit(len(judged), 1.0, before, before, "kept at 1: the model is right so often that none can be told")
    temperature = round(math.exp(found), 4)
    note = "the highest there is: on these rows the model is no better than a guess" if highest - found < 0.01 else ""
    return Fit(len(judged), temperature, before, figures(judged, temperature), note)


def golden_section(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-4) -> float:
    """Where a function with one valley is lowest, between two bounds."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (low + high) / 2


def figures(judged: Sequence[Judged], temperature: float) -> Figures:
    """How good the probabilities are at a temperature. The calibration error is the mean distance between how sure the
    model is and how often it is right, over 15 bins of equal width."""
    if not judged:
        return Figures(0.0, 0.0, 0.0)
    losses = [
        _surprise([math.log(max(share, _LEAST_SHARE)) for share in _relative(row.weights)], row.right, temperature)
        for row in judged
    ]
    bins = [one for one in reliability(judged, temperature) if one.rows]
    hits = math.fsum(one.rows * one.accuracy for one in bins)
    error = math.fsum(one.rows * abs(one.accuracy - one.confidence) for one in bins)
    return Figures(hits / len(judged), math.fsum(losses) / len(judged), error / len(judged))


def reliability(judged: Iterable[Judged], temperature: float) -> list[Bin]:
    """15 bins of equal width over the probability of the top option: how sure the model is, how often it is right."""
    rows, sure, hits = [0] * BINS, [0.0] * BINS, [0] * BINS
    for weights, right in judged:
        shares = list(apply(weights, temperature))
        top = max(shares)
        confidence = top / math.fsum(shares)
        place = min(int(confidence * BINS), BINS - 1)
        rows[place] += 1
        sure[place] += confidence
        hits[place] += shares.index(top) == right
    return [
        Bin(count, total / count, hit / count) if count else Bin(0, 0.0, 0.0)
        for count, total, hit in zip(rows, sure, hits, strict=True)
    ]


def _relative(weights: Sequence[float]) -> list[float]:
    top = float(max(weights))
    return [float(weight) / top for weight in weights]


def _surprise(logs: Sequence[float], right: int, temperature: float) -> float:
    """Minus the logarithm of what the right option gets. The largest of `logs` is 0, so nothing can overflow."""
    return math.log(math.fsum(math.exp(value / temperature) for value in logs)) - logs[right] / temperature
