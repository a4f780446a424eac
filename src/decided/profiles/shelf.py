"""The profiles that are loaded, found by the question that is asked."""

import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from decided.contract.answers import Mark, is_distribution
from decided.contract.types import Question, encode
from decided.errors import InferenceFailed, InputError
from decided.profiles.fingerprint import canonical_keys, fingerprint
from decided.profiles.profile import Profile, read_profile

log = logging.getLogger("decided.profiles")

LEAST_SHARE = 1e-12
"""Nothing is impossible: an option that the model gave nothing can still be shifted back."""
_KNOWN_QUESTIONS = 1024


class AppliedProfile:
    """A profile for a question with its options in one order."""

    def __init__(self, profile: Profile, identity: str, question: Question) -> None:
        self.profile = profile
        self.label = f"{profile.name}-{profile.fingerprint[:6]}"  # for metrics: stays when it is taught anew
        self.mark = Mark(
            identity,
            profile.threshold.probability if profile.threshold else None,
            profile.sets.floor if profile.sets else None,
        )
        order = canonical_keys(question)
        self.places = places = [order.index(key) for key in question.keys()]  # noqa: SIM118
        self._changes_nothing = profile.recipe == "as it is"
        self._scale = profile.scale
        self._bias = [profile.bias[place] for place in places]
        self._head: Any = None
        if profile.head is not None:
            import numpy as np  # a profile without a head needs none of it

            rows = np.array(profile.head.numbers(), np.float32).reshape(len(order), profile.head.width)
            self._head = rows[places]

    @property
    def wants_features(self) -> bool:
        return self._head is not None

    def apply(self, weights: Sequence[float], features: Any) -> Sequence[float]:
        """The model's weights, with what was learnt. What is no distribution stays: who makes answers refuses it."""
        if self._changes_nothing or not is_distribution(weights):
            return weights
        top = max(weights)
        logits = [
            self._scale * math.log(max(weight / top, LEAST_SHARE)) + bias
            for weight, bias in zip(weights, self._bias, strict=True)
        ]
        if self._head is not None:
            if len(features) != self._head.shape[1]:
                raise InferenceFailed(f"the model gave no features that fit the profile {self.mark.profile}")
            logits = [logit + learnt for logit, learnt in zip(logits, (self._head @ features).tolist(), strict=True)]
        highest = max(logits)
        return [math.exp(logit - highest) for logit in logits]


class Profiles:
    """Profiles by the fingerprint of their question."""

    def __init__(self, found: Iterable[tuple[Profile, str]] = ()) -> None:
        self._by_fingerprint = {profile.fingerprint: (profile, identity) for profile, identity in found}
        self._known: dict[bytes, AppliedProfile | None] = {}  # by the question as it was asked

    def __len__(self) -> int:
        return len(self._by_fingerprint)

    @property
    def identities(self) -> list[str]:
        return sorted(identity for _, identity in self._by_fingerprint.values())

    def of(self, question: Question) -> AppliedProfile | None:
        """Most clients ask the same questions of every state: what was found for them is kept."""
        key = encode(question)
        try:
            return self._known[key]
        except KeyError:
            pass
        found = self._by_fingerprint.get(fingerprint(question))
        applied = None if found is None else AppliedProfile(*found, question)
        if len(self._known) >= _KNOWN_QUESTIONS:
            del self._known[next(iter(self._known))]
        self._known[key] = applied
        return applied


def read_profiles(folder: Path, model: str, weights: str, features: bool) -> Profiles:
    """All profiles of a folder, for the model that is served: all of them can be used, or InputError says which cannot
    and what to do."""
    if not folder.is_dir():
        raise InputError(f"--profiles {folder}: there is no such folder")
    found: dict[str, tuple[Profile, str]] = {}
    for path in sorted(folder.glob("*.json")):
        profile, identity = read_profile(path)
        _check_model(path, profile, model, weights, features)
        if profile.fingerprint in found:
            other = found[profile.fingerprint][1]
            raise InputError(f"the profile {path} is for the same question as {other}: keep one of the two")
        found[profile.fingerprint] = profile, identity
    if not found:
        log.warning("--profiles %s: there is no profile (*.json) in it", folder)
    return Profiles(found.values())


def _check_model(path: Path, profile: Profile, model: str, weights: str, features: bool) -> None:
    again = "teach it anew with `decided teach`, or remove the file"
    if profile.model != model:
        raise InputError(f"the profile {path} was learnt on the model {profile.model}, not on {model}: {again}")
    if profile.weights and weights and profile.weights != weights:
        raise InputError(
            f"the profile {path} was learnt on other weights of {model} ({profile.weights}, and these are {weights}): "
            f"{again}"
        )
    if profile.weights and not weights:
        raise InputError(
            f"the profile {path} was learnt on weights in process ({profile.weights}), and what {model} runs on here "
            f"is not known: {again}"
        )
    if profile.head is not None and not features:
        raise InputError(
            f"the profile {path} needs the features of a model in process, and {model} gives none: {again}"
        )
