"""Questions put to a model directly, without a server."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decided.contract.types import Question
from decided.engines.api import Model, run_to_end

Probabilities = NDArray[np.float64]


def ask(model: Model, state: str, *questions: Question) -> list[Probabilities]:
    """The probabilities of every question's options, asked together."""
    return shares(model, [(state, questions)])[0]


def shares(model: Model, requests: Sequence[tuple[str, Sequence[Question]]]) -> list[list[Probabilities]]:
    """The same for several requests that run as one batch."""
    readings = [model.encode(model.prepare(questions), state) for state, questions in requests]
    items = [item for reading in readings for item in reading.items]
    results = iter(run_to_end(model, items))
    answers = []
    for reading in readings:
        weights = [np.asarray(w, np.float64) for _ in reading.items for w in next(results)]
        answers.append([w / math.fsum(w) for w in weights])  # a sum whose last bit does not hang on the order
    return answers
