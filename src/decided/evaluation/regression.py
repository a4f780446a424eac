"""Softmax regression on top of a model's own probabilities: probabilities = softmax(scale * logits + bias + head x).

All of it is convex and small: L-BFGS finds the one best answer in milliseconds. The penalties pull towards the model
as it is (scale 1, no bias, no head), so that few labels change little.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decided.contract.temperature import HOTTEST

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BIAS_PENALTY = _SCALE_PENALTY = 1.0
_STEPS, _MEMORY = 100, 8


class Fitted(NamedTuple):
    """What was learnt: the numbers of the formula above."""

    scale: float
    bias: Floats
    head: Floats | None

    def logits(self, logits: Floats, features: Floats | None) -> Floats:
        found = self.scale * logits + self.bias
        return found if self.head is None or features is None else found + features @ self.head.T


def fit(
    logits: Floats,
    features: Floats | None,
    right: Ints,
    penalty: float = 0.0,
    start: Fitted | None = None,
    shifts: bool = True,
) -> Fitted:
    """The most likely numbers for labelled rows. Features want to be standardised; `penalty` is that of the head. A
    start near the end saves time and changes nothing else. Unless it `shifts`, the bias stays at zero."""
    rows, options = logits.shape
    width = 0 if features is None else features.shape[1]
    hit = np.arange(rows), right

    def loss(point: Floats) -> tuple[float, Floats]:
        scale, bias, head = point[0], point[1 : 1 + options], point[1 + options :].reshape(options, width)
        found = scale * logits + bias
        if features is not None:
            found += features @ head.T
        found -= found.max(axis=1, keepdims=True)
        shares = np.exp(found)
        totals = shares.sum(axis=1)
        value = np.log(totals).sum() - found[hit].sum()
        value += 0.5 * (_SCALE_PENALTY * (scale - 1) ** 2 + _BIAS_PENALTY * bias @ bias + penalty * (head**2).sum())
        off = shares / totals[:, None]
        off[hit] -= 1
        slope = np.empty_like(point)
        slope[0] = (off * logits).sum() + _SCALE_PENALTY * (scale - 1)
        slope[1 : 1 + options] = off.sum(axis=0) + _BIAS_PENALTY * bias if shifts else 0.0
        if features is not None:
            slope[1 + options :] = (off.T @ features + penalty * head).ravel()
        return float(value), slope

    first = np.zeros(1 + options + options * width)
    first[0] = 1.0
    if start is not None:
        first[: 1 + options] = start.scale, *start.bias
        if start.head is not None:
            first[1 + options :] = start.head.ravel()
    # In steps of these lengths the loss curves about alike in all directions, and few of them lead to its end.
    gentle = (options - 1) / options**2
    curves = np.ones_like(first)
    curves[0] += gentle * float((logits**2).sum())
    curves[1 : 1 + options] += gentle * rows
    if features is not None:
        curves[1 + options :] = np.tile(penalty + gentle * np.einsum("ij,ij->j", features, features), options)
    units = 1 / np.sqrt(curves)

    def loss_in_units(point: Floats) -> tuple[float, Floats]:
        value, slope = loss(point * units)
        return value, slope * units

    point = minimise(loss_in_units, first / units) * units
    head = point[1 + options :].reshape(options, width) if features is not None else None
    # A negative scale would say that the model is worse than chance: then it is not listened to at all. A temperature
    # alone keeps the order of its options all the same.
    least = 0.0 if shifts else 1 / HOTTEST
    return Fitted(max(float(point[0]), least), point[1 : 1 + options], head)


def minimise(function: Callable[[Floats], tuple[float, Floats]], point: Floats) -> Floats:
    """Where a smooth convex function is lowest, by L-BFGS. The function gives its value and its slope."""
    value, slope = function(point)
    pairs: list[tuple[Floats, Floats, float]] = []
    for _ in range(_STEPS):
        direction = _direction(slope, pairs)
        descent = slope @ direction
        step = 1.0
        while True:
            moved = point + step * direction
            found, steepness = function(moved)
            if found <= value + 1e-4 * step * descent:
                break
            step /= 2
            if step < 1e-10:
                return point
        change, turn = moved - point, steepness - slope
        if change @ turn > 1e-12:
            pairs = [*pairs[1 - _MEMORY :], (change, turn, float(change @ turn))]
        gained = value - found
        point, value, slope = moved, found, steepness
        if gained <= 1e-6 * max(1.0, abs(value)):
            break
    return point


def _direction(slope: Floats, pairs: list[tuple[Floats, Floats, float]]) -> Floats:
    """Downhill, bent by what the last steps told of the curvature."""
    direction = -slope
    if not pairs:
        return direction
    parts = []
    for change, turn, product in reversed(pairs):
        parts.append(change @ direction / product)
        direction = direction - parts[-1] * turn
    _, turn, product = pairs[-1]
    direction = direction * (product / (turn @ turn))
    for (change, turn, product), part in zip(pairs, reversed(parts), strict=True):
        direction = direction + (part - turn @ direction / product) * change
    return direction


class Standard(NamedTuple):
    """How features are made comparable: the mean and the spread that they had in some rows."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, features: Floats) -> "Standard":
        spread = features.std(axis=0)
        return cls(features.mean(axis=0), np.maximum(spread, 1e-3 * max(float(spread.mean()), 1e-9)))

    def apply(self, features: Floats) -> Floats:
        """Rows of length about 1, whatever the number of features."""
        made: Floats = (features - self.mean) / self.spread / np.sqrt(len(self.mean))
        return made

    def undo(self, fitted: Fitted) -> Fitted:
        """What was learnt on standardised features, for features as the model gives them."""
        if fitted.head is None:
            return fitted
        head = fitted.head / self.spread / np.sqrt(len(self.mean))
        return Fitted(fitted.scale, fitted.bias - head @ self.mean, head)


def principal_axes(features: Floats) -> Floats:
    """The directions that rows lie in, as rows: as many as there are rows, or features if those are fewer."""
    rows, width = features.shape
    if rows < width:
        axes: Floats = np.linalg.svd(features, full_matrices=False)[2]
        return axes
    return np.ascontiguousarray(np.linalg.eigh(features.T @ features)[1].T)  # of many rows, much sooner done


def softmax(logits: Floats) -> Floats:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    made: Floats = shares / shares.sum(axis=1, keepdims=True)
    return made
