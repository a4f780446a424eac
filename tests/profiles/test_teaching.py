"""What is learnt from rows that are made up, so that it is known what there is to learn."""

import numpy as np
import pytest

from decided.contract.types import Choice, Noul
from decided.evaluation.labels import LabelledQuestion
from decided.evaluation.lesson_report import learn, text
from decided.evaluation.regression import Fitted, Standard, fit, principal_axes, softmax
from decided.evaluation.teaching import (
    AS_IT_IS,
    BIAS,
    HEAD,
    TEMPERATURE,
    LabelledSet,
    Lesson,
    learn_from,
    sets_for,
    threshold_for,
)


def rows_of(seed: int, number: int, kind: str, width: int = 40) -> LabelledSet:
    """Three options. The truth is in the features (`head`), in the logits but shifted (`bias`), in the logits as they
    are (`right`) or a third as sure as they should be (`modest`), or nowhere (`noise`)."""
    chance = np.random.default_rng(seed)
    features = chance.normal(size=(number, width)) * 3 + 5
    logits = chance.normal(size=(number, 3))
    hidden = {
        "head": 3 * (features[:, :3] - 5),
        "bias": 3 * logits + np.array([0.0, 4.0, -4.0]),
        "right": 3 * logits,
        "modest": 3 * logits,
        "noise": np.zeros((number, 3)),
    }[kind]
    right = (hidden + chance.gumbel(size=(number, 3))).argmax(axis=1)
    if kind == "right":
        logits = 3 * logits
    return LabelledSet(logits, features, right, np.arange(number))


def accuracy(lesson: Lesson, rows: LabelledSet) -> float:
    return float((lesson.fitted.logits(rows.logits, rows.features).argmax(axis=1) == rows.right).mean())


@pytest.mark.parametrize(
    ("kind", "kept"), [("head", HEAD), ("bias", BIAS), ("modest", TEMPERATURE), ("right", AS_IT_IS)]
)
def test_the_simplest_that_wins_is_kept(kind: str, kept: str) -> None:
    lesson = learn_from(rows_of(1, 240, kind), 0.9, None)
    assert lesson.kept == kept
    fresh = rows_of(2, 2000, kind)
    bare = float((fresh.logits.argmax(axis=1) == fresh.right).mean())
    if kept in (AS_IT_IS, TEMPERATURE):
        assert accuracy(lesson, fresh) == bare
        assert (lesson.fitted.scale > 2) == (kept == TEMPERATURE)
    else:
        assert accuracy(lesson, fresh) > bare + 0.1
    # What was promised is what fresh rows show.
    assert lesson.after.accuracy == pytest.approx(accuracy(lesson, fresh), abs=0.08)
    assert lesson.before.accuracy == pytest.approx(bare, abs=0.08)


def test_noise_teaches_nothing() -> None:
    """At one standard error chance wins now and then; not often, and never much."""
    kept = [learn_from(rows_of(seed, 60, "noise"), 0.9, None) for seed in range(8)]
    assert sum(lesson.kept == HEAD for lesson in kept) <= 1


def test_the_same_labels_teach_the_same() -> None:
    first, second = (learn_from(rows_of(3, 60, "head"), 0.9, 0.9) for _ in range(2))
    assert first.fitted.scale == second.fitted.scale
    assert first.after == second.after
    assert (first.threshold, first.sets) == (second.threshold, second.sets)


def test_copies_of_a_text_are_never_on_both_sides() -> None:
    """Features that say nothing, labels by chance, every text four times: who has seen a copy knows the answer."""
    once = rows_of(4, 60, "noise")
    again = np.repeat(np.arange(60), 4)
    copied = LabelledSet(once.logits[again], once.features[again], once.right[again], again)  # type: ignore[index]
    assert learn_from(copied, 0.9, None).kept != HEAD
    leaky = LabelledSet(copied.logits, copied.features, copied.right, np.arange(240))
    assert learn_from(leaky, 0.9, None).kept == HEAD


def test_a_temperature_changes_no_choice() -> None:
    """Not even where the model is worse than chance, and the best were to turn it round."""
    rows = rows_of(11, 60, "right")
    turned = fit(-rows.logits, None, rows.right, shifts=False)
    assert 0 < turned.scale < 0.2
    assert not turned.bias.any()
    (gain,) = (
        tried.gain
        for tried in learn_from(LabelledSet(-rows.logits, None, rows.right, rows.texts), 0.9, None).tried
        if tried.recipe == TEMPERATURE
    )
    assert (gain.value, gain.low, gain.high) == (0, 0, 0)


def test_without_features_there_is_no_head() -> None:
    rows = rows_of(5, 100, "bias")
    lesson = learn_from(LabelledSet(rows.logits, None, rows.right, rows.texts), 0.9, None)
    assert [tried.recipe for tried in lesson.tried] == [AS_IT_IS, TEMPERATURE, BIAS]
    assert lesson.kept == BIAS
    assert lesson.fitted.head is None


def test_three_of_each() -> None:
    rows = rows_of(6, 400, "head")
    few = np.concatenate([np.flatnonzero(rows.right == option)[:3] for option in range(3)])
    assert rows.features is not None
    lesson = learn_from(LabelledSet(rows.logits[few], rows.features[few], rows.right[few], few), 0.95, 0.9)
    assert lesson.threshold is None  # nine labels cannot show it
    assert len(lesson.curve) == 3


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ([0.5, 0.6, 0.7], "twice as many labels would add about 8 points"),
        ([0.5, 0.7, 0.97], "twice as many labels would add about 3 points"),  # there is no more to gain
        ([0.5, 0.7, 1.0], "more labels would change little"),
        ([0.5, 0.7, 0.7], "more labels would change little"),
    ],
)
def test_more_labels_are_never_said_to_bring_more_than_there_is(curve: list[float], said: str) -> None:
    rows = rows_of(9, 60, "head")
    lesson = learn_from(rows, 0.9, None)._replace(curve=list(zip((6, 12, 24), curve, strict=True)))
    question = Choice(criteria=dict.fromkeys("abc"))
    one = LabelledQuestion("q", question, right=rows.right.tolist())
    assert said in "\n".join(text(one, lesson, "model", 0.9))


@pytest.mark.parametrize(
    ("labels", "curve", "said"),
    [
        (6, [(2, 1.0), (2, 1.0), (5, 1.0)], "100% from 2, 100% from 5 (the rest was held back)"),
        (19, [(4, 0.5), (8, 0.6), (15, 0.7)], "50% from 4, 60% from 8, 70% from 15 (the rest was held back)"),
        (20, [(4, 0.5), (8, 0.6), (16, 0.6)], "60% from 16 (the rest was held back); more labels would change little"),
    ],
)
def test_a_few_labels_do_not_tell_what_more_would_bring(labels: int, curve: list[tuple[int, float]], said: str) -> None:
    rows = rows_of(9, 60, "head")
    lesson = learn_from(rows, 0.9, None)._replace(curve=curve)
    one = LabelledQuestion("q", Choice(criteria=dict.fromkeys("abc")), right=rows.right.tolist()[:labels])
    (line,) = (line for line in text(one, lesson, "model", 0.9) if "learnt from" in line)
    assert line.endswith(said)


def test_an_option_that_no_label_names() -> None:
    rows = rows_of(7, 200, "head")
    seen = np.flatnonzero(rows.right != 2)
    assert rows.features is not None
    lesson = learn_from(LabelledSet(rows.logits[seen], rows.features[seen], rows.right[seen], seen), 0.9, None)
    assert np.isfinite(lesson.fitted.bias).all()
    shares = softmax(lesson.fitted.logits(rows.logits, rows.features))
    assert 0 < shares[:, 2].mean() < 0.2


def test_a_wrong_label_is_found() -> None:
    rows = rows_of(8, 200, "head")
    sure = int(np.argmax(np.sort(rows.features[:, :3], axis=1)[:, -1]))  # type: ignore[index]
    rows.right[sure] = (rows.right[sure] + 1) % 3
    assert sure in [doubt.row for doubt in learn_from(rows, 0.9, None).doubts]


def test_a_fit_is_the_lowest_point() -> None:
    """A step in any direction from it costs."""
    rows = rows_of(9, 80, "head", width=4)
    features = Standard.of(rows.features).apply(rows.features)  # type: ignore[arg-type]
    found = fit(rows.logits, features, rows.right, 0.3)
    assert found.head is not None

    def loss(scale: float, bias: np.ndarray, head: np.ndarray) -> float:
        shares = softmax(scale * rows.logits + bias + features @ head.T)
        surprise = -np.log(shares[np.arange(80), rows.right]).sum()
        return float(surprise + 0.5 * ((scale - 1) ** 2 + bias @ bias + 0.3 * (head**2).sum()))

    least = loss(*found)  # type: ignore[arg-type]
    chance = np.random.default_rng(0)
    for _ in range(50):
        moved = (
            found.scale + chance.normal() * 0.05,
            found.bias + chance.normal(size=3) * 0.05,
            found.head + chance.normal(size=found.head.shape) * 0.2,
        )
        assert loss(*moved) > least - 1e-3
    assert loss(1.0, np.zeros(3), np.zeros_like(found.head)) > least + 1


def test_features_of_very_different_sizes_are_fitted_to_the_end() -> None:
    rows = rows_of(2, 300, "head")
    assert rows.features is not None
    features = (rows.features - 5) * np.logspace(-3, 1, 40)
    far = Fitted(3.0, np.ones(3), np.eye(3, 40) * 5)
    found = [fit(rows.logits, features, rows.right, 0.03, start) for start in (None, far)]
    here, there = (softmax(fitted.logits(rows.logits, features)) for fitted in found)
    assert there == pytest.approx(here, abs=0.01)


@pytest.mark.parametrize("others", [0, 3])
def test_labels_of_one_text_teach_nothing(others: int) -> None:
    """Nothing can be held back of them. A text that was not answered is none."""
    states, right = ["same"] * 8 + ["other"] * others, [0, 0, 0, 0, 0, 1, 1, 1] + [0] * others
    one = LabelledQuestion("late", Noul("Late?"), list(range(len(right))), states, right)
    weights = [[0.7, 0.3]] * 8 + [None] * others
    said = learn(one, weights, [None] * len(right), 0.95, None)
    assert said == "all 8 labels are about the same text: nothing can be held back to judge by"
    answered = learn(one, [[0.7, 0.3]] * len(right), [None] * len(right), 0.95, None)
    assert isinstance(answered, Lesson) == bool(others)


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_axes_span_the_rows(shape: tuple[int, int]) -> None:
    features = np.random.default_rng(1).normal(size=shape)
    axes = principal_axes(features)
    assert axes.shape == (12, shape[1])
    assert axes @ axes.T == pytest.approx(np.eye(12), abs=1e-9)
    assert features @ axes.T @ axes == pytest.approx(features, abs=1e-9)


def test_standardised_features_are_undone() -> None:
    rows = rows_of(10, 80, "head")
    assert rows.features is not None
    standard = Standard.of(rows.features)
    fitted = fit(rows.logits, standard.apply(rows.features), rows.right, 0.3)
    plain = standard.undo(fitted)
    assert plain.logits(rows.logits, rows.features) == pytest.approx(
        fitted.logits(rows.logits, standard.apply(rows.features)), abs=1e-8
    )


def draws(seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares of four options that mean what they say."""
    chance = np.random.default_rng(seed)
    shares = softmax(2 * chance.normal(size=(number, 4)))
    return shares, np.array([chance.choice(4, p=row) for row in shares])


def test_a_threshold_keeps_what_it_promises() -> None:
    kept = []
    for seed in range(20):
        found = threshold_for(*draws(seed, 400), 400, 0.9)
        if found is None:  # these labels could not show it
            continue
        shares, right = draws(1000 + seed, 4000)
        taken = shares.max(axis=1) >= found.probability
        real = float((shares.argmax(axis=1) == right)[taken].mean())
        kept.append(found.accuracy[1] <= real <= found.accuracy[2])
        assert taken.mean() == pytest.approx(found.share, abs=0.1)
    assert len(kept) >= 15
    assert sum(kept) >= 0.85 * len(kept)


def test_no_threshold_is_made_of_a_few_lucky_rows() -> None:
    shares = np.array([[0.9, 0.1]] * 10)
    assert threshold_for(shares, np.zeros(10, np.int64), 10, 0.95) is None
    assert threshold_for(np.array([[0.9, 0.1]] * 100), np.zeros(100, np.int64), 100, 0.95) is not None


def test_equal_probabilities_are_decided_together() -> None:
    shares = np.array([[0.9, 0.1]] * 50 + [[0.6, 0.4]] * 50)
    right = np.array([0] * 50 + [0, 1] * 25)
    found = threshold_for(shares, right, 100, 0.9)
    assert found is not None
    assert found.share == 0.5
    assert found.probability == pytest.approx(0.75)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_sets_hold_the_right_option_as_often_as_asked(coverage: float) -> None:
    held = []
    for seed in range(30):
        sets = sets_for(*draws(seed, 200), 200, coverage)
        shares, right = draws(1000 + seed, 2000)
        held.append((shares[np.arange(2000), right] >= np.minimum(sets.floor, shares.max(axis=1))).mean())
        assert 1 <= sets.size <= 4
    assert np.mean(held) == pytest.approx(coverage, abs=0.02)
