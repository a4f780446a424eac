"""Questions about several people or things at once, each with a fact of its own: which one is it, what of this one.

`training/scenes/*.json` holds the words: for each theme facts that exclude each other, with several ways to tell, to
name and to ask for them, and figures that can be compared. A scene gives each actor one fact and tells them all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from training.stories import Row, row

Theme = dict[str, Any]

NAMES = [
    "Ana", "Ben", "Chloe", "Dev", "Emil", "Farah", "Gus", "Hana", "Ivo", "Jade", "Kofi", "Lena", "Marek", "Nia",
    "Omar", "Petra", "Quinn", "Rosa", "Sam", "Tara", "Uwe", "Vera", "Will", "Yusuf", "Zoe", "Aldo", "Bea", "Carl",
    "Dina", "Ezra", "Finn", "Greta", "Hugo", "Ines", "Jonas", "Kim", "Lars", "Mina", "Noor", "Olaf", "Priya",
    "Ravi", "Sofia", "Tom", "Ursula", "Vik", "Wanda", "Max", "Lee", "Abel", "Bruno", "Cora", "Dagny", "Elif",
    "Femi", "Gwen", "Henrik", "Ida", "Jun", "Klara", "Liam", "Maeve", "Nils", "Oona", "Paul", "Rhea", "Sven",
    "Tilda", "Viola", "Yara",
]  # fmt: skip
NOBODY = ("nobody", "none of them", "no one", "none")
SEVERAL = ("more than one", "several", "two or more")
UNTOLD = ("not stated", "the text does not say", "unknown")
COUNTS = ("none", "one", "two", "three", "four", "five", "six")
FILLED = 0.25
"""How often a sentence about nobody stands between two about somebody."""


class Scene(NamedTuple):
    """Who is in it, the fact of each, and each one's figures by the key of the figure."""

    theme: Theme
    fact: dict[str, str]
    figures: dict[str, dict[str, int]]

    def holders(self, key: str) -> list[str]:
        return [actor for actor, own in self.fact.items() if own == key]

    def absent(self) -> list[str]:
        """The facts that nobody has."""
        return [f["key"] for f in self.theme["facts"] if f["key"] not in self.fact.values()]


def draw(rng: random.Random, theme: Theme) -> Scene:
    """Two to six actors; now and then two of them share a fact. Figures are told in every third scene."""
    actors = rng.sample(theme["things"] or NAMES, rng.randint(2, 6))
    keys = rng.sample([f["key"] for f in theme["facts"]], min(len(actors), len(theme["facts"])))
    fact = dict(zip(actors, keys, strict=True))
    if len(actors) > 2 and rng.random() < 0.2:
        one, other = rng.sample(actors, 2)
        fact[one] = fact[other]
    told = [f for f in theme["numbers"] if rng.random() < 0.3]
    return Scene(theme, fact, {f["key"]: _figures(rng, f, actors) for f in told})


def with_figure(rng: random.Random, theme: Theme) -> tuple[Scene, dict[str, Any]]:
    """A scene in which a figure of all actors is told, and the figure."""
    scene, f = draw(rng, theme), rng.choice(theme["numbers"])
    return scene._replace(figures=scene.figures | {f["key"]: _figures(rng, f, list(scene.fact))}), f


def _figures(rng: random.Random, f: dict[str, Any], actors: list[str]) -> dict[str, int]:
    """All different, so that one is the largest."""
    return dict(zip(actors, rng.sample(range(f["low"], f["high"] + 1), len(actors)), strict=True))


def _fact(theme: Theme, key: str) -> dict[str, Any]:
    found: dict[str, Any] = next(f for f in theme["facts"] if f["key"] == key)
    return found


def _filled(rng: random.Random, texts: list[str], **values: object) -> str:
    text = rng.choice(texts)
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text[0].upper() + text[1:]


def tell(rng: random.Random, scene: Scene) -> object:
    """All facts and figures as prose, as a list, as lines with names in front, or as JSON."""
    theme, actors = scene.theme, rng.sample(list(scene.fact), len(scene.fact))
    numbers = [f for f in theme["numbers"] if f["key"] in scene.figures]
    form = rng.choice(("prose", "prose", "prose", "list", "lines", "json"))
    if form == "json":
        who, state = rng.choice((("name", "status"), ("who", "note"), ("item", "state"), ("id", "remark")))
        short = rng.random() < 0.5
        own = {actor: {f["key"]: scene.figures[f["key"]][actor] for f in numbers} for actor in actors}
        listed = [{who: actor, state: _told(rng, scene, actor, short), **own[actor]} for actor in actors]
        return listed if rng.random() < 0.5 else {theme["name"]: listed}
    if form == "lines":
        parts = [
            "; ".join([f"{actor}: {_told(rng, scene, actor, True)}"]
                      + [f"{f['label']} {scene.figures[f['key']][actor]}" for f in numbers])
            for actor in actors
        ]  # fmt: skip
        return "\n".join([*_opening(rng, theme), *parts])
    parts, fillers = [], rng.sample(theme["fillers"], len(theme["fillers"]))
    for actor in actors:
        if fillers and rng.random() < FILLED:
            parts.append(fillers.pop())
        told = [_told(rng, scene, actor, False)]
        told += [_filled(rng, f["say"], A=actor, n=scene.figures[f["key"]][actor]) for f in numbers]
        parts.append(" ".join(told))
    if form == "list":
        return "\n".join([*_opening(rng, theme), *(f"- {part}" for part in parts)])
    return " ".join([*_opening(rng, theme), *parts])


def _told(rng: random.Random, scene: Scene, actor: str, short: bool) -> str:
    f = _fact(scene.theme, scene.fact[actor])
    return str(rng.choice(f["name"])) if short else _filled(rng, f["say"], A=actor)


def _opening(rng: random.Random, theme: Theme) -> list[str]:
    return [text for text in [rng.choice(theme["openings"])] if text]


def _row(theme: Theme, family: str, *rest: Any) -> Row:
    return row({"name": f"scene/{theme['name']}"}, family, *rest)


def _pick(rng: random.Random, scene: Scene, family: str, ask: str, right: list[str]) -> Row:
    """Which actor: one of them, nobody or several; the last two are offered where they are right, and at times."""
    nobody, several = rng.choice(NOBODY), rng.choice(SEVERAL)
    answer = right[0] if len(right) == 1 else several if right else nobody
    offered = [extra for extra in (nobody, several) if extra == answer or rng.random() < 0.35]
    options = rng.sample([*scene.fact, *offered], len(scene.fact) + len(offered))
    return _row(scene.theme, family, tell(rng, scene), "choice", ask, answer, dict.fromkeys(options, ""))


def who(rng: random.Random, theme: Theme) -> Row:
    """Mostly a fact that somebody has; now and then one that nobody has."""
    scene = draw(rng, theme)
    absent = scene.absent()
    key = rng.choice(absent) if absent and rng.random() < 0.15 else rng.choice(list(scene.fact.values()))
    return _pick(rng, scene, "who", rng.choice(_fact(theme, key)["ask"]), scene.holders(key))


def what(rng: random.Random, theme: Theme) -> Row:
    """The fact of one actor, among those of the others; or of somebody who is not in the scene."""
    scene = draw(rng, theme)
    strangers = [a for a in theme["things"] or NAMES if a not in scene.fact]
    actor = rng.choice(strangers) if rng.random() < 0.1 else rng.choice(list(scene.fact))
    own, untold = scene.fact.get(actor), rng.choice(UNTOLD)
    others = sorted({*scene.fact.values()} - {own}) + scene.absent()
    shown = ([own] if own else []) + others[: rng.randint(2, 5)]
    names = [str(rng.choice(_fact(theme, key)["name"])) for key in shown]
    options = names + ([untold] if not own or rng.random() < 0.3 else [])
    answer = names[0] if own else untold
    criteria = dict.fromkeys(rng.sample(options, len(options)), "")
    return _row(theme, "what", tell(rng, scene), "choice", _filled(rng, theme["what"], A=actor), answer, criteria)


def holds(rng: random.Random, theme: Theme) -> Row:
    """Yes: an actor's own fact. No: mostly the fact of another one in the same text."""
    scene, answer = draw(rng, theme), rng.random() < 0.5
    actor = rng.choice(list(scene.fact))
    wrong = sorted({*scene.fact.values()} - {scene.fact[actor]})
    absent = scene.absent()
    others = absent if not wrong or (absent and rng.random() < 0.15) else wrong
    key = scene.fact[actor] if answer else rng.choice(others)
    return _row(theme, "is", tell(rng, scene), "noul", _filled(rng, _fact(theme, key)["is"], A=actor), answer)


def extreme(rng: random.Random, theme: Theme) -> Row:
    scene, f = with_figure(rng, theme)
    side, best = rng.choice((("most", max), ("least", min)))
    values = scene.figures[f["key"]]
    return _pick(rng, scene, "figures", rng.choice(f[side]), [best(values, key=lambda actor: values[actor])])


def above(rng: random.Random, theme: Theme) -> Row:
    scene, f = with_figure(rng, theme)
    values = scene.figures[f["key"]]
    limit = sorted(values.values(), reverse=True)[min(rng.choice((0, 1, 1, 1, 2)), len(values) - 1)]
    right = [actor for actor, value in values.items() if value > limit]
    return _pick(rng, scene, "figures", _filled(rng, f["above"], t=limit), right)


def more(rng: random.Random, theme: Theme) -> Row:
    scene, f = with_figure(rng, theme)
    one, other = rng.sample(list(scene.fact), 2)
    values = scene.figures[f["key"]]
    ask = _filled(rng, f["more"], A=one, B=other)
    return _row(theme, "more", tell(rng, scene), "noul", ask, values[one] > values[other])


def tally(rng: random.Random, theme: Theme) -> Row:
    scene = draw(rng, theme)
    key = rng.choice([f["key"] for f in theme["facts"]] if rng.random() < 0.3 else list(scene.fact.values()))
    name = rng.choice(_fact(theme, key)["name"])
    ask = rng.choice((f"How many of them: {name}?", f"For how many does this hold: {name}", f"Number of: {name}"))
    levels = list(COUNTS[: rng.randint(3, len(scene.fact) + 1)])
    return _row(theme, "tally", tell(rng, scene), "score", ask, len(scene.holders(key)), levels)


FAMILIES: dict[Callable[[random.Random, Theme], Row], int] = {
    who: 600, what: 300, holds: 500, extreme: 150, above: 100, more: 200, tally: 100,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("themes", type=Path, help="folder of themes")
    parser.add_argument("out", type=Path, help="a .jsonl.gz file")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with gzip.open(args.out, "wt", encoding="utf-8", compresslevel=1) as out:
        for path in sorted(args.themes.glob("*.json")):
            theme = json.loads(path.read_text(encoding="utf-8"))
            for family, size in FAMILIES.items():
                for _ in range(size):
                    out.write(json.dumps(family(rng, theme), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
