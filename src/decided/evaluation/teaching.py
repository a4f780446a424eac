"""What labels teach about one question, judged on labels that were held back.

Four recipes are tried, from the simplest: the model as it is, with a temperature, shifted too, and with a head on its
features too. A recipe is kept only if it beats the simpler one beyond noise on rows that it was not fitted to; every
figure here, thresholds and sets too, comes from such rows. Draws of chance are seeded: the same labels teach the same.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from decided.evaluation.fitting import Judged, figures
from decided.evaluation.regression import Fitted, Floats, Ints, Standard, fit, principal_axes, softmax
from decided.evaluation.scoring import Interval, wilson
from decided.profiles.profile import RECIPES, Figures, Sets, Threshold
from decided.profiles.shelf import LEAST_SHARE

AS_IT_IS, TEMPERATURE, BIAS, HEAD = RECIPES
PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)

_SEED = 20_260_101
_FEW, _OF_TEMPERATURE = 16, 0.5
"""A recipe must be better in log-loss by more than a standard error, and not worse in accuracy. The error of a few
labels is itself a guess: with 16 it takes two, with 48 hardly more than one. A temperature is one number and changes
no choice: half of one is enough."""
_CURVE = (0.25, 0.5, 1.0)
_SURE, _UNLIKELY = 0.8, 0.1
"""A label is doubted where another option has at least the first, and the label's at most the second."""


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Rows with a label: the model's logits, its features if it gives them, the right option, and the text's number.
    Rows of one text are never on both sides of a fold."""

    logits: Floats
    features: Floats | None
    right: Ints
    texts: Ints

    def __len__(self) -> int:
        return len(self.right)


class Trial(NamedTuple):
    """One recipe, on rows held back: logits by repeat and row."""

    recipe: str
    penalty: float
    held_back: Floats

    def losses(self, right: Ints) -> Floats:
        """Minus the logarithm of the right option's share, by row."""
        shares = softmax(self.held_back.reshape(-1, self.held_back.shape[2])).reshape(self.held_back.shape)
        found: Floats = -np.log(np.maximum(shares[:, np.arange(len(right)), right], LEAST_SHARE)).mean(axis=0)
        return found

    def hits(self, right: Ints) -> Floats:
        found: Floats = (self.held_back.argmax(axis=2) == right).mean(axis=0)
        return found


class Tried(NamedTuple):
    """What a recipe would give: its figures, and its gain in accuracy over the model as it is, with 95 % of chance."""

    recipe: str
    figures: Figures
    gain: Interval


class Doubt(NamedTuple):
    """A label that looks wrong: the row, the option that the others suggest, and how probable that is."""

    row: int
    option: int
    share: float


class Lesson(NamedTuple):
    """All that the labels taught."""

    tried: list[Tried]
    kept: str
    fitted: Fitted
    """For features as the model gives them."""
    before: Figures
    after: Figures
    curve: list[tuple[int, float]]
    """Labels learnt from, and the accuracy on the rest."""
    doubts: list[Doubt]
    threshold: Threshold | None
    sets: Sets | None


def learn_from(rows: LabelledSet, target: float, coverage: float | None) -> Lesson:
    """Try the recipes, keep the simplest that wins, and say what it is worth."""
    standard = None if rows.features is None else Standard.of(rows.features)
    axes: Floats | None = None
    if rows.features is not None and standard is not None:
        # The head lies in the space that the rows span: where they are fewer than the features, it is sought there.
        made = standard.apply(rows.features)
        axes = principal_axes(made)
        rows = replace(rows, features=made @ axes.T)
    trials = _try(rows)
    kept = _choose(trials, rows.right)
    fitted = Fitted(1.0, np.zeros(rows.logits.shape[1]), None)
    if kept.recipe != AS_IT_IS:
        found = _learnt(rows, kept)
        fitted = found._replace(head=None if found.head is None or axes is None else found.head @ axes)
        fitted = fitted if standard is None else standard.undo(fitted)
    shares = softmax(_flat(kept.held_back))
    right = _tiled(rows.right, kept)
    tried = [_tried(trial, trials[0], rows.right) for trial in _best(trials, rows.right)]
    return Lesson(
        tried,
        kept.recipe,
        fitted,
        tried[0].figures,
        _figures(shares, right),
        _curve(rows, kept if kept.recipe != AS_IT_IS else _best(trials, rows.right)[-1]),
        _doubts(shares, rows.right),
        threshold_for(shares, right, len(rows), target),
        None if coverage is None else sets_for(shares, right, len(rows), coverage),
    )


# --- trying ---


def _try(rows: LabelledSet) -> list[Trial]:
    """Every recipe on every row, each time learnt from the others."""
    repeats, folds = (3, 10) if len(rows) <= 100 else (2, 5) if len(rows) <= 1000 else (1, 5)
    plain = [(AS_IT_IS, 0.0), (TEMPERATURE, 0.0), (BIAS, 0.0)]
    recipes = [*plain, *((HEAD, one) for one in PENALTIES if rows.features is not None)]
    found = np.zeros((len(recipes), repeats, *rows.logits.shape))
    for repeat in range(repeats):
        for train, rest in _folds(rows, folds, np.random.default_rng(_SEED + repeat)):
            held = _part(rows, rest)
            found[0, repeat, rest] = held.logits
            for number, fitted in enumerate(_path(_part(rows, train)), start=1):
                found[number, repeat, rest] = fitted.logits(held.logits, held.features)
    return [Trial(recipe, penalty, held) for (recipe, penalty), held in zip(recipes, found, strict=True)]


def _folds(rows: LabelledSet, folds: int, chance: np.random.Generator) -> Iterator[tuple[Ints, Ints]]:
    """Rows to learn from and rows held back, so that each is held back once: every option in every fold as far as it
    goes round, and all rows of a text together."""
    firsts = np.unique(rows.texts, return_index=True)[1]
    fold_of: dict[int, int] = {}
    for option in np.unique(rows.right):
        for first in chance.permutation(firsts[rows.right[firsts] == option]):
            fold_of[int(rows.texts[first])] = len(fold_of) % folds
    fold = np.array([fold_of[int(text)] for text in rows.texts])
    for number in range(folds):
        held = np.flatnonzero(fold == number)
        if len(held) and len(held) < len(rows):
            yield np.flatnonzero(fold != number), held


def _part(rows: LabelledSet, places: Ints) -> LabelledSet:
    features = None if rows.features is None else rows.features[places]
    return LabelledSet(rows.logits[places], features, rows.right[places], rows.texts[places])


def _path(rows: LabelledSet) -> list[Fitted]:
    """A temperature; a bias too; then with heads, each less bound than the one before and started from it."""
    found = [fit(rows.logits, None, rows.right, shifts=False), fit(rows.logits, None, rows.right)]
    if rows.features is not None:
        for penalty in PENALTIES:
            found.append(fit(rows.logits, rows.features, rows.right, penalty, found[-1]))
    return found


def _learnt(rows: LabelledSet, trial: Trial) -> Fitted:
    """What the recipe of a trial learns from rows."""
    features = rows.features if trial.recipe == HEAD else None
    return fit(rows.logits, features, rows.right, trial.penalty, shifts=trial.recipe != TEMPERATURE)


# --- choosing ---


def _best(trials: list[Trial], right: Ints) -> list[Trial]:
    """One trial for each recipe: of the heads, the one with the least loss."""
    heads = [trial for trial in trials if trial.recipe == HEAD]
    return [*trials[:3], *([min(heads, key=lambda one: float(one.losses(right).mean()))] if heads else [])]


def _choose(trials: list[Trial], right: Ints) -> Trial:
    kept, *others = _best(trials, right)
    for trial in others:
        gain, loss = kept.losses(right) - trial.losses(right), kept.hits(right) - trial.hits(right)
        margin = _OF_TEMPERATURE if trial.recipe == TEMPERATURE else 1.0 + (_FEW / len(right)) ** 2
        if gain.mean() > margin * _error(gain) and loss.mean() <= 1e-9:
            kept = trial
    return kept


def _error(values: Floats) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf


def _tried(trial: Trial, first: Trial, right: Ints) -> Tried:
    gain = trial.hits(right) - first.hits(right)
    mean, half = float(gain.mean()), 1.96 * _error(gain)
    shares = softmax(_flat(trial.held_back))
    return Tried(trial.recipe, _figures(shares, _tiled(right, trial)), Interval(mean, mean - half, mean + half))


def _flat(held_back: Floats) -> Floats:
    return held_back.reshape(-1, held_back.shape[2])


def _tiled(right: Ints, trial: Trial) -> Ints:
    return np.tile(right, len(trial.held_back))


def _figures(shares: Floats, right: Ints) -> Figures:
    return figures([Judged(row, one) for row, one in zip(shares.tolist(), right.tolist(), strict=True)], 1.0)


# --- what else the held-back rows tell ---


def _curve(rows: LabelledSet, trial: Trial) -> list[tuple[int, float]]:
    """Accuracy on rows held back, by how many of the others were learnt from."""
    hits, counts = np.zeros(len(_CURVE)), np.zeros(len(_CURVE))
    folds = list(_folds(rows, 5, np.random.default_rng(_SEED)))
    for train, rest in folds:
        drawn = np.random.default_rng(_SEED).permutation(train)
        for place, share in enumerate(_CURVE):
            some = drawn[: max(2, round(share * len(drawn)))]
            fitted = _learnt(_part(rows, some), trial)
            held = _part(rows, rest)
            hits[place] += (fitted.logits(held.logits, held.features).argmax(axis=1) == held.right).sum()
            counts[place] += len(some)
    return [(round(count / len(folds)), float(hit / len(rows))) for count, hit in zip(counts, hits, strict=True)]


def _doubts(shares: Floats, right: Ints) -> list[Doubt]:
    """The most doubtful labels first."""
    mean = shares.reshape(-1, len(right), shares.shape[1]).mean(axis=0)
    of_label, top = mean[np.arange(len(right)), right], mean.max(axis=1)
    places = np.flatnonzero((of_label <= _UNLIKELY) & (top >= _SURE))
    return [Doubt(int(row), int(mean[row].argmax()), float(top[row])) for row in places[np.argsort(of_label[places])]]


def threshold_for(shares: Floats, right: Ints, labels: int, target: float) -> Threshold | None:
    """The lowest probability from which answers are right as often as asked; none if the labels cannot show it.

    Shown is what holds a standard error below what was counted: of all probabilities that pass the lowest is taken, and
    without that margin chance would choose it.
    """
    top = shares.max(axis=1)
    order = np.argsort(-top, kind="stable")
    hits, repeats = np.cumsum(shares.argmax(axis=1)[order] == right[order]), len(right) / labels
    taken = np.arange(1, len(right) + 1)
    good = _surely(hits / taken, taken / repeats) >= target
    ordered = top[order]
    good[:-1] &= ordered[:-1] > ordered[1:]  # equal probabilities are taken together
    if not good.any():
        return None
    last = int(np.flatnonzero(good)[-1])
    lower = float(ordered[last + 1]) if last + 1 < len(ordered) else 0.0
    accuracy = wilson(round(hits[last] / repeats), max(1, round(taken[last] / repeats)))
    return Threshold(
        (float(ordered[last]) + lower) / 2,
        target,
        (float(hits[last] / taken[last]), accuracy.low, accuracy.high),
        float(taken[last] / len(right)),
    )


def _surely(share: Floats, rows: Floats) -> Floats:
    """A share that was counted in so many rows, less a standard error (the lower end of Wilson's interval)."""
    least: Floats = (share + 0.5 / rows - np.sqrt(share * (1 - share) / rows + 0.25 / rows**2)) / (1 + 1 / rows)
    return least


def sets_for(shares: Floats, right: Ints, labels: int, coverage: float) -> Sets:
    """The lowest share that the right option had in all but as many rows as may be missed: options above it, together,
    hold the right one as often as asked (split conformal prediction, on rows held back)."""
    of_right = np.sort(shares[np.arange(len(right)), right])
    missed = int((1 - coverage) * (labels + 1) + 1e-9) * len(right) // labels  # whole labels, as the theorem has it
    floor = float(np.nextafter(of_right[missed - 1], 1.0)) if missed else 0.0
    kept = (shares >= np.minimum(floor, shares.max(axis=1))[:, None]).sum(axis=1)
    return Sets(coverage, floor, float(kept.mean()))
