"""Questions about several people or things: the answer is what the text says of each of them."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import training
from training.data import example
from training.scenes import FAMILIES, NOBODY, SEVERAL, Theme, extreme, holds, more, who

FOLDER = Path(training.__file__).parent / "scenes"
THEMES: list[Theme] = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
each_theme = pytest.mark.parametrize("theme", THEMES, ids=lambda theme: str(theme["name"]))


def told_of(state: object, actor: str) -> str:
    """What a state says about one actor: its entry, its line, or all sentences of the text."""
    if isinstance(state, str):
        return next((line for line in state.splitlines() if line.startswith(f"{actor}: ")), state)
    entries = state if isinstance(state, list) else next(iter(dict[str, Any](state).values()))  # type: ignore[call-overload]
    return next((" ".join(map(str, entry.values())) for entry in entries if actor in entry.values()), "")


def has(fact: dict[str, Any], state: object, actor: str) -> bool:
    text = told_of(state, actor)
    sentences = [say.replace("{A}", actor) for say in fact["say"]]
    return any(s[0].upper() + s[1:] in text for s in sentences) or any(
        text.startswith((f"{actor}: {name}", f"{actor} {name}")) for name in fact["name"]
    )


@each_theme
def test_every_family_makes_questions_with_an_answer_among_their_options(theme: Theme) -> None:
    rng = random.Random(1)
    for family in FAMILIES:
        for _ in range(20):
            made: dict[str, Any] = family(rng, theme)
            assert example(made) is not None, made
            assert "{" not in made["question"]["instructions"]
            assert "{A}" not in json.dumps(made["state"])


@each_theme
def test_who_it_is_stands_in_the_text(theme: Theme) -> None:
    rng = random.Random(2)
    asked = {ask: fact for fact in theme["facts"] for ask in fact["ask"]}
    for _ in range(60):
        made: dict[str, Any] = who(rng, theme)
        question, answer = made["question"], made["answer"]
        actors = [option for option in question["criteria"] if option not in (*NOBODY, *SEVERAL)]
        right = [a for a in actors if has(asked[question["instructions"]], made["state"], a)]
        assert right == [answer] if answer in actors else len(right) == 0 if answer in NOBODY else len(right) > 1, made


@each_theme
def test_the_largest_figure_is_the_largest(theme: Theme) -> None:
    rng = random.Random(3)
    sides = {
        ask: (best, f["key"])
        for f in theme["numbers"]
        for side, best in (("most", max), ("least", min))
        for ask in f[side]
    }
    checked = 0
    while checked < 5:
        made: dict[str, Any] = extreme(rng, theme)
        if isinstance(made["state"], list):
            best, key = sides[made["question"]["instructions"]]
            entry = best(made["state"], key=lambda entry: entry[key])
            assert made["answer"] in entry.values()
            checked += 1


def test_there_are_many_themes_and_no_name_comes_twice() -> None:
    names = [theme["name"] for theme in THEMES]
    assert len(names) == len(set(names)) >= 30


@pytest.mark.parametrize("family", [holds, more])
def test_yes_is_as_frequent_as_no(family: Any) -> None:
    rng = random.Random(4)
    found = Counter(family(rng, rng.choice(THEMES))["answer"] for _ in range(2_000))
    assert 0.45 < found[True] / found.total() < 0.55
