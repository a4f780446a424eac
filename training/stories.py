"""Questions about cases told in words: emails, notes, chats, lists. The answers follow from facts drawn at random.

`training/domains/*.json` holds the words: for each fact several ways to state it and several ways to ask for it, so a
question rarely repeats the words that answer it. A case draws its facts first, then tells some of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, object]
Domain = dict[str, Any]
Facts = dict[str, Any]

UNRELATED_SHARE = 0.35
"""How often a sentence that decides nothing stands between two that do."""

COVERED = (
    ("Covers nothing that was asked for", "Covers some of it", "Covers most of it, something is missing", "All of it"),
    ("Useless", "Weak", "Good, with a gap", "Complete"),
)
SIMILAR = (
    ("Nothing in common", "Same subject, different matter", "Same matter, clashing claims",
     "Same statement, a detail differs", "Same meaning"),
    ("Unrelated", "Loosely related", "Related but in conflict", "Nearly the same", "Equivalent"),
)  # fmt: skip


class Case(NamedTuple):
    """One case: all its facts, and those that are told."""

    domain: Domain
    facts: Facts
    told: list[str]


def _rounded(rng: random.Random, value: float, low: int, high: int) -> int:
    """A limit near the value, round like those that people name."""
    step = rng.choice([s for s in (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 5000) if s <= max(1, (high - low) / 6)])
    return max(low, min(high, round(value / step) * step))


def _said(rng: random.Random, n: int) -> str:
    return f"{n:,}" if n >= 1000 and rng.random() < 0.5 else str(n)


def _fields(domain: Domain) -> dict[str, tuple[str, dict[str, Any]]]:
    return {f["key"]: (kind, f) for kind in ("flags", "numbers", "kinds") for f in domain[kind]}


def draw(rng: random.Random, domain: Domain, needed: Iterable[str] = ()) -> Case:
    """Facts for a case, of which the needed ones and some others are told."""
    facts: Facts = {f["key"]: rng.random() < 0.5 for f in domain["flags"]}
    for f in domain["numbers"]:
        cuts = [c for level in f["levels"] for c in level["cuts"]]
        if cuts and rng.random() < 0.6:  # near the limits that matter, as often on either side
            spread = max(1, (f["high"] - f["low"]) // 8)
            facts[f["key"]] = max(f["low"], min(f["high"], rng.choice(cuts) + rng.randint(-spread, spread)))
        else:
            facts[f["key"]] = rng.randint(f["low"], f["high"])
    facts |= {f["key"]: rng.choice(list(f["values"])) for f in domain["kinds"]}
    told = set(needed)
    others = [k for k in facts if k not in told]
    told |= set(rng.sample(others, rng.randint(min(2, len(others)), len(others))))
    order = rng.sample(sorted(told), len(told))
    return Case(domain, facts, order)


def state_fact(rng: random.Random, domain: Domain, key: str, value: Any) -> str:
    """One fact in a sentence."""
    kind, f = _fields(domain)[key]
    if kind == "flags":
        return str(rng.choice(f["yes" if value else "no"]))
    if kind == "numbers":
        return str(rng.choice(f["say"])).replace("{n}", _said(rng, value))
    return str(rng.choice(f["values"][value]["say"]))


def _entry(rng: random.Random, domain: Domain, key: str, value: Any) -> tuple[str, str]:
    """One fact as a label and a value."""
    kind, f = _fields(domain)[key]
    if kind == "flags":
        return f["label"], "yes" if value else "no"
    if kind == "numbers":
        return f["label"], f"{_said(rng, value)} {f.get('unit', '')}".strip()
    return f["label"], str(rng.choice(f["values"][value]["name"])).lower()


def tell(rng: random.Random, case: Case) -> object:
    """The case as a message, a list, a chat, a form or a JSON object."""
    domain, facts = case.domain, case.facts
    form = rng.choice(("message", "message", "message", "list", "chat", "form", "mixed", "json"))
    if form == "json":
        return _as_json(rng, case)
    if form == "form":
        lines = [f"{a.capitalize()}: {b}" for a, b in (_entry(rng, domain, k, facts[k]) for k in case.told)]
        return "\n".join([rng.choice(domain["openings"]), *lines])
    sentences = []
    for key in case.told:
        if rng.random() < UNRELATED_SHARE:
            sentences.append(rng.choice(domain["fillers"]))
        if form == "mixed" and rng.random() < 0.5:
            sentences.append("{}: {}.".format(*_entry(rng, domain, key, facts[key])).capitalize())
        else:
            sentences.append(state_fact(rng, domain, key, facts[key]))
    start, end = rng.choice(domain["openings"]), rng.choice(domain["closings"])
    if form == "list":
        return "\n".join([start, *(f"{rng.choice('-*')} {s}" for s in sentences)])
    if form == "chat":
        speakers = rng.sample(("Ana", "Ben", "Chidi", "Dora", "Emil", "Farah", "Agent", "Customer", "Desk"), 2)
        return "\n".join(f"{rng.choice(speakers)}: {s}" for s in [start, *sentences, end])
    gap = rng.choice((" ", " ", "\n", "\n\n"))
    return gap.join([start, *sentences, *([end] if rng.random() < 0.7 else [])])


def _as_json(rng: random.Random, case: Case) -> object:
    body: dict[str, object] = {}
    for key in case.told:
        kind, f = _fields(case.domain)[key]
        value = case.facts[key]
        free = rng.random() < 0.2
        body[key] = state_fact(rng, case.domain, key, value) if free else value
        if kind == "kinds" and not free and rng.random() < 0.5:
            body[key] = rng.choice(f["values"][value]["name"])
    return body if rng.random() < 0.5 else {"subject": rng.choice(case.domain["about"]), "details": body}


def row(
    domain: Domain, family: str, state: object, kind: str, ask: str, answer: object, criteria: object = None
) -> Row:
    question: Row = {"type": kind, "instructions": ask}
    if criteria is not None:
        question["criteria"] = criteria
    return {"task": f"story/{domain['name']}/{family}", "state": state, "question": question, "answer": answer}


def _holds(facts: Facts, condition: list[Any]) -> bool:
    value = facts[condition[0]]
    if len(condition) == 3:
        return bool(value > condition[2] if condition[1] == ">" else value < condition[2])
    return bool(value == condition[1])


def _polar(rng: random.Random, domain: Domain, family: str, state: object, ask: str, answer: bool) -> Row:
    """Mostly a noul; now and then the same question as a choice of two or of yes, no and not stated."""
    if rng.random() < 0.85:
        return row(domain, family, state, "noul", ask, answer)
    options = ["yes", "no"] if rng.random() < 0.6 else ["yes", "no", "not stated"]
    return row(domain, family, state, "choice", ask, options[not answer], dict.fromkeys(_mixed(rng, options), ""))


def _mixed(rng: random.Random, items: list[Any]) -> list[Any]:
    return rng.sample(items, len(items))


def flag(rng: random.Random, domain: Domain) -> Row:
    f = rng.choice(domain["flags"])
    case = draw(rng, domain, [f["key"]])
    value = case.facts[f["key"]]
    if rng.random() < 0.12:
        outcomes = {"true": rng.choice(f["yes"]), "false": rng.choice(f["no"])}
        return row(domain, "noul", tell(rng, case), "noul", rng.choice(f["ask"]), value, outcomes)
    if rng.random() < 0.3:
        return _polar(rng, domain, "noul", tell(rng, case), rng.choice(f["ask_not"]), not value)
    return _polar(rng, domain, "noul", tell(rng, case), rng.choice(f["ask"]), value)


def number(rng: random.Random, domain: Domain) -> Row:
    f = rng.choice(domain["numbers"])
    case = draw(rng, domain, [f["key"]])
    n, span = case.facts[f["key"]], f["high"] - f["low"]
    limit = n
    while limit == n:
        limit = _rounded(rng, n + span * rng.choice((-1, 1)) * rng.choice((0.03, 0.1, 0.25, 0.5)), f["low"], f["high"])
        if limit == n:
            limit = n + rng.choice((-1, 1))
    side = rng.choice(("above", "below"))
    answer = n > limit if side == "above" else n < limit
    ask = rng.choice(f[side]).replace("{t}", _said(rng, limit))
    return _polar(rng, domain, "noul", tell(rng, case), ask, answer)


def statement(rng: random.Random, domain: Domain) -> Row:
    """A claim in other words than the message's: true, false, or not told."""
    truth = rng.choice(("true", "false", "open"))
    key = rng.choice([f["key"] for f in domain["flags"]] + [f["key"] for f in domain["kinds"]])
    case = draw(rng, domain, [key])
    value = case.facts[key]
    kind, f = _fields(domain)[key]
    wrong = (not value) if kind == "flags" else rng.choice([v for v in f["values"] if v != value])
    claim = state_fact(
        rng, domain, key, value if truth == "true" or (truth == "open" and rng.random() < 0.5) else wrong
    )
    if truth == "open":
        case = case._replace(told=[k for k in case.told if k != key])
    state = tell(rng, case)
    if truth != "open" and rng.random() < 0.6:
        asks = ("Is this statement correct? {}", "Does the text support this: {}", "True or false: {}", "Is it so? {}")
        flips = ("Does the text contradict this: {}", "Is this statement wrong? {}")
        if rng.random() < 0.3:
            return _polar(rng, domain, "noul", state, rng.choice(flips).format(claim), truth == "false")
        return _polar(rng, domain, "noul", state, rng.choice(asks).format(claim), truth == "true")
    names = rng.choice((("supported", "refuted", "not_stated"), ("entailment", "contradiction", "neutral"),
                        ("agrees", "disagrees", "unclear"), ("yes", "no", "maybe")))  # fmt: skip
    glosses = ("The text says so", "The text says the opposite or something else", "The text does not say")
    items = _mixed(rng, [(a, g if rng.random() < 0.6 else "") for a, g in zip(names, glosses, strict=True)])
    answer = names[("true", "false", "open").index(truth)]
    if rng.random() < 0.5:
        return row(domain, "claim", {"claim": claim, "text": state}, "choice", "How does the text bear on the claim?",
                   answer, dict(items))  # fmt: skip
    return row(domain, "claim", state, "choice", f"Judge the claim by the text. Claim: {claim}", answer, dict(items))


def level(rng: random.Random, domain: Domain) -> Row:
    f = rng.choice([f for f in domain["numbers"] if f["levels"]])
    bands = rng.choice(f["levels"])
    case = draw(rng, domain, [f["key"]])
    at = sum(case.facts[f["key"]] >= c for c in bands["cuts"])
    style = rng.randrange(-1, min(map(len, bands["names"])))
    names = [rng.choice(n) if style < 0 else n[style] for n in bands["names"]]
    return row(domain, "score", tell(rng, case), "score", rng.choice(bands["instructions"]), at, names)


def rating(rng: random.Random, domain: Domain) -> Row:
    q = rng.choice(domain["ratings"])
    case = draw(rng, domain, {c[0] for c, _ in q["points"]})
    goal, at = rng.randrange(len(q["levels"])), -1
    for _ in range(12):  # every level about as often
        at = sum(sum(w for c, w in q["points"] if _holds(case.facts, c)) >= cut for cut in q["cuts"])
        if at == goal:
            break
        case = draw(rng, domain, {c[0] for c, _ in q["points"]})
    at = sum(sum(w for c, w in q["points"] if _holds(case.facts, c)) >= cut for cut in q["cuts"])
    return row(domain, "score", tell(rng, case), "score", rng.choice(q["ask"]), at, q["levels"])


def sort(rng: random.Random, domain: Domain) -> Row:
    f = rng.choice(domain["kinds"])
    case = draw(rng, domain, [f["key"]])
    value = case.facts[f["key"]]
    if rng.random() < 0.25:
        shown = value if rng.random() < 0.5 else rng.choice([v for v in f["values"] if v != value])
        name = rng.choice(f["values"][shown]["name"])
        ask = f"{rng.choice(f['ask'])} Is it this: {name}"
        return _polar(rng, domain, "noul", tell(rng, case), ask, shown == value)
    bare = rng.random() < 0.3
    items = _mixed(rng, [(v, "" if bare else rng.choice(d["name"])) for v, d in f["values"].items()])
    return row(domain, "choice", tell(rng, case), "choice", rng.choice(f["ask"]), value, dict(items))


def decide(rng: random.Random, domain: Domain) -> Row:
    q = rng.choice(domain["policies"])
    needed = {c[0] for _, conditions in q["rules"] for c in conditions}
    goal = rng.choice(list(q["options"]))
    for _ in range(15):
        case = draw(rng, domain, needed)
        chosen = next(option for option, conditions in q["rules"] if all(_holds(case.facts, c) for c in conditions))
        if chosen == goal:
            break
    state, ask = tell(rng, case), rng.choice(q["ask"])
    if rng.random() < 0.2:
        rules = "; ".join(f"{o}: {d}" for o, d in q["options"].items())
        shown = chosen if rng.random() < 0.5 else rng.choice([o for o in q["options"] if o != chosen])
        words = shown.replace("_", " ")
        whole = f"The rules, the first that fits decides: {rules}. {ask} Is it: {words}?"
        return _polar(rng, domain, "noul", state, whole, shown == chosen)
    items = list(q["options"].items())
    return row(domain, "choice", state, "choice", ask, chosen, dict(_mixed(rng, items)))


def tally(rng: random.Random, domain: Domain) -> Row:
    """Several claims at once: do all hold, does any, how many."""
    keys = rng.sample([f["key"] for f in domain["flags"]], rng.randint(2, 4))
    case = draw(rng, domain, keys)
    truths = [rng.random() < 0.55 for _ in keys]
    claims = [state_fact(rng, domain, k, case.facts[k] == t) for k, t in zip(keys, truths, strict=True)]
    listed = " ".join(f"({i}) {c}" for i, c in enumerate(claims, 1))
    state, held = tell(rng, case), sum(truths)
    form = rng.randrange(4)
    if form == 0:
        return _polar(rng, domain, "noul", state, f"Are all of these statements true? {listed}", held == len(keys))
    if form == 1:
        return _polar(rng, domain, "noul", state, f"Is at least one of these statements true? {listed}", held > 0)
    words = ["none", "one", "two", "three", "four"][: len(keys) + 1]
    names = rng.choice((words, [f"{i} of {len(keys)}" for i in range(len(keys) + 1)], [f"{w} correct" for w in words]))
    return row(domain, "score", state, "score", f"How many of these statements are correct? {listed}", held, names)


def coverage(rng: random.Random, domain: Domain) -> Row:
    """A request and a reply that covers some of what was asked for."""
    fields = _fields(domain)
    case = draw(rng, domain)
    wanted = rng.sample(sorted(fields), rng.randint(2, 4))
    held = rng.randint(0, len(wanted))
    told = _mixed(rng, wanted[:held] + rng.sample([k for k in fields if k not in wanted], rng.randint(1, 3)))
    reply = tell(rng, case._replace(told=told))
    labels = "; ".join(fields[k][1]["label"] for k in wanted)
    request = f"Write a note about {rng.choice(domain['about'])}. Say: {labels}"
    state = rng.choice(({"request": request, "response": reply}, f"Request: {request}\n\nResponse: {reply}"))
    if isinstance(state, str) and not isinstance(reply, str):
        state = {"request": request, "response": reply}
    if rng.random() < 0.4:
        ask = rng.choice(("Does the response cover everything that was asked for?", "Is the response complete?",
                          "Does the reply answer the request in full?"))  # fmt: skip
        return _polar(rng, domain, "noul", state, ask, held == len(wanted))
    names = list(rng.choice(COVERED))
    at = 0 if held == 0 else 3 if held == len(wanted) else 1 if held * 2 <= len(wanted) else 2
    asks = ("How complete is the response?", "Rate how well the response answers the request.")
    return row(domain, "score", state, "score", rng.choice(asks), at, names)


def similar(rng: random.Random, domain: Domain, other: Domain) -> Row:
    """Two sentences: how near in meaning."""
    f = rng.choice(domain["flags"])
    side = rng.choice(("yes", "no"))
    at = rng.randrange(5)
    if at == 4:
        a, b = rng.sample(f[side], 2)
    elif at == 3:
        g = rng.choice(domain["numbers"])
        say = rng.sample(g["say"], 2)
        low = rng.randint(g["low"], g["high"] - 1)
        a, b = say[0].replace("{n}", str(low)), say[1].replace("{n}", str(rng.randint(low + 1, g["high"])))
    elif at == 2:
        a, b = rng.choice(f["yes"]), rng.choice(f["no"])
    elif at == 1:
        a = rng.choice(f[side])
        b = rng.choice(rng.choice([g for g in domain["flags"] if g is not f])[rng.choice(("yes", "no"))])
    else:
        a, b = rng.choice(f[side]), rng.choice(rng.choice(other["flags"])[rng.choice(("yes", "no"))])
    if rng.random() < 0.5:
        a, b = b, a
    names = list(rng.choice(SIMILAR))
    keys = rng.choice((("sentence_1", "sentence_2"), ("a", "b"), ("first", "second")))
    state: object = dict(zip(keys, (a, b), strict=True))
    if rng.random() < 0.3:
        state = f"1: {a}\n2: {b}"
    if rng.random() < 0.3:
        asks = ("Do both sentences say the same?", "Are the two paraphrases of each other?")
        return _polar(rng, domain, "noul", state, rng.choice(asks), at == 4)
    asks = ("How close in meaning are the two sentences?", "How similar are they?")
    return row(domain, "score", state, "score", rng.choice(asks), at, names)


def all_fillers(domains: list[Domain]) -> list[str]:
    """The sentences of all domains that decide nothing."""
    return sorted({sentence for domain in domains for sentence in domain["fillers"]})


def buried(rng: random.Random, found: Row, fillers: list[str]) -> Row | None:
    """The same case in the midst of up to 1,700 tokens that decide nothing, if it is told as a text."""
    if not isinstance(state := found["state"], str):
        return None
    words, parts = rng.randint(200, 1300), list[str]()
    while sum(part.count(" ") for part in parts) < words:
        parts.append(" ".join(rng.sample(fillers, rng.randint(3, 7))))
    parts.insert(rng.randint(0, len(parts)), state)
    domain = str(found["task"]).split("/")[1]
    return {**found, "task": f"story/buried/{domain}", "state": "\n\n".join(parts)}


FAMILIES: dict[Callable[..., Row], int] = {
    flag: 800, number: 800, statement: 500, level: 400, rating: 350, sort: 400, decide: 700, tally: 350, coverage: 250,
    similar: 200,
}  # fmt: skip
ONE_CASE = {family: size for family, size in FAMILIES.items() if family not in (coverage, similar)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domains", type=Path, help="folder of domain files")
    parser.add_argument("out", type=Path, help="a .jsonl.gz file")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--share", type=float, default=1.0, help="make this share of the usual number of rows")
    parser.add_argument("--bury", action="store_true", help="put each case in the midst of a long text")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    domains = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(args.domains.glob("*.json"))]
    fillers = all_fillers(domains)
    with gzip.open(args.out, "wt", encoding="utf-8", compresslevel=1) as out:
        for domain in domains:
            for family, size in (ONE_CASE if args.bury else FAMILIES).items():
                for _ in range(int(size * args.share)):
                    extra = [rng.choice([d for d in domains if d is not domain])] if family is similar else []
                    made: Row | None = family(rng, domain, *extra)
                    if made and args.bury:
                        made = buried(rng, made, fillers)
                    if made:
                        out.write(json.dumps(made, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
