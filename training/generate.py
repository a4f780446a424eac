"""Makes questions whose answers are exact: records, rules, tables and long logs, in both polarities.

Crowd-sourced yes/no data is noisy and answers leak through style. Here a record is drawn first, then a condition made
true or false on purpose with even odds, then the words; so the only way to answer is to read the record.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from training.records import (
    FLAGS,
    NOUNS,
    NUMBERS,
    Record,
    atom,
    draw_one,
    draw_record,
    key_of,
    plain,
    prose,
    quantity,
    show,
)
from training.rows import Row, row, write, yes_no


def fact(rng: random.Random) -> Row:
    noun, record, want = rng.choice(NOUNS), draw_record(rng, rng.randint(3, 9)), rng.random() < 0.5
    made = atom(rng, record, want)
    ask = rng.choice((made.ask, f"Is it true that {made.clause}?", f"Does this hold: {made.clause}?"))
    if rng.random() < 0.3:  # the negated wrapper turns the answer round
        denials = ("Is it false that {}?", "Would it be wrong to say that {}?", "Is this statement incorrect: {}?")
        ask = rng.choice(denials)
        return yes_no(rng, "fact", show(rng, noun, record), ask.format(made.clause), not want)
    return yes_no(rng, "fact", show(rng, noun, record), ask, want)


def compound(rng: random.Random) -> Row:
    noun, record = rng.choice(NOUNS), draw_record(rng, rng.randint(4, 8))
    truths = [rng.random() < 0.5 for _ in range(rng.choice((2, 2, 3)))]
    names = rng.sample(list(record), len(truths))
    clauses = [atom(rng, record, t, n).clause for t, n in zip(truths, names, strict=True)]
    forms: list[tuple[str, bool]] = [
        ("Do all of these hold: {}?", all(truths)), ("Does at least one of these hold: {}?", any(truths)),
        ("Does none of these hold: {}?", not any(truths)), ("Does exactly one of these hold: {}?", sum(truths) == 1),
    ]  # fmt: skip
    if len(truths) == 2:
        a, b = clauses
        forms += [
            (f"Is it true that {a} and {b}?", all(truths)),
            (f"Is it true that {a} or {b}?", any(truths)),
            (f"Is it the case that {a} but not that {b}?", truths[0] and not truths[1]),
        ]
    ask, answer = rng.choice(forms)
    return yes_no(rng, "compound", show(rng, noun, record), ask.format("; ".join(clauses)), answer)


def policy(rng: random.Random) -> Row:
    noun, record = rng.choice(NOUNS), draw_record(rng, rng.randint(4, 8))
    actions = rng.sample(("approve", "escalate", "refuse", "ask for details", "send back", "store", "repair",
                          "ship today", "call the owner", "hold"), rng.randint(3, 5))  # fmt: skip
    hit = rng.randrange(len(actions))
    rules, names = [], list(record)
    for i, action in enumerate(actions[:-1]):
        if hit == i or rng.random() < 0.6 or len(names) < 2:
            clause = atom(rng, record, i == hit, rng.choice(names)).clause
        else:
            a, b = rng.sample(names, 2)
            clause = f"{atom(rng, record, rng.random() < 0.5, a).clause} and {atom(rng, record, False, b).clause}"
        if hit < i:  # later rules may hold or not: the first that holds decides
            clause = atom(rng, record, rng.random() < 0.5).clause
        rules.append((action, clause))
    otherwise = rng.choice(("None of the other conditions holds", "Otherwise", "In every other case"))
    if rng.random() < 0.4:  # the rules are the options' descriptions; only one of them may hold
        rules = [(a, atom(rng, record, i == hit).clause.capitalize()) for i, (a, _) in enumerate(rules)]
        items = [*rules, (actions[-1], otherwise)]
        rng.shuffle(items)
        return row("policy", show(rng, noun, record), "choice",
                   rng.choice(("What should be done?", "Which condition holds?", "Pick the action that applies.")),
                   actions[hit], dict(items))  # fmt: skip
    text = ". ".join(f"{'If' if i == 0 else 'Else if'} {c}: {a}" for i, (a, c) in enumerate(rules))
    text += f". Otherwise: {actions[-1]}."
    order = rng.sample(actions, len(actions))
    body = show(rng, noun, record)
    if rng.random() < 0.5 and not isinstance(body, str):
        return row("policy", {"policy": text, "record": body}, "choice", "What does the policy say to do?",
                   actions[hit], dict.fromkeys(order, ""))  # fmt: skip
    return row("policy", body, "choice", f"Follow these rules in order. {text} What should be done?",
               actions[hit], dict.fromkeys(order, ""))  # fmt: skip


def bands(rng: random.Random) -> Row:
    noun = rng.choice(NOUNS)
    record = draw_record(rng, rng.randint(3, 7))
    name = rng.choice(list(NUMBERS))
    low, high, _ = NUMBERS[name]
    count = rng.randint(3, 6)
    cuts = sorted(rng.sample(range(low + 1, high), min(count - 1, high - low - 1)))
    level = rng.randrange(len(cuts) + 1)
    record[name] = rng.randint(([low, *cuts])[level], ([*cuts, high + 1])[level] - 1)
    labels = [f"below {quantity(name, cuts[0])}"]
    labels += [f"{quantity(name, a)} to {quantity(name, b - 1)}" for a, b in pairwise(cuts)]
    labels.append(f"{quantity(name, cuts[-1])} or more")
    if rng.random() < 0.4:
        titles = ["very low", "low", "medium", "high", "very high", "extreme"][: len(labels)]
        labels = [f"{t}: {x}" for t, x in zip(titles, labels, strict=True)]
    if rng.random() < 0.2:
        labels, level = labels[::-1], len(labels) - 1 - level
    items = list(record.items())
    rng.shuffle(items)
    return row("bands", show(rng, noun, dict(items)), "score", rng.choice((f"Rate the {name}.",
               f"Which band does the {name} fall into?", f"How high is the {name}?")), level, labels)  # fmt: skip


def count(rng: random.Random) -> Row:
    noun, record = rng.choice(NOUNS), draw_record(rng, rng.randint(4, 8))
    total = rng.randint(2, 4)
    held = rng.randint(0, total)
    truths = [i < held for i in range(total)]
    rng.shuffle(truths)
    names = rng.sample(list(record), total)
    clauses = "; ".join(atom(rng, record, t, n).clause for t, n in zip(truths, names, strict=True))
    numbers = ["none", "one", "two", "three", "four"][: total + 1]
    labels = rng.choice(([f"{n.capitalize()} of them hold{'s' if n == 'one' else ''}" for n in numbers],
                         [f"{i} of {total}" for i in range(total + 1)],
                         [f"meets {n}" for n in numbers]))  # fmt: skip
    ask = f"How many of these conditions are met? {clauses}"
    return row("count", show(rng, noun, record), "score", ask, held, labels)


def claim(rng: random.Random) -> Row:
    noun, full = rng.choice(NOUNS), draw_record(rng, rng.randint(4, 9))
    name = rng.choice(list(full))
    verdict = rng.choice(("true", "false", "open"))
    made = atom(rng, full, verdict == "true", name)
    seen = {k: v for k, v in full.items() if k != name or verdict != "open"}
    keys = rng.choice((("supported", "refuted", "not stated"), ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"),
                       ("entailment", "contradiction", "neutral"), ("yes", "no", "unknown")))  # fmt: skip
    answer = dict(zip(("true", "false", "open"), keys, strict=True))[verdict]
    glosses = ("the text says so", "the text says otherwise", "the text leaves it open")
    items = [(k, g if rng.random() < 0.5 else "") for k, g in zip(keys, glosses, strict=True)]
    rng.shuffle(items)
    if rng.random() < 0.25:
        there = verdict != "open"
        return yes_no(rng, "claim", show(rng, noun, seen), f"Does the text say anything about the {name}?", there)
    body = show(rng, noun, seen)
    if rng.random() < 0.5:
        state = {"claim": made.clause, "evidence": body}
        return row("claim", state, "choice", "How does the evidence bear on the claim?", answer, dict(items))
    return row("claim", body, "choice", f"Judge this claim by the record: {made.clause}.", answer, dict(items))


def _many(rng: random.Random, noun: str, size: int, fields: int) -> dict[str, Record]:
    names = list(draw_record(rng, fields))
    out: dict[str, Record] = {}
    while len(out) < size:
        out[f"{noun[:2].upper()}-{rng.randrange(100, 9999)}"] = {name: draw_one(rng, name) for name in names}
    return out


def _table(rng: random.Random, noun: str, rows: dict[str, Record]) -> object:
    form, style = rng.randrange(3), rng.randrange(4)
    names = list(next(iter(rows.values())))
    if form == 0:
        return [{"id": i, **{key_of(k, style): v for k, v in r.items()}} for i, r in rows.items()]
    if form == 1:
        head = " | ".join(["id", *(key_of(n, style) for n in names)])
        return "\n".join([head, *(" | ".join([i, *(plain(k, v) for k, v in r.items())]) for i, r in rows.items())])
    return "\n".join(prose(rng, noun, r, i) for i, r in rows.items())


def table(rng: random.Random) -> Row:
    noun = rng.choice(NOUNS)
    rows = _many(rng, noun, rng.randint(2, 7), rng.randint(3, 5))
    numeric = [n for n in next(iter(rows.values())) if n in NUMBERS]
    state = _table(rng, noun, rows)
    form = rng.randrange(5)
    if form <= 1 and numeric:
        name = rng.choice(numeric)
        values = {i: int(str(r[name])) for i, r in rows.items()}
        most = rng.random() < 0.5
        best = (max if most else min)(values.values())
        if list(values.values()).count(best) == 1:
            gold = next(i for i, v in values.items() if v == best)
            side = "highest" if most else "lowest"
            if form == 0:
                return row("table", state, "choice", f"Which one has the {side} {name}?", gold, dict.fromkeys(rows, ""))
            said = gold if rng.random() < 0.5 else rng.choice([i for i in rows if i != gold])
            return yes_no(rng, "table", state, f"Is this true? {said} has the {side} {name}.", said == gold)
    if form == 2 and numeric:
        name = rng.choice(numeric)
        a, b = rng.sample(list(rows), 2)
        x, y = int(str(rows[a][name])), int(str(rows[b][name]))
        if x != y:
            word = rng.choice(("higher", "larger"))
            return yes_no(rng, "table", state, f"Is the {name} of {a} {word} than that of {b}?", x > y)
    name = rng.choice(list(next(iter(rows.values()))))
    return _quantified(rng, state, rows, name)


def _quantified(rng: random.Random, state: object, rows: dict[str, Record], name: str) -> Row:
    """How many rows share one value: the simple condition whose truth is a count."""
    values = [plain(name, r[name]) for r in rows.values()]
    value = rng.choice(values)
    held, total = values.count(value), len(values)
    about = f"the {name} is {value}" if name not in FLAGS else f"the entry for {name} is {value}"
    need = rng.randint(1, total)
    forms = [(f"Is it true of every record that {about}?", held == total),
             (f"Is there more than one record where {about}?", held > 1),
             (f"Are there at least {need} records where {about}?", held >= need),
             (f"Is {held if rng.random() < 0.5 else need} the number of records where {about}?", None)]  # fmt: skip
    ask, answer = rng.choice(forms)
    if answer is None:
        answer = int(ask.split()[1]) == held
    return yes_no(rng, "table", state, ask, bool(answer))


def long(rng: random.Random) -> Row:
    """Many records, one of which is asked about: the windows of a long state must all be readable."""
    noun = rng.choice(NOUNS)
    rows = _many(rng, noun, rng.choice((12, 20, 30, 45, 60, 80)), rng.randint(3, 6))
    state = _table(rng, noun, rows)
    ident = rng.choice(list(rows))
    if rng.random() < 0.5:
        want = rng.random() < 0.5
        return yes_no(rng, "long", state, f"For {ident}: {atom(rng, rows[ident], want).ask}", want)
    name = rng.choice(list(rows[ident]))
    pool = sorted({plain(name, r[name]) for r in rows.values()})
    gold = plain(name, rows[ident][name])
    wrong = [v for v in pool if v != gold]
    options = [gold, *rng.sample(wrong, min(len(wrong), rng.randint(1, 5)))]
    rng.shuffle(options)
    return row("long", state, "choice", f"What is the {name} of {ident}?", gold, dict.fromkeys(options, ""))


def compare(rng: random.Random) -> Row:
    noun, left = rng.choice(NOUNS), draw_record(rng, rng.randint(4, 6))
    levels = rng.randint(2, 4)
    changed = rng.randint(0, levels)
    right = dict(left)
    for name in rng.sample(list(left), changed):
        while right[name] == left[name]:
            right[name] = draw_one(rng, name)
    labels = ["identical", "1 field differs", *(f"{i} fields differ" for i in range(2, levels + 1))]
    level = changed
    if rng.random() < 0.5:
        labels, level = labels[::-1], levels - changed
    state = {"first": show(rng, noun, left, "A"), "second": show(rng, noun, right, "A")}
    return row("compare", state, "score", "How much do the two records agree?", level, labels)


FAMILIES: dict[Callable[[random.Random], Row], int] = {
    fact: 9000, compound: 9000, policy: 8000, bands: 6000, count: 6000, claim: 8000, table: 9000, long: 5000,
    compare: 4000,
}  # fmt: skip


if __name__ == "__main__":
    write(FAMILIES, __doc__ or "")
