"""What is served of the model's logits: never another order, never less for more, and flat stays flat."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decided.engines.embedded.calibration import Scale, scaled

LOGITS = st.lists(st.floats(-30, 30), min_size=1, max_size=12).map(np.array)
SCALES = st.builds(Scale, st.floats(0.4, 8), st.floats(0, 1))


@given(LOGITS, SCALES)
def test_options_keep_their_order(logits: np.ndarray, scale: Scale) -> None:
    served = scaled(logits, scale)
    assert np.isfinite(served).all()
    assert (served[logits.argsort()][:-1] <= served[logits.argsort()][1:]).all()


@given(st.floats(-8, 8), st.floats(0, 1), SCALES)
def test_more_is_never_less(margin: float, step: float, scale: Scale) -> None:
    less, more = (scaled(np.array([m, 0.0]), scale) for m in (margin, margin + step))
    assert less[0] - less[1] <= more[0] - more[1] + 1e-9


def test_without_steepness_it_is_a_temperature() -> None:
    assert scaled(np.array([3.0, 1.0]), Scale(2.0)).tolist() == [1.5, 0.5]


def test_steepness_takes_from_the_middle_and_leaves_the_top() -> None:
    steep = Scale(4.0, 0.75)
    shares = {}
    for margin in (1.0, 2.0, 4.0):
        served = scaled(np.array([margin, 0.0]), steep)
        shares[margin] = 1 / (1 + np.exp(served[1] - served[0]))
    assert shares[1.0] < 0.6 < shares[2.0] < 0.75
    assert shares[4.0] > 0.9
