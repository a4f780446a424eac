"""What every in-process kind must do, whatever it is made of. `docs/kinds.md` says how a new kind comes under it.

`hold(model)` runs all of it. The kinds of the base install come under it in `tests/test_conformance.py`, those that
need PyTorch in `tests/torch/test_conformance.py`.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from decided.answers import answer
from decided.contract import Choice, Noul, Question, Score
from decided.engine import Item, Model
from decided.errors import InferenceFailed
from decided.worker import Worker
from tests.support.questions import LONG, STATES, typed

ALIKE = 1e-3
ONE_OPTION: list[Question] = [Choice({"only": None}, "Which?"), Score(["only"], "How much?")]
MANY: list[Question] = [Choice({f"option {number}": None for number in range(30)}, "Which one?")]
BARE: list[Question] = [Choice({"a": None, "b": None}), Noul(None, None)]


def decide(model: Model, states: list[str], questions: list[Question], together: bool) -> list[list[list[float]]]:
    """Probabilities by state and question, each piece alone or all in one batch."""
    found: list[list[list[float]]] = []
    readings = [model.read(model.prepare(questions), state) for state in states]
    items = [item for reading in readings for item in reading.items]
    answers = iter(model.run(items) if together else [model.run([item])[0] for item in items])
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


def hold(model: Model, longest: str = LONG * 60) -> None:
    """`longest` is a state that the model cannot read to its end."""
    answers_are_complete_and_finite(model)
    options_keep_their_order(model)
    alone_is_as_in_company(model)
    what_is_cut_is_reported(model, longest)
    tokens_are_counted(model)
    a_failure_is_ours_and_passes(model)


def answers_are_complete_and_finite(model: Model) -> None:
    questions = [*typed(), *ONE_OPTION, *(MANY if model.card.max_options >= 30 else []), *BARE]
    for state in (*STATES, "\x00\u2028 \U0001f600 [MASK] <|im_end|> <<LABEL>> </s>"):
        (answers,) = decide(model, [state], questions, together=True)
        assert len(answers) == len(questions)
        for question, weights in zip(questions, answers, strict=True):
            assert len(weights) == len(question.keys())
            assert all(math.isfinite(weight) and weight >= 0 for weight in weights)
            assert math.fsum(weights) == pytest.approx(1)
            assert list(answer(question, weights).probabilities) == list(question.keys())


def options_keep_their_order(model: Model) -> None:
    """A question with two options that are the same: which is which can only be told by their places. Then the same
    options under other names: the names are what changes the answer, not where it is put."""
    state = STATES[0]
    for names in (["refund", "praise", "spam"], ["praise", "spam", "refund"]):
        question = Choice(dict.fromkeys(names), "What is it?")
        once, again = (decide(model, [state], [question], True)[0][0] for _ in range(2))
        assert once == pytest.approx(again, abs=ALIKE)
        (among,) = decide(model, [state], [*typed(), question, *typed()], True)
        assert among[len(typed())] == pytest.approx(once, abs=ALIKE)


def alone_is_as_in_company(model: Model) -> None:
    states = [*STATES, LONG]
    alone, together = (decide(model, states, typed(), company) for company in (False, True))
    for one, other in zip(alone, together, strict=True):
        for here, there in zip(one, other, strict=True):
            assert here == pytest.approx(there, abs=ALIKE)


def what_is_cut_is_reported(model: Model, longest: str) -> None:
    prepared = model.prepare(typed())
    assert not any(model.read(prepared, STATES[1]).cuts)
    cuts = model.read(prepared, longest).cuts
    assert len(cuts) == len(typed())
    for of_question in cuts:
        (cut,) = [cut for cut in of_question if cut.part == "state"]
        assert 0 <= cut.kept < cut.given


def tokens_are_counted(model: Model) -> None:
    prepared = model.prepare(typed())
    short, long = (model.read(prepared, state) for state in STATES[:0:-1][:2])
    assert short.input_tokens > 0
    assert all(item.cost > 0 for reading in (short, long) for item in reading.items)
    numbers = [number for item in short.items for number in item.questions]
    assert sorted(numbers) == list(range(len(typed())))


def a_failure_is_ours_and_passes(model: Any) -> None:
    """A model that fails fails one request, with our error, and answers the next."""
    real: Callable[[Sequence[Item]], Any] = model.run

    def failing(items: Sequence[Item]) -> Any:
        raise RuntimeError("told to fail, with a secret inside")

    async def main() -> None:
        worker = Worker(model, 60.0)
        await worker.start()
        model.run = failing
        with pytest.raises(InferenceFailed, match=r"^inference failed$"):
            await worker.decide([STATES[0]], typed())
        model.run = real
        (verdict,) = await worker.decide([STATES[0]], typed())
        assert len(verdict.weights) == len(typed())
        await worker.check()
        await worker.close()

    try:
        asyncio.run(main())
    finally:
        model.run = real
