"""Logits into the shares that are served: divided by a temperature, and steeper where the model is surer.

Trained towards softened targets, a model says at most about 0.98. What it says there is nearly always right; what it
says in the middle is right far less often than it sounds. A temperature alone takes from both alike, and nothing would
be left above 0.9.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LEAST_ODDS = 0.25
"""Logarithm of the odds for the first option, below which nothing gets flatter."""
_TINY = 1e-9


class Scale(NamedTuple):
    temperature: float = 1.0
    steepness: float = 0.0


def scaled(logits: NDArray[np.float64], scale: Scale) -> NDArray[np.float64]:
    """The logits of one question, in the same order of preference."""
    if not scale.steepness:
        return logits / scale.temperature
    others = float(np.exp(logits - logits.max()).sum()) - 1
    odds = max(-math.log(max(others, _TINY)), _LEAST_ODDS)
    factor: float = odds**scale.steepness / scale.temperature
    return logits * factor
