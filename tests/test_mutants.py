"""The test of the conformance test: models that are wrong in one way each, and the property that must notice.

They are made from the worked example of `docs/kinds.md`, which is right, so that nothing else is wrong with them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decided.contract.types import Choice, Noul, Question, Score
from decided.engines.api import Cut, Encoded, Item
from tests import conformance
from tests.test_conformance import worked_example

Weights = list[list[list[float]]]
Change = Callable[[Any], None]
"""Spoils a model."""
Property = Callable[[Any], None]


# --- ways to spoil a model ---


def run_by(run: Callable[[Callable[[Sequence[Item]], Weights], Sequence[Item]], Weights]) -> Change:
    """Batches are run by this function, which is given the real one."""

    def change(model: Any) -> None:
        real = model.run
        model.run = lambda items: run(real, items)

    return change


def weights(change: Callable[[list[float]], list[float]]) -> Change:
    """The weights of every question are changed."""
    return run_by(lambda run, items: [[change(list(each)) for each in found] for found in run(items)])


def encoded(change: Callable[[Encoded, Any, str], dict[str, Any]]) -> Change:
    """Of what a state becomes, some fields are others, made of itself, the prepared questions and the state."""

    def spoil(model: Any) -> None:
        encode = model.encode

        def encode_badly(prepared: Any, state: str) -> Encoded:
            reading: Encoded = encode(prepared, state)
            return replace(reading, **change(reading, prepared, state))

        model.encode = encode_badly

    return spoil


def cuts(change: Callable[[Cut], Cut]) -> Change:
    return encoded(lambda reading, *_: {"cuts": [[change(cut) for cut in of] for of in reading.cuts]})


def items(change: Callable[[Item], Item]) -> Change:
    return encoded(lambda reading, *_: {"items": [change(item) for item in reading.items]})


def states(change: Callable[[str], str]) -> Change:
    """The model reads another state than it is given."""

    def spoil(model: Any) -> None:
        encode = model.encode
        model.encode = lambda prepared, state: encode(prepared, change(state))

    return spoil


def knowing(change: Callable[[Question, list[float]], list[float]]) -> Change:
    """The weights of a question are changed by someone who knows it."""

    def spoil(model: Any) -> None:
        prepare, encode, run = model.prepare, model.encode, model.run
        model.prepare = lambda questions: list(zip(questions, prepare(questions), strict=True))

        def encode_both(prepared: Any, state: str) -> Encoded:
            reading: Encoded = encode([asked for _, asked in prepared], state)
            known = [question for question, _ in prepared]
            return replace(reading, items=[replace(item, payload=(known, item)) for item in reading.items])

        def run_both(items: Sequence[Item]) -> Weights:
            found = run([item.payload[1] for item in items])
            return [
                [change(item.payload[0][number], each) for number, each in zip(item.questions, of, strict=True)]
                for item, of in zip(items, found, strict=True)
            ]

        model.encode, model.run = encode_both, run_both

    return spoil


def turned(*kinds: type[Question]) -> Change:
    return knowing(lambda question, found: found[::-1] if isinstance(question, kinds) else found)


def sort_by_name(question: Question, found: list[float]) -> list[float]:
    return [weight for _, weight in sorted(zip(map(str, question.options()), found, strict=True))]


@run_by
def grow_bold_in_company(run: Callable[[Sequence[Item]], Weights], items: Sequence[Item]) -> Weights:
    return [[[weight ** (1 + 0.01 * len(items)) for weight in each] for each in found] for found in run(items)]


@run_by
def pad_to_the_longest(run: Callable[[Sequence[Item]], Weights], items: Sequence[Item]) -> Weights:
    padding = [0.01 * (max(item.cost for item in items) - item.cost) for item in items]
    found = zip(run(items), padding, strict=True)
    return [[[weight + more for weight in each] for each in of_item] for of_item, more in found]


def remember_the_batch_before(model: Any) -> None:
    run, before = model.run, [0.0]

    def biased(items: Sequence[Item]) -> Weights:
        more, before[0] = before[0] / 1000, sum(item.cost for item in items)
        return [[[each[0] + more, *each[1:]] for each in found] for found in run(items)]

    model.run = biased


@run_by
def guess(run: Callable[[Sequence[Item]], Weights], items: Sequence[Item]) -> Weights:
    try:
        return run(items)
    except Exception:
        return [[[1.0] * 2 for _ in item.questions] for item in items]


@run_by
def use_the_items_up(run: Callable[[Sequence[Item]], Weights], items: Sequence[Item]) -> Weights:
    taken = [replace(item) for item in items]
    for item in items:
        item.payload = None
    return run(taken)


def after_a_failure(change: Callable[[Weights], Weights]) -> Change:
    """Once it has failed, the model says something else."""

    def spoil(model: Any) -> None:
        run, failed = model.run, [False]

        def shaken(items: Sequence[Item]) -> Weights:
            try:
                found: Weights = run(items)
            except Exception:
                failed[0] = True
                raise
            return change(found) if failed[0] else found

        model.run = shaken

    return spoil


Describe = Callable[[Sequence[Item], Item], list[float]]


def described(vector: Describe, kind: Any = np.float32, unasked: bool = False) -> Change:
    """The model gives features, made of the batch and the item."""

    def spoil(model: Any) -> None:
        real, model.gives_features = model.run, True

        def run(items: Sequence[Item]) -> Weights:
            for item in items:
                if item.wants_features or unasked:
                    item.features = np.array(vector(items, item), kind)
            found: Weights = real(items)
            return found

        model.run = run

    return spoil


def first_word(item: Item) -> list[float]:
    """Features that are right."""
    return [float(word % 97) for word in sorted(item.payload[0])[:1] or [0]] + [float(len(item.payload[0]))]


def raise_again(_: Weights) -> Weights:
    raise RuntimeError("still broken")


MUTANTS: dict[Property, dict[str, Change]] = {
    conformance.answers_are_complete_and_finite: {
        "forgets the last question": run_by(lambda run, items: [found[:-1] for found in run(items)]),
        "forgets the last option": weights(lambda found: found[:-1] or found),
        "has an option too many": weights(lambda found: [*found, 1.0]),
        "answers NaN": weights(lambda found: [*found[:-1], math.nan]),
        "answers infinity": weights(lambda found: [*found[:-1], math.inf]),
        "answers less than nothing": weights(lambda found: [*found[:-1], -0.1] if len(found) > 1 else found),
        "has no weight for a single option": weights(lambda found: found if len(found) > 1 else [0.0]),
        "has letters for 26 options": weights(lambda found: found[:26]),
        "needs instructions": knowing(lambda question, found: found if question.instructions else []),
        "cannot read what is not ASCII": states(lambda state: state.encode("ascii").decode()),
    },
    conformance.options_keep_their_order: {
        "turns the options round": weights(lambda found: found[::-1]),
        "turns those of a choice round": turned(Choice),
        "turns those of a score round": turned(Score),
        "turns those of a noul round": turned(Noul),
        "turns many options round": weights(lambda found: found[::-1] if len(found) > 26 else found),
        "is one place off": weights(lambda found: found[1:] + found[:1]),
        "swaps the first two": weights(lambda found: [*found[1::-1], *found[2:]]),
        "sorts by weight": weights(lambda found: sorted(found, reverse=True)),
        "sorts by name": knowing(sort_by_name),
        "says the same of all": weights(lambda found: [1.0] * len(found)),
    },
    conformance.alone_is_as_in_company: {
        "is bolder in large batches": grow_bold_in_company,
        "pads short states to the longest": pad_to_the_longest,
        "mixes up who asked": run_by(lambda run, items: run(items)[::-1]),
        "remembers the batch before": remember_the_batch_before,
        "says the same whatever it reads": weights(lambda found: [1.0] * len(found)),
    },
    conformance.what_is_cut_is_reported: {
        "cuts without a word": encoded(lambda reading, *_: {"cuts": [()] * len(reading.cuts)}),
        "reads a hundred words and tells of more": states(
            lambda state: " ".join(state.split()[:100]) if len(state) < 9000 else state
        ),
        "always says that it cut": encoded(lambda reading, *_: {"cuts": [[Cut("state", 1, 2)]] * len(reading.cuts)}),
        "tells the first question alone": encoded(
            lambda reading, *_: {"cuts": [reading.cuts[0], *[()] * (len(reading.cuts) - 1)]}
        ),
        "has one entry for all questions": encoded(lambda reading, *_: {"cuts": reading.cuts[:1]}),
        "blames the instructions": cuts(lambda cut: cut._replace(part="instructions")),
        "says that it kept everything": cuts(lambda cut: cut._replace(kept=cut.given)),
        "does not count what it was given": cuts(lambda cut: cut._replace(given=cut.kept + 1)),
    },
    conformance.tokens_are_counted: {
        "counts nothing": encoded(lambda *_: {"input_tokens": 0}),
        "counts the questions alone": encoded(lambda _, prepared, __: {"input_tokens": 10 * len(prepared)}),
        "counts the state alone": encoded(lambda _, __, state: {"input_tokens": 1 + len(state.split())}),
        "counts the state for every question": encoded(
            lambda reading, prepared, state: {"input_tokens": reading.input_tokens + len(state.split()) * len(prepared)}
        ),
        "counts in fractions": encoded(lambda reading, *_: {"input_tokens": reading.input_tokens + 0.5}),
        "costs nothing": items(lambda item: replace(item, cost=0)),
        "leaves a question to nobody": items(lambda item: replace(item, questions=item.questions[:-1])),
        "puts a question into two items": encoded(lambda reading, *_: {"items": [*reading.items, *reading.items]}),
    },
    conformance.a_failure_is_ours_and_passes: {
        "guesses where it fails": guess,
        "never gets over it": after_a_failure(raise_again),
        "answers otherwise afterwards": after_a_failure(
            lambda found: [[[each[0] + 1, *each[1:]] for each in of_item] for of_item in found]
        ),
        "uses its items up": use_the_items_up,
    },
    conformance.features_are_of_the_state_alone: {
        "describes all states alike": described(lambda *_: [1.0, 2.0]),
        "describes the batch": described(lambda items, item: [*first_word(item), float(len(items))]),
        "describes the questions": described(lambda _, item: [*first_word(item), float(len(item.payload[1]))]),
        "describes the first question": described(lambda _, item: [*first_word(item), float(len(item.payload[1][0]))]),
        "describes the next state": described(lambda items, item: first_word(items[items.index(item) - 1])),
        "describes without being asked": described(lambda _, item: first_word(item), unasked=True),
        "describes in double precision": described(lambda _, item: first_word(item), np.float64),
        "describes at any length": described(lambda _, item: [float(len(item.payload[0]))] * len(item.payload[0])),
        "divides by nothing": described(lambda _, item: [*first_word(item), 1.0 if item.payload[0] else math.nan]),
        "promises features and gives none": lambda model: setattr(model, "gives_features", True),
    },
}


# --- the test of the test ---


@pytest.mark.parametrize("prop", MUTANTS, ids=lambda prop: str(prop.__name__))
def test_a_right_model_has_the_property(prop: Property, monkeypatch: pytest.MonkeyPatch) -> None:
    prop(worked_example(monkeypatch))


def test_a_right_description_has_the_property(monkeypatch: pytest.MonkeyPatch) -> None:
    model = worked_example(monkeypatch)
    described(lambda _, item: first_word(item))(model)
    conformance.features_are_of_the_state_alone(model)


@pytest.mark.parametrize(("prop", "name"), [(prop, name) for prop, of in MUTANTS.items() for name in of])
def test_a_wrong_model_is_caught(prop: Property, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = worked_example(monkeypatch)
    MUTANTS[prop][name](model)
    try:
        prop(model)
    except Exception:
        return
    pytest.fail(f"a model that {name} passes {prop.__name__}")


def test_all_properties_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    for prop in MUTANTS:
        monkeypatch.setattr(conformance, prop.__name__, lambda *_, name=prop.__name__: held.append(name))
    conformance.hold(worked_example(monkeypatch))
    assert held == [prop.__name__ for prop in MUTANTS]


def test_a_model_that_knows_nothing_is_held_to_what_its_authors_say(monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, indifferent = (worked_example(monkeypatch) for _ in range(3))
    of_order = MUTANTS[conformance.options_keep_their_order]
    of_order["turns the options round"](wrong)
    of_order["says the same of all"](indifferent)

    def says(state: str, question: Question) -> Sequence[float]:
        return conformance.decide(right, [state], [question], together=False)[0][0]

    conformance.options_keep_their_order(right, says)
    with pytest.raises(AssertionError):
        conformance.options_keep_their_order(wrong, says)
    with pytest.raises(AssertionError):  # nobody could tell
        conformance.options_keep_their_order(indifferent, lambda _, asked: [1 / len(asked.keys())] * len(asked.keys()))
