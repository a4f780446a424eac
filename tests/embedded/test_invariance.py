"""An answer depends on its state and its question alone: not on the batch, not on the order of the options."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided.contract import Choice, Noul, Question, Score
from decided.engines import embedded
from decided.engines.embedded import Embedded
from tests.embedded.asking import Probabilities, ask, shares

_WORDS = ["parcel", "refund", "late", "broken", "invoice", "thanks", "urgent", "the", "customer", "wants", "7", "not"]
texts = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=30).map(" ".join)
names = st.lists(texts, min_size=2, max_size=10, unique=True)
choices = st.builds(lambda keys, about: Choice(dict.fromkeys(keys), about), names, texts)
scores = st.builds(lambda levels, about: Score(levels, about), names, texts)
nouls = st.builds(Noul, texts)
questions: st.SearchStrategy[Question] = st.one_of(choices, scores, nouls)
requests = st.tuples(texts, st.lists(questions, min_size=1, max_size=4))


@settings(max_examples=15, deadline=None)
@given(batch=st.lists(requests, min_size=2, max_size=4))
def test_the_same_bits_alone_and_in_any_batch(model: Embedded, batch: list[tuple[str, list[Question]]]) -> None:
    together = shares(model, batch)
    for (state, asked), answers in zip(batch, together, strict=True):
        for question, answer in zip(asked, answers, strict=True):
            assert ask(model, state, question)[0].tolist() == answer.tolist()


@settings(max_examples=15, deadline=None)
@given(state=texts, keys=names, about=texts, seed=st.randoms(use_true_random=False))
def test_the_order_of_options_changes_nothing(
    model: Embedded, state: str, keys: list[str], about: str, seed: random.Random
) -> None:
    mixed = list(keys)
    seed.shuffle(mixed)
    first, second = (ask(model, state, Choice(dict.fromkeys(order), about))[0] for order in (keys, mixed))
    assert dict(zip(keys, first.tolist(), strict=True)) == dict(zip(mixed, second.tolist(), strict=True))


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
