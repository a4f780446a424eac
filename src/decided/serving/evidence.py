"""What an answer rests on: the parts of the state without which the chosen option would be less likely.

A state whose answers are to be explained is asked as it is, and once without each of its parts. All of that is one job
of the engine, so it runs in batches and has no more of the model than any other request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from decided.contract.answers import normalise
from decided.contract.types import Answer, Evidence
from decided.engines.api import Emit, Verdict
from decided.errors import DecidedError
from decided.serving.parts import Part, Span, parts_of

MOST_EVIDENCE = 5
"""Parts that are told, per answer."""
LEAST_EFFECT = 0.01
"""Less is not told: it may be the noise of the model's numbers."""

Weights = Sequence[Sequence[float]]
"""For each question, of each option."""


@dataclass(slots=True)
class ExplainedVerdict(Verdict):
    """The verdict on a state, and those on the same state without one of its parts. Tokens are those of all."""

    removals: Sequence[tuple[Part, Verdict]] = ()


class Removals(Sequence[str]):
    """Every state, followed by what is left of it without one part. The texts are made when they are read: sixteen
    times a large request would be much to keep."""

    def __init__(self, states: Sequence[str], sent: Sequence[Any]) -> None:
        self._states = states
        self._sent = sent
        self._entries: list[tuple[int, Part | None]] = []
        self._counts: list[int] = []
        for index, state in enumerate(sent):
            parts = parts_of(state)
            self._entries += [(index, None), *((index, part) for part in parts)]
            self._counts.append(1 + len(parts))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: Any) -> Any:
        index, part = self._entries[place]
        return self._states[index] if part is None else part.without(self._sent[index])

    def fold(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """One verdict per state, from those on all that was asked."""
        folded: list[Verdict] = []
        take = self.folding(lambda _index, verdict: folded.append(verdict))  # type: ignore[arg-type]
        for place, verdict in enumerate(verdicts):
            take(place, verdict)
        return folded

    def folding(self, emit: Emit) -> Emit:
        """The same for verdicts that come one by one. A state fails with the first of its parts that does."""
        waiting: list[dict[int, Verdict]] = [{} for _ in self._counts]
        failed: set[int] = set()

        def take(place: int, found: Verdict | DecidedError) -> None:
            index, _ = self._entries[place]
            if index in failed:
                return
            if isinstance(found, DecidedError):
                failed.add(index)
                emit(index, found)
                return
            waiting[index][place] = found
            if len(waiting[index]) == self._counts[index]:
                emit(index, self._join(waiting[index]))
                waiting[index] = {}

        return take

    def _join(self, found: dict[int, Verdict]) -> ExplainedVerdict:
        first, *others = sorted(found)
        whole = found[first]
        read = sum(verdict.input_tokens for verdict in found.values())
        written = sum(verdict.output_tokens for verdict in found.values())
        removals = [(part, found[place]) for place in others if (part := self._entries[place][1]) is not None]
        return ExplainedVerdict(whole.weights, read, written, whole.cuts, whole.features, removals)


def explain(answers: Mapping[str, Answer], removals: Sequence[tuple[Part, Weights]]) -> dict[str, Answer]:
    """The answers with their evidence, from the weights that the engine gave without each part."""
    explained: dict[str, Answer] = {}
    for number, (name, answer) in enumerate(answers.items()):
        shares = list(answer.probabilities.values())
        chosen = shares.index(max(shares))
        effects = [
            (shares[chosen] - normalise(weights[number], len(shares))[chosen], part) for part, weights in removals
        ]
        most = sorted((one for one in effects if one[0] >= LEAST_EFFECT), key=lambda one: one[0], reverse=True)
        evidence = [_evidence(part, effect) for effect, part in most[:MOST_EVIDENCE]]
        explained[name] = structs.replace(answer, evidence=evidence)
    return explained


def _evidence(part: Part, effect: float) -> Evidence:
    if isinstance(part, Span):
        return Evidence(start=part.start, end=part.end, effect=effect)
    return Evidence(pointer=part.pointer, effect=effect)
