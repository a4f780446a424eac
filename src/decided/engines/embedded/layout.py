"""How tokens are laid out: limits and windows. No dependencies, so that training can use it on any machine.

A question is `[CLS] kind: instructions [SEP]` followed by one block per option, `[MASK] option text`. Every option
block starts at the same position, sees the state, the instructions, itself and the other options' markers, and nothing
else: the answer cannot depend on the order of the options. Levels of a score do have an order, so it is written out.
"""

from __future__ import annotations

from itertools import pairwise

CLS, SEP, MARK = 101, 102, 103
WINDOW = 510  # state tokens in one window; with [CLS] and [SEP] the 512 positions the base was trained with
MAX_WINDOWS = 16
MAX_STATE_TOKENS = WINDOW * MAX_WINDOWS
INSTRUCTION_TOKENS = 320
OPTION_TOKENS = 160  # 1 + 320 + 1 + 1 + 160 positions still fit 512
QUESTION_TOKENS = 8192  # instructions and options together: 256 options of 30 tokens

KINDS = ("choice", "score", "noul")


def windows(tokens: int) -> list[tuple[int, int]]:
    """(start, length) of the windows of a state. All about equally long: a tail of a few tokens would be read badly."""
    count = max(1, -(-tokens // WINDOW))
    edges = [tokens * i // count for i in range(count + 1)]
    return [(a, b - a) for a, b in pairwise(edges)]
