"""A decision in rounds of lettered questions: several orders where it is close, several groups where there are many
options. No I/O: a round is given out, its shares come back.

More options than letters are a tournament. In the first round they are asked in groups of at most 26; in the last one,
the winners of the groups are. An option weighs what the winner of its group weighs in the last round, times its share
against that winner's in the group: for a model that is consistent, that is what one round of all would give.
"""

from collections.abc import Generator, Sequence
from itertools import pairwise

from decided.engines.letters import LETTERS, average, is_close, rotation, shifts

Order = Sequence[int]
"""The options that a lettered question shows: the first one as A."""

Rounds = Generator[list[Order], list[list[float]], list[float]]
"""Gives out orders to ask, is sent the shares of their letters, and ends with the shares of all options."""


def tournament(count: int, rotations: int) -> Rounds:
    if count == 1:
        return [1.0]
    if count <= len(LETTERS):
        return (yield from _ask(range(count), rotations))
    groups = _groups(count)
    of_groups = yield list(groups)
    tops = [max(shares) for shares in of_groups]
    winners = [group[shares.index(top)] for group, shares, top in zip(groups, of_groups, tops, strict=True)]
    final = yield from _ask(winners, rotations)
    weights = [
        of_winner * share / top
        for shares, top, of_winner in zip(of_groups, tops, final, strict=True)
        for share in shares
    ]  # the groups are the options in their order
    total = sum(weights)
    return [weight / total for weight in weights]


def _ask(options: Order, rotations: int) -> Rounds:
    """Shares of some options: from one order, or where the two likeliest are close, from the mean of several."""
    (shares,) = yield [options]
    if rotations == 1 or not is_close(shares):
        return shares
    count = len(options)
    orders = [rotation(count, shift) for shift in shifts(count, rotations)[1:]]
    others = yield [[options[place] for place in order] for order in orders]
    return average([(range(count), shares), *zip(orders, others, strict=True)])


def _groups(count: int) -> list[range]:
    """As few groups as there must be, of nearly one size."""
    number = -(-count // len(LETTERS))
    edges = [count * edge // number for edge in range(number + 1)]
    return [range(low, high) for low, high in pairwise(edges)]
