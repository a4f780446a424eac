"""An answer depends on its state and its question alone: not on the batch, not on the order of the options.

With 8 bits to the last bit: integer sums are exact. In float32, where the processor has no VNNI, a sum over more rows
may be made in another order.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided.contract.types import Choice, Noul, Question, Score
from decided.engines.api import More
from decided.engines.embedded import model as embedded
from decided.engines.embedded.model import Embedded
from decided.hardware import multiplies_bytes_exactly
from tests.embedded.asking import Probabilities, ask, shares
from tests.embedded.conftest import WEIGHTS

_APART = 0.0 if multiplies_bytes_exactly() else 1e-6
_WORDS = ["parcel", "refund", "late", "broken", "invoice", "thanks", "urgent", "the", "customer", "wants", "7", "not"]
texts = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=30).map(" ".join)
names = st.lists(texts, min_size=2, max_size=10, unique=True)
choices = st.builds(lambda keys, about: Choice(dict.fromkeys(keys), about), names, texts)
scores = st.builds(lambda levels, about: Score(levels, about), names, texts)
nouls = st.builds(Noul, texts)
questions: st.SearchStrategy[Question] = st.one_of(choices, scores, nouls)
requests = st.tuples(texts, st.lists(questions, min_size=1, max_size=4))


def same(expected: Any) -> Any:
    return pytest.approx(expected, rel=0, abs=_APART)


@settings(max_examples=15, deadline=None)
@given(batch=st.lists(requests, min_size=2, max_size=4))
def test_the_same_bits_alone_and_in_any_batch(model: Embedded, batch: list[tuple[str, list[Question]]]) -> None:
    together = shares(model, batch)
    for (state, asked), answers in zip(batch, together, strict=True):
        for question, answer in zip(asked, answers, strict=True):
            assert ask(model, state, question)[0].tolist() == same(answer.tolist())


@settings(max_examples=15, deadline=None)
@given(state=texts, keys=names, about=texts, seed=st.randoms(use_true_random=False))
def test_the_order_of_options_changes_nothing(
    model: Embedded, state: str, keys: list[str], about: str, seed: random.Random
) -> None:
    mixed = list(keys)
    seed.shuffle(mixed)
    first, second = (ask(model, state, Choice(dict.fromkeys(order), about))[0] for order in (keys, mixed))
    assert dict(zip(keys, first.tolist(), strict=True)) == same(dict(zip(mixed, second.tolist(), strict=True)))


LENGTHS = [3, 63, 130, 509, 600]  # the last one in two windows
FEW: list[Question] = [
    Choice({f"intent {i}": f"the customer wants thing {i}" for i in range(30)}, "What is wanted?"),
    *(Noul(f"Is it {word}? " * times) for word, times in zip(_WORDS, (1, 2, 5, 12), strict=False)),
]


def test_the_same_bits_on_any_number_of_cores_and_in_any_order(model: Embedded) -> None:
    """Alone with all threads, or as one of several runs at a time with a thread each, piece by piece among others."""
    many = Embedded(WEIGHTS, exact=not multiplies_bytes_exactly(), threads=5)
    states = [" ".join(_WORDS[(i * i + n) % len(_WORDS)] for i in range(n)) for n in LENGTHS]
    wanted = [[same(answer.tolist()) for answer in ask(model, state, *FEW)] for state in states]
    assert [[answer.tolist() for answer in ask(many, state, *FEW)] for state in states] == wanted
    with ThreadPoolExecutor(len(states)) as pool:
        together = list(pool.map(lambda state: ask(many, state, *FEW), reversed(states)))
    assert [[answer.tolist() for answer in answers] for answers in reversed(together)] == wanted


def test_no_run_is_longer_than_a_window_and_its_questions(model: Embedded) -> None:
    """What is told of the cost of each run adds up to the work, whatever the size of the request."""
    question = Noul("Is the parcel late?")
    prepared = model.prepare([question] * 40)
    tokens = len(prepared[0].ids)
    for length in (10, 500, 2000):
        encoded = model.encode(prepared, "late " * length)
        (item,) = encoded.items
        costs, (result,) = [item.cost], model.run([item])
        while isinstance(result, More):
            costs.append(result.cost)
            (result,) = model.run([item])
        assert len(result) == 40
        assert max(costs) < 1200
        assert sum(costs) >= encoded.input_tokens
        assert encoded.room == model._bytes_per_token * (encoded.input_tokens - 40 * tokens)
    (small,) = model.encode(prepared[:3], "late").items
    assert not isinstance(model.run([small])[0], More)
    assert model.encode(prepared[:3], "late").room == 0


def test_a_run_that_is_stopped_ends_early_and_no_other_does(model: Embedded) -> None:
    question = Choice({f"intent {i}": "the customer wants a thing " * 4 for i in range(256)}, "What is wanted?")
    (long,) = model.encode(model.prepare([question]), "late").items
    (other,) = model.encode(model.prepare([Noul("Is it late?")]), "late").items
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(model.run, [long])
        while not model._running:
            time.sleep(0.001)
        long.stop()
        with pytest.raises(Exception, match="terminate"):
            running.result()
    assert len(model.run([other])) == 1


def test_a_long_question_laid_out_in_rows_is_the_same_question(
    exact_model: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, and steps of rows, are only a way to save work: with one row for everything the answer is the same."""
    question = Choice({f"intent {i}": f"the customer wants thing {i}" for i in range(60)}, "What is wanted?")
    state = "I would like thing 17, please. " * 30
    one = _laid_out(exact_model, monkeypatch, state, question, rows=100_000, pairs=2**30)
    many = _laid_out(exact_model, monkeypatch, state, question, rows=16, pairs=1)
    assert many == pytest.approx(one, abs=1e-6)
    assert np.ptp(one) > 0.01


def _laid_out(
    model: Embedded, monkeypatch: pytest.MonkeyPatch, state: str, question: Question, rows: int, pairs: int
) -> Probabilities:
    monkeypatch.setattr(embedded, "_ROW_TOKENS", rows)
    monkeypatch.setattr(embedded, "_STEP_PAIRS", pairs)
    return ask(model, state, question)[0]
