"""From the tokens that a model might have said to the weights of the options."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decided.engines import letters
from decided.engines.letters import LETTERS, NoLetters, Token


def tokens(**likely: float) -> list[Token]:
    return [Token(text.replace("_", " "), math.log(share)) for text, share in likely.items()]


def test_spellings_of_a_label_add_up() -> None:
    said = [
        Token("A", math.log(0.3)),
        Token(" A", math.log(0.1)),
        Token("▁A", math.log(0.1)),
        Token("B", math.log(0.5)),
    ]
    assert letters.weights(said, 2) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("text", ["A", " A", "▁A", "ĠA", "A.", "(A", "A)", "**A", "\nA", "A:"])
def test_a_letter_in_any_dress(text: str) -> None:
    assert letters.mass([Token(text, math.log(0.5)), Token("B", math.log(0.1))], 2) == pytest.approx(0.6)


@pytest.mark.parametrize("text", ["An", "AB", "<A>", "", "Á", "1"])
def test_other_tokens_are_no_labels(text: str) -> None:
    assert letters.mass([Token(text, -0.1)], 26) == 0.0


def test_an_article_is_no_answer() -> None:
    """`a` may begin a sentence; where capitals are there, small letters do not count."""
    assert letters.weights(tokens(A=0.1, a=0.8, B=0.1), 2) == pytest.approx([0.5, 0.5])


def test_a_model_that_writes_small_letters_is_understood() -> None:
    assert letters.weights(tokens(a=0.6, b=0.2, The=0.2), 2) == pytest.approx([0.75, 0.25])


def test_letters_beyond_the_options_do_not_count() -> None:
    assert letters.weights(tokens(A=0.2, B=0.2, C=0.6), 2) == pytest.approx([0.5, 0.5])


def test_a_missing_label_is_no_likelier_than_what_was_shown() -> None:
    shares = letters.weights(tokens(A=0.7, The=0.1, B=0.05), 3)
    assert shares == pytest.approx([0.7 / 0.8, 0.05 / 0.8, 0.05 / 0.8])


def test_missing_labels_share_what_is_left() -> None:
    shares = letters.weights(tokens(A=0.9, B=0.098), 4)
    assert shares[2:] == pytest.approx([0.001, 0.001])


def test_a_label_with_no_probability_left_is_not_zero() -> None:
    assert min(letters.weights(tokens(A=1.0), 26)) > 0.0
    assert min(letters.weights([Token("A", 0.0), Token("B", -9999.0)], 2)) > 0.0


@pytest.mark.parametrize(
    "said", [[], [Token("The", -0.1)], [Token("A", math.nan)], [Token("A", 5.0)], [Token("A", -math.inf)]]
)
def test_without_usable_labels_there_is_no_guess(said: list[Token]) -> None:
    with pytest.raises(NoLetters):
        letters.weights(said, 2)


SHARES = st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=26)


@given(SHARES, st.integers(1, 26))
def test_any_excerpt_gives_a_distribution_in_the_right_order(raw: list[float], shown: int) -> None:
    total = sum(raw) * 1.25
    said = sorted(
        (Token(LETTERS[place], math.log(share / total)) for place, share in enumerate(raw)),
        key=lambda token: -token.logprob,
    )[:shown]
    shares = letters.weights(said, len(raw))
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) > 0.0
    seen = [LETTERS.index(token.text) for token in said]
    unseen = [shares[place] for place in range(len(raw)) if place not in seen]
    assert all(share <= shares[place] * 1.000001 for share in unseen for place in seen)
    for first, second in pairwise(seen):
        assert shares[first] >= shares[second] * 0.999999


@given(st.integers(2, 26), st.integers(1, 26))
def test_rotations_are_different_orders_beginning_with_the_given_one(count: int, rotations: int) -> None:
    orders = [letters.rotation(count, shift) for shift in letters.shifts(count, rotations)]
    assert orders[0] == list(range(count))
    assert len({tuple(order) for order in orders}) == len(orders) == min(count, rotations)
    assert all(sorted(order) == list(range(count)) for order in orders)


@given(SHARES)
def test_the_average_over_all_orders_takes_position_out(bias: list[float]) -> None:
    """A model that sees nothing but the letters has no opinion once every option had every letter."""
    count = len(bias)
    readings = [(letters.rotation(count, shift), bias) for shift in letters.shifts(count, count)]
    average = letters.average(readings)
    assert average == pytest.approx([sum(bias) / count] * count)


def test_close() -> None:
    assert letters.is_close([0.5, 0.4, 0.1])
    assert not letters.is_close([0.7, 0.2, 0.1])
