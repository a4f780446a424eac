"""What every in-process kind must do, whatever it is made of. `docs/kinds.md` says how a new kind comes under it.

`hold(model)` runs all of it. The kinds of the base install come under it in `tests/test_conformance.py`, those that
need PyTorch in `tests/torch/test_conformance.py`. That each property can fail is shown in `tests/test_mutants.py`.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from decided.contract.answers import answer
from decided.contract.types import Choice, Noul, Outcomes, Question, Score
from decided.engines.api import Encoded, Item, Model, is_parallel, run_to_end
from decided.errors import InferenceFailed
from decided.serving.worker import Worker
from tests.support.questions import LONG, STATES, typed

ALIKE = 1e-3
ONE_OPTION: list[Question] = [Choice({"only": None}, "Which?"), Score(["only"], "How much?")]
MANY: list[Question] = [Choice({f"option {number}": None for number in range(30)}, "Which one?")]
BARE: list[Question] = [Choice({"a": None, "b": None}), Noul(None, None)]
ODD = "\x00\u2028 \U0001f600 [MASK] <|im_end|> <<LABEL>> </s>"
NAMING = "An angry writer has technical bugs with order 7 and unwanted mail"
"""A state on which no model that reads it is indifferent."""
THINGS = [
    *("apple", "bicycle", "candle", "doctor", "engine", "forest", "guitar", "hammer", "island", "jacket", "kitchen"),
    *("ladder", "market", "needle", "orange", "pencil", "queen", "river", "school", "tiger", "umbrella", "village"),
    *("window", "yellow", "zebra", "bridge", "castle", "desert", "eagle", "flower"),
]

Says = Callable[[str, Question], Sequence[float]]
"""What the model's authors say to a question about a state: probabilities in the order of the options."""


def hold(model: Model, longest: str = LONG * 60, says: Says | None = None) -> None:
    """`longest` is a state that the model cannot read to its end. A model of random weights knows nothing, and which
    of its options is which cannot be told by asking: such a one needs `says`."""
    answers_are_complete_and_finite(model)
    options_keep_their_order(model, says)
    alone_is_as_in_company(model)
    what_is_cut_is_reported(model, longest)
    tokens_are_counted(model)
    a_failure_is_ours_and_passes(model)
    features_are_of_the_state_alone(model)


def decide(model: Model, states: list[str], questions: list[Question], together: bool) -> list[list[list[float]]]:
    """Probabilities by state and question, each piece alone or all in one batch."""
    readings = [model.encode(model.prepare(questions), state) for state in states]
    return collect(model, readings, questions, together)


def collect(
    model: Model, readings: Sequence[Encoded], questions: list[Question], together: bool
) -> list[list[list[float]]]:
    found: list[list[list[float]]] = []
    items = [item for reading in readings for item in reading.items]
    answers = iter(run_to_end(model, items) if together else [run_to_end(model, [item])[0] for item in items])
    for reading in readings:
        of_state: list[list[float]] = [[] for _ in questions]
        for item in reading.items:
            for number, weights in zip(item.questions, next(answers), strict=True):
                of_state[number] = _shares(weights)
        found.append(of_state)
    return found


def _shares(weights: Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [float(weight) / total for weight in weights]


# --- the properties ---


def answers_are_complete_and_finite(model: Model) -> None:
    questions = [*typed(), *ONE_OPTION, *(MANY if model.card.max_options >= 30 else []), *BARE]
    for state in (*STATES, ODD):
        (answers,) = decide(model, [state], questions, together=True)
        assert len(answers) == len(questions)
        for question, weights in zip(questions, answers, strict=True):
            assert len(weights) == len(question.keys())
            assert all(math.isfinite(weight) and weight >= 0 for weight in weights)
            assert math.fsum(weights) == pytest.approx(1)
            assert list(answer(question, weights).probabilities) == list(question.keys())


def options_keep_their_order(model: Model, says: Says | None = None) -> None:
    """A weight belongs to the option at its place, for every type of question."""
    if says is None:
        _each_option_is_likeliest_where_the_state_names_it(model)
        return
    states, turned = [STATES[0], NAMING], 0.0
    for state, answers in zip(states, decide(model, states, typed(), together=True), strict=True):
        for question, shares in zip(typed(), answers, strict=True):
            wanted = list(says(state, question))
            assert shares == pytest.approx(wanted, abs=ALIKE)
            turned = max(turned, *(abs(here - there) for here, there in zip(wanted, reversed(wanted), strict=True)))
    assert turned > 20 * ALIKE  # else answers that are turned round would be the same


def _each_option_is_likeliest_where_the_state_names_it(model: Model) -> None:
    """What an option gains from being named says which one it is, however fond the model is of another one."""
    few = THINGS[:3]
    asked: list[tuple[Question, list[str]]] = [
        (Choice(dict.fromkeys(few), "Which one is it?"), few),
        (Choice(dict.fromkeys(few[::-1]), "Which one is it?"), few[::-1]),
        (Choice({str(number): thing for number, thing in enumerate(few)}, "Which one is it?"), few),
        (Score(list(few), "Which one is it?"), few),
        (Noul("Is it an apple?", Outcomes("an apple", "a bicycle")), few[:2]),
    ]
    if model.card.max_options >= len(THINGS):
        asked.append((Choice(dict.fromkeys(THINGS), "Which one is it?"), THINGS))
    for question, things in asked:
        places = sorted({0, 1, len(things) // 2, len(things) - 1})
        states = [f"It is about the {things[place]} and nothing else" for place in places]
        found = [answers[0] for answers in decide(model, states, [question], together=True)]
        for place, shares in zip(places, found, strict=True):
            assert shares[place] == max(others[place] for others in found), (question, things[place])
            assert sum(others[place] == shares[place] for others in found) == 1, (question, things[place])


def alone_is_as_in_company(model: Model) -> None:
    """Who else is in a batch must not matter, nor who was in the one before."""
    states = [NAMING, *STATES, LONG]
    alone, together, again = (decide(model, states, typed(), company) for company in (False, True, False))
    for company in (together, again):
        for one, other in zip(alone, company, strict=True):
            for here, there in zip(one, other, strict=True):
                assert here == pytest.approx(there, abs=ALIKE)
    assert alone[0] != alone[1]  # else anything would be alike


def what_is_cut_is_reported(model: Model, longest: str = LONG * 60) -> None:
    prepared = model.prepare(typed())
    assert not any(model.encode(prepared, STATES[1]).cuts)
    for once, twice in zip(*(_cuts_of_the_state(model, state) for state in (longest, longest * 2)), strict=True):
        assert 0 <= once.kept < once.given
        assert twice.kept == once.kept
        assert 1.5 < twice.given / once.given < 2.5
    _what_is_not_cut_is_read(model)


def _cuts_of_the_state(model: Model, state: str) -> list[Any]:
    cuts = model.encode(model.prepare(typed()), state).cuts
    assert len(cuts) == len(typed())
    found = [[cut for cut in of_question if cut.part == "state"] for of_question in cuts]
    assert [len(of_question) for of_question in found] == [1] * len(found)
    return [cut for (cut,) in found]


def _what_is_not_cut_is_read(model: Model) -> None:
    """Where nothing is said to be cut, the last word changes the answer."""
    questions: list[Question] = [Choice(dict.fromkeys(THINGS[:3]), "Which one is it?")]
    prepared = model.prepare(questions)
    texts = [["word " * size + thing for thing in THINGS[:2]] for size in (8, 16, 32, 64, 128, 256)]
    uncut = [pair for pair in texts if not any(any(model.encode(prepared, text).cuts) for text in pair)]
    one, other = decide(model, uncut[-1], questions, together=True)
    assert one != other


def tokens_are_counted(model: Model) -> None:
    """The state once, and each question; and every question is in one item."""
    few, many = model.prepare(typed()[:2]), model.prepare(typed())
    empty, short, long = (model.encode(many, state) for state in ("", "ok", STATES[0]))
    assert 0 < empty.input_tokens < short.input_tokens < long.input_tokens
    assert model.encode(few, "ok").input_tokens < short.input_tokens
    of_state = long.input_tokens - empty.input_tokens
    assert model.encode(few, STATES[0]).input_tokens - model.encode(few, "").input_tokens == of_state
    for reading in (empty, short, long):
        assert isinstance(reading.input_tokens, int)
        assert all(isinstance(item.cost, int) and item.cost > 0 for item in reading.items)
        numbers = [number for item in reading.items for number in item.questions]
        assert sorted(numbers) == list(range(len(typed())))


def a_failure_is_ours_and_passes(model: Model) -> None:
    """What makes the model fail is never guessed at, fails alone, with our error, and leaves the model as it was."""
    questions = typed()
    (wanted,) = decide(model, [NAMING], questions, together=True)
    good, bad = (model.encode(model.prepare(questions), text) for text in (NAMING, "bad"))
    _spoil(bad.items)
    company: Sequence[Item] = () if is_parallel(model) else good.items  # there, an item has a run of its own
    assert _fails(lambda: model.run([*company, *bad.items]))
    (after,) = collect(model, [good], questions, together=True)  # the very items that were in the batch that failed
    for here, there in zip(after, wanted, strict=True):
        assert here == pytest.approx(there, abs=ALIKE)
    asyncio.run(_fail_in_a_worker(model, wanted))


def _spoil(items: Sequence[Item]) -> None:
    for item in items:
        item.payload = None


def _fails(action: Callable[[], object]) -> bool:
    try:
        action()
    except Exception:
        return True
    return False


def features_are_of_the_state_alone(model: Model) -> None:
    """Whatever is asked in whatever order, whoever else is in the batch; and only where they are wanted."""
    if not getattr(model, "gives_features", False):
        return
    states = [NAMING, *STATES, LONG, ""]
    wanted = _features(model, states, typed(), together=False)
    for questions, together in ((typed(), True), (typed()[::-1], True), ([*BARE, *typed()[:1]], False)):
        for one, other in zip(_features(model, states, questions, together), wanted, strict=True):
            assert one == pytest.approx(other, abs=ALIKE)
    assert len({(vector.dtype.str, vector.shape) for vector in wanted}) == 1
    assert wanted[0].dtype.str[1:] == "f4"
    assert all(math.isfinite(number) for vector in wanted for number in vector.tolist())
    assert abs(wanted[0] - wanted[1]).max() > ALIKE  # else anything would be alike


def _features(model: Model, states: list[str], questions: list[Question], together: bool) -> list[Any]:
    """The features of each state, each alone or all in one batch. Those of nobody else are there."""
    readings = [model.encode(model.prepare(questions), state) for state in states]
    unasked = model.encode(model.prepare(questions), NAMING)
    for reading in readings:
        reading.items[0].wants_features = True
    for batch in [[*readings, unasked]] if together else [[reading] for reading in readings]:
        run_to_end(model, [item for reading in batch for item in reading.items])
    others = [item for reading in readings for item in reading.items[1:]]
    assert all(item.features is None for item in (*others, *unasked.items))
    return [reading.items[0].features for reading in readings]


async def _fail_in_a_worker(model: Any, wanted: list[list[float]]) -> None:
    encode = model.encode

    def encode_badly(prepared: Any, state: str) -> Encoded:
        reading: Encoded = encode(prepared, state)
        if state == "bad":
            _spoil(reading.items)
        return reading

    worker = Worker(model, 60.0)
    await worker.start()
    model.encode = encode_badly
    try:
        for states in (["bad"], [NAMING, "bad"]):
            with pytest.raises(InferenceFailed, match=r"^inference failed$"):
                await worker.decide(states, typed())
        (verdict,) = await worker.decide([NAMING], typed())
        for weights, shares in zip(verdict.weights, wanted, strict=True):
            assert _shares(weights) == pytest.approx(shares, abs=ALIKE)
        await worker.check()
    finally:
        del model.encode
        await worker.close()
