"""Variants of hand-written questions: the same thing asked with other options, levels or words around it.

Hand-written rows are few, so each is shown in several forms instead of several times. The right option is never lost
and neighbours of a right level stay; where options are left out, a literal "other" may become the right one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Question = dict[str, Any]
Asked = tuple[Question, Any]  # a question and its answer

OTHER = re.compile(r"(other|something[ _]else|anything[ _]else|none[ _]of[ _](these|them|the[ _]above))", re.I)
DIRECTED = re.compile(r"\d|\b(scale|from|higher|lower|highest|lowest|level|levels|first|last)\b", re.I)
WORD = re.compile(r"[A-Za-z]{4,}")
STATE_KEYS = ("text", "message", "body", "content", "input", "note", "ticket", "description", "comment", "entry")
CODES: tuple[Callable[[int], str], ...] = (
    lambda i: chr(ord("A") + i),
    lambda i: str(i + 1),
    lambda i: f"option_{i + 1}",
    lambda i: f"C{i + 1}",
    lambda i: f"label_{chr(ord('a') + i)}",
)


def _fewer(rng: random.Random, options: Question, answer: Any) -> Asked | None:
    """Some of the wrong options left out; now and then the right one, when a literal "other" is there to take over."""
    if len(options) < 3:
        return None
    others = [name for name in options if OTHER.fullmatch(name) and name != answer]
    if others and len(options) > 3 and rng.random() < 0.25:
        rest = [name for name in options if name not in (answer, others[0])]
        kept = rng.sample(rest, rng.randint(2, len(rest)))
        return {n: d for n, d in options.items() if n in kept or n == others[0]}, others[0]
    wrong = [name for name in options if name != answer]
    kept = rng.sample(wrong, rng.randint(1, len(wrong) - 1))
    return {n: d for n, d in options.items() if n in kept or n == answer}, answer


def _coded(rng: random.Random, options: Question, answer: Any) -> Asked | None:
    """Names that say nothing, and what they stand for as descriptions."""
    if len(options) > 26:
        return None
    names = list(options)
    rng.shuffle(names)
    code = rng.choice(CODES)
    codes = {name: code(i) for i, name in enumerate(names)}

    def meaning(name: str) -> str:
        said = options[name]
        if not said:
            return name
        return f"{name}: {said}" if rng.random() < 0.5 or not _telling(said) else str(said)

    return {codes[name]: meaning(name) for name in names}, codes[answer]


def _telling(text: object) -> bool:
    return isinstance(text, str) and WORD.search(text) is not None


def _bare(rng: random.Random, options: Question, answer: Any) -> Asked | None:
    """Without descriptions, where all names are words."""
    if not any(options.values()) or not all(_telling(name) for name in options):
        return None
    return dict.fromkeys(options), answer


def _choice(rng: random.Random, question: Question, answer: Any) -> Asked:
    criteria = question["criteria"]
    options = dict(criteria) if isinstance(criteria, dict) else dict.fromkeys(criteria)
    ways = (_fewer, _fewer, _bare, _coded)  # in this order: codes alone say nothing
    for i in sorted(rng.sample(range(len(ways)), rng.randint(1, 2))):
        if made := ways[i](rng, options, answer):
            options, answer = made
    return {**question, "criteria": options}, answer


def _score(rng: random.Random, question: Question, answer: Any) -> Asked:
    levels, way = list(question["criteria"]), rng.random()
    spare = [i for i in range(len(levels)) if abs(i - answer) > 1]
    if way < 0.35 and len(levels) > 3 and spare:
        gone = rng.choice(spare)
        del levels[gone]
        answer -= gone < answer
    elif way < 0.55:
        base = rng.randint(0, 1)
        levels = [t if str(t)[:1].isdigit() else f"{i}: {t}" for i, t in enumerate(levels, base)]
    elif way < 0.75 and not DIRECTED.search(f"{question.get('instructions') or ''} {' '.join(map(str, levels))}"):
        levels, answer = levels[::-1], len(levels) - 1 - answer
    elif way < 0.85 and len(set(levels)) == len(levels) and all(isinstance(t, str) for t in levels):
        return {**question, "type": "choice", "criteria": dict.fromkeys(levels)}, levels[answer]
    return {**question, "criteria": levels}, answer


def _noul(rng: random.Random, question: Question, answer: Any) -> Asked:
    said = question.get("criteria")
    if said and rng.random() < 0.5:
        return {k: v for k, v in question.items() if k != "criteria"}, answer
    if not said and rng.random() < 0.25:
        names = rng.choice((("yes", "no"), ("true", "false"), ("Yes", "No")))
        return {**question, "type": "choice", "criteria": dict.fromkeys(names)}, names[not answer]
    return question, answer


WAYS = {"choice": _choice, "score": _score, "noul": _noul}


def variant(rng: random.Random, row: Row) -> Row:
    """The row, asked differently; a quarter of the texts come inside a JSON object."""
    question, answer = WAYS[row["question"]["type"]](rng, row["question"], row["answer"])
    state = row["state"]
    if isinstance(state, str) and rng.random() < 0.25:
        state = {rng.choice(STATE_KEYS): state}
    return {**row, "state": state, "question": question, "answer": answer}
