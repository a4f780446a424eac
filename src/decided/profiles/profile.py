"""The profile of one question: what labels taught, on which weights, and how good it was on labels it had not seen.

A profile is a JSON file. Everything in it is checked when it is read: a file that was cut, edited or made for another
question is refused in one sentence.
"""

import array
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decided.contract.types import Question
from decided.errors import InputError
from decided.profiles.fingerprint import canonical_keys, fingerprint
from decided.profiles.floats import pack, unpack

FORMAT = "decided-profile-1"
MOST_BYTES = 32 * 2**20
MOST = 1e9
"""No number that labels teach comes near it, and sums of such numbers stay finite."""

RECIPES = ("as it is", "temperature", "bias", "head")
"""From the simplest: the model's probabilities untouched; sharpened or softened; shifted too; with a head on its
features too."""


class Head(msgspec.Struct, frozen=True):
    """A matrix, packed: a row of `width` numbers for each option."""

    width: int
    values: str

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> "Head":
        return cls(len(rows[0]), pack(number for row in rows for number in row))

    def numbers(self) -> "array.array[float]":
        return unpack(self.values)


class Figures(msgspec.Struct, frozen=True):
    """How good probabilities are, on rows whose answers are known."""

    accuracy: float
    log_loss: float
    calibration_error: float


class Threshold(msgspec.Struct, frozen=True):
    """The probability from which answers are right as often as was asked, and what that leaves."""

    probability: float
    target_accuracy: float
    accuracy: tuple[float, float, float]
    """On labels that were held back: the value, and between what it lies with a probability of 95 %."""
    share: float
    """Of texts that are decided."""


class Sets(msgspec.Struct, frozen=True):
    """Sets of options that hold the right one as often as was asked."""

    coverage: float
    floor: float
    """The probability from which an option cannot be excluded."""
    size: float
    """How many options such a set has on average."""


class Profile(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was learnt about one question. Numbers of options stand in their canonical order."""

    format: str
    name: str
    question: Question
    fingerprint: str
    model: str
    weights: str
    """The digest of the model's weights, empty where there is none."""
    recipe: str
    labels: int
    before: Figures
    after: Figures
    scale: float
    bias: list[float]
    head: Head | None = None
    threshold: Threshold | None = None
    sets: Sets | None = None
    version: str = ""
    """Of the program that made it."""

    def encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def read_profile(path: Path) -> tuple[Profile, str]:
    """A profile and its identity, `name@digest`. Raises InputError that names the file."""
    try:
        if not path.is_file():  # a pipe or a device would never end
            raise ValueError("it is not a file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES // 2**20} MiB")
        profile = msgspec.json.decode(content, type=Profile)
        check(profile)
    except OSError as error:
        raise InputError(f"the profile {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # what msgspec raises is a ValueError
        raise InputError(f"{path} is not a profile that can be used: {error}") from None
    return profile, identity(profile, content)


def identity(profile: Profile, content: bytes) -> str:
    """How answers name it: the question's name, and a digest that changes with whatever is learnt anew."""
    return f"{profile.name}@{hashlib.sha256(content).hexdigest()[:6]}"


def check(profile: Profile) -> None:
    """What the types cannot say; ValueError says what is wrong."""
    if profile.format != FORMAT:
        raise ValueError(f"its format is {profile.format!r}, and this version reads {FORMAT!r}")
    if profile.fingerprint != fingerprint(profile.question):
        raise ValueError("its fingerprint is not that of its question: teach it anew for the question as it is now")
    options = len(canonical_keys(profile.question))
    if profile.recipe not in RECIPES or len(profile.bias) != options:
        raise ValueError("what it learnt does not fit its question")
    numbers = [profile.scale, *profile.bias]
    if profile.head is not None:
        numbers += _head_numbers(profile.head, options)
    if profile.scale < 0 or not all(abs(number) <= MOST for number in numbers):  # false for what is no number
        raise ValueError("it holds numbers that are not finite, or far too large, or a negative scale")
    probabilities = [profile.threshold.probability] if profile.threshold is not None else []
    probabilities += [profile.sets.floor] if profile.sets is not None else []
    if not all(0 <= probability <= 1 for probability in probabilities):
        raise ValueError("its threshold or its sets' floor is not a probability")


def _head_numbers(head: Head, options: int) -> "array.array[float]":
    try:
        numbers = head.numbers()
    except ValueError:
        raise ValueError("its head is damaged") from None
    if head.width < 1 or len(numbers) != head.width * options:
        raise ValueError("its head is damaged, or of another number of options")
    return numbers
