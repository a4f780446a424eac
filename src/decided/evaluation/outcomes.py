"""Outcomes that a server kept, as labels: what the model said is in the file, so nothing is asked again."""

import array
import math
from pathlib import Path

import msgspec

from decided.contract.answers import is_distribution
from decided.errors import InputError
from decided.evaluation.labels import LabelEvidence, LabelledQuestion, Source
from decided.profiles.fingerprint import fingerprint
from decided.profiles.floats import unpack
from decided.serving.ledger import OutcomeLine, older


def read_outcomes(path: Path) -> tuple[Source, list[LabelEvidence], list[str]]:
    """The model, the questions with what it said, and what cannot be used. What was told last about an answer counts,
    and of several models the one that answered last."""
    latest: dict[tuple[str, str, int, str], OutcomeLine] = {}
    problems = []
    for file in (older(path), path):
        if file == path or file.exists():
            for number, line in enumerate(_content(file).splitlines(), start=1):
                try:
                    one = msgspec.json.decode(line, type=OutcomeLine)
                    _check(one)
                    latest[one.client, one.request_id, one.index, fingerprint(one.question)] = one
                except ValueError as error:  # what msgspec raises is a ValueError
                    problems.append(f"line {number} of {file}: {error}")
    if not latest:
        raise InputError(f"{path}: there is no outcome that can be used")
    newest = max(latest.values(), key=lambda one: one.time)
    source = Source(newest.model, newest.digest)
    others = sum((one.model, one.digest) != source for one in latest.values())
    if others:
        problems.append(f"{others} outcomes of answers by other models or weights than {source.model}")
    found: dict[str, LabelEvidence] = {}
    first_with: dict[str, str] = {}  # the same features: the same text, which must not be on both sides of a fold
    for (*_, mark), one in latest.items():
        if (one.model, one.digest) == source:
            request = f"request {one.request_id}" + (f", index {one.index}" if one.index else "")
            request += f" of {one.client}" if one.client else ""
            text = one.state or (first_with.setdefault(one.features, request) if one.features else request)
            _add(found.setdefault(mark, LabelEvidence(LabelledQuestion(one.name, one.question))), one, text)
    return source, list(found.values()), problems


def _add(evidence: LabelEvidence, one: OutcomeLine, text: str) -> None:
    labels = evidence.labels
    keys = list(one.question.keys())
    labels.rows.append(len(labels.rows) + 1)
    labels.states.append(text)
    labels.right.append(labels.options.index(keys[one.right]))
    evidence.weights.append([float(one.weights[keys.index(key)]) for key in labels.options])
    evidence.features.append(_features(one))


def _check(one: OutcomeLine) -> None:
    """What the types cannot say; ValueError says what is wrong."""
    if not 0 <= one.right < len(one.question.keys()) == len(one.weights) or not is_distribution(one.weights):
        raise ValueError("it does not fit its question")
    if not all(map(math.isfinite, _features(one) or ())):
        raise ValueError("its features are not finite")


def _features(one: OutcomeLine) -> "array.array[float] | None":
    return unpack(one.features) if one.features else None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"--outcomes {path} cannot be read: {error.strerror or error}") from None
