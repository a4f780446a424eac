"""Decisions in rounds: orders given out, shares taken in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decided.engines.letters import LETTERS
from decided.engines.tournament import Order, tournament


def played(count: int, rotations: int, weights: list[float]) -> tuple[list[list[Order]], list[float]]:
    """The rounds asked of a model that knows what each option weighs, and the end."""
    rounds, asked = tournament(count, rotations), []
    try:
        orders = next(rounds)
        while True:
            asked.append(orders)
            totals = [sum(weights[option] for option in order) for order in orders]
            shares = [
                [weights[option] / total for option in order] for order, total in zip(orders, totals, strict=True)
            ]
            orders = rounds.send(shares)
    except StopIteration as end:
        return asked, end.value


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=256), st.integers(1, 26))
def test_a_model_without_bias_is_given_back_what_it_thinks(weights: list[float], rotations: int) -> None:
    count = len(weights)
    asked, shares = played(count, rotations, weights)
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-6)
    assert all(len(order) <= len(LETTERS) for orders in asked for order in orders)
    assert len(asked) <= 1 + (rotations > 1) + (count > len(LETTERS))


def test_one_option_is_not_asked() -> None:
    assert played(1, 4, [3.0]) == ([], [1.0])


def test_clear_decisions_are_asked_once_close_ones_in_other_orders() -> None:
    assert len(played(3, 3, [9.0, 0.5, 0.5])[0]) == 1
    asked, _ = played(3, 3, [1.0, 1.1, 1.0])
    assert [list(map(list, orders)) for orders in asked] == [[[0, 1, 2]], [[1, 2, 0], [2, 0, 1]]]
