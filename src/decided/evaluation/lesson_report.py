"""A lesson in words: what was tried, what it would gain, what was kept; and the profile that comes of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from decided.contract.types import Choice, Noul, type_of
from decided.evaluation.labels import LabelledQuestion
from decided.evaluation.report import short
from decided.evaluation.teaching import AS_IT_IS, BIAS, HEAD, TEMPERATURE, LabelledSet, Lesson, Tried, learn_from
from decided.profiles.fingerprint import fingerprint
from decided.profiles.profile import FORMAT, Head, Profile
from decided.profiles.shelf import LEAST_SHARE
from decided.version import VERSION

LEAST_LABELS = 6
_DOUBTS_SHOWN = 10
_LEAST_TO_FORESEE = 20
"""Labels: what more of them would bring is a guess with fewer."""
_IN_WORDS = {
    AS_IT_IS: "the model as it is",
    TEMPERATURE: "a temperature",
    BIAS: "bias and temperature",
    HEAD: "a head on its features",
}


def learn(
    one: LabelledQuestion,
    weights: Sequence[Sequence[float] | None],
    features: Sequence[Any],
    target: float,
    coverage: float | None,
) -> Lesson | str:
    """What the labels teach; or why nothing can be learnt from them."""
    places = [place for place, found in enumerate(weights) if found is not None]
    right = np.array([one.right[place] for place in places], np.int64)
    if len(places) < LEAST_LABELS:
        return f"too few labels to learn from: {len(places)}, at least {LEAST_LABELS} are needed"
    if len(set(right.tolist())) < 2:
        return f"all {len(places)} labels are the same answer: nothing can be learnt from them"
    if len({one.states[place] for place in places}) < 2:
        return f"all {len(places)} labels are about the same text: nothing can be held back to judge by"
    given = np.array([weights[place] for place in places], np.float64)
    logits = np.log(np.maximum(given / given.max(axis=1, keepdims=True), LEAST_SHARE))
    known = [features[place] for place in places]
    vectors = None if any(vector is None for vector in known) else np.array(known, np.float64)
    number_of = {state: number for number, state in enumerate(dict.fromkeys(one.states))}
    texts = np.array([number_of[one.states[place]] for place in places], np.int64)
    lesson = learn_from(LabelledSet(logits, vectors, right, texts), target, coverage)
    doubts = [doubt._replace(row=places[doubt.row]) for doubt in lesson.doubts]
    return lesson._replace(doubts=doubts)


def profile_of(
    one: LabelledQuestion, lesson: Lesson | str, model: str, weights: str, keep_anyway: bool
) -> Profile | None:
    """The profile, if something won; or if a threshold or sets were asked for, which the bare model can have too."""
    if isinstance(lesson, str):
        return None
    useful = keep_anyway and (lesson.threshold is not None or lesson.sets is not None)
    if lesson.kept == AS_IT_IS and not useful:
        return None
    fitted = lesson.fitted
    return Profile(
        format=FORMAT,
        name=short(one.name, 80),
        question=one.question,
        fingerprint=fingerprint(one.question),
        model=model,
        weights=weights,
        recipe=lesson.kept,
        labels=len(one.right),
        before=lesson.before,
        after=lesson.after,
        scale=fitted.scale,
        bias=fitted.bias.tolist(),
        head=None if fitted.head is None else Head.of(fitted.head.tolist()),
        threshold=lesson.threshold,
        sets=lesson.sets,
        version=VERSION,
    )


def text(one: LabelledQuestion, lesson: Lesson | str, model: str, target: float) -> Iterator[str]:
    """All there is to say about a question."""
    yield f"{short(one.name, 60)} ({type_of(one.question)}), {model}: {len(one.right)} labels"
    yield from _about_labels(one)
    if isinstance(lesson, str):
        yield f"  {lesson}"
        return
    yield f"  {'on labels held back':23}  accuracy  gain in points (95 %)  log-loss  calibration error"
    for tried in lesson.tried:
        found = tried.figures
        yield (
            f"  {_IN_WORDS[tried.recipe]:23}  {found.accuracy:8.1%}  {_gain(tried):>21}  {found.log_loss:8.3f}  "
            f"{found.calibration_error:17.3f}"
        )
    if lesson.kept == AS_IT_IS:
        yield "  kept: nothing; no recipe is better than the model as it is beyond noise"
    else:
        yield f"  kept: {_IN_WORDS[lesson.kept]}"
    yield f"  {_curve(lesson, len(one.right))}"
    yield f"  {_threshold(lesson, target)}"
    if lesson.sets is not None:
        yield (
            f"  sets that hold the right option in {lesson.sets.coverage:.0%} of texts have {lesson.sets.size:.1f} "
            f"of {len(one.options)} options on average"
        )
    yield from _doubts(one, lesson)


def _about_labels(one: LabelledQuestion) -> Iterator[str]:
    counts = Counter(one.right)
    names = [_label(one, number) for number in range(len(one.options))]
    shown = [f"{short(name, 30)} {counts[number]}" for number, name in enumerate(names)]
    yield f"  {', '.join(shown[:12])}{', ...' if len(shown) > 12 else ''}"
    if unseen := [short(name, 30) for number, name in enumerate(names) if not counts[number]]:
        yield f"  without a label: {', '.join(unseen[:12])}; the model can still choose them, and will do so less often"
    if one.empty:
        yield f"  labels of empty texts, left out: {len(one.empty)}"
    if one.repeated:
        yield f"  the same text with the same answer again, counted once: {one.repeated}"
    if one.contradicted:
        yield f"  texts with several answers, of which one at most can be right: {one.contradicted}"


def _gain(tried: Tried) -> str:
    if tried.recipe == AS_IT_IS:
        return ""
    return f"{100 * tried.gain.value:+.1f} ({100 * tried.gain.low:+.1f} to {100 * tried.gain.high:+.1f})"


def _curve(lesson: Lesson, labels: int) -> str:
    points = ", ".join(f"{accuracy:.0%} from {learnt}" for learnt, accuracy in dict(lesson.curve).items())
    told = f"by labels learnt from: {points} (the rest was held back)"
    if labels < _LEAST_TO_FORESEE:
        return told
    (_, first), (_, middle), (_, last) = lesson.curve
    # Each doubling brings less than the one before: as much less as the last one did, as far as that can be told.
    step = max(0.0, last - middle)
    following = step * min(0.8, max(0.3, step / max(middle - first, 1e-9))) if step else 0.0
    following = min(following, 1 - last)
    if following < 0.01:
        return f"{told}; more labels would change little"
    more = f"{100 * following:.0f} point{'s' if following >= 0.015 else ''}"
    return f"{told}; twice as many labels would add about {more}"


def _threshold(lesson: Lesson, target: float) -> str:
    found = lesson.threshold
    if found is None:
        return f"no threshold can be shown to give {target:.0%}: label more, or ask for less with --target-accuracy"
    value, low, high = found.accuracy
    if found.share == 1:
        return (
            f"no threshold is needed for {target:.0%}: {value:.0%} of all answers are right ({low:.0%} to {high:.0%})"
        )
    return (
        f"from a probability of {found.probability:.2f} on, {value:.0%} of answers are right "
        f"({low:.0%} to {high:.0%}), and {found.share:.0%} of texts reach it"
    )


def _doubts(one: LabelledQuestion, lesson: Lesson) -> Iterator[str]:
    if not lesson.doubts:
        return
    yield f"  labels that look wrong: {len(lesson.doubts)}"
    for doubt in lesson.doubts[:_DOUBTS_SHOWN]:
        said, suggested = _label(one, one.right[doubt.row]), _label(one, doubt.option)
        yield (
            f"    row {one.rows[doubt.row]}: labelled {short(said, 30)}, looks like {short(suggested, 30)} "
            f"({doubt.share:.0%}): {short(one.states[doubt.row], 60)}"
        )
    if len(lesson.doubts) > _DOUBTS_SHOWN:
        yield f"    ... and {len(lesson.doubts) - _DOUBTS_SHOWN} more"


def _label(one: LabelledQuestion, number: int) -> str:
    if isinstance(one.question, Noul):
        return ("yes", "no")[number]
    if isinstance(one.question, Choice):
        return one.options[number]
    return f"level {number}"
