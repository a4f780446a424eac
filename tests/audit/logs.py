"""Audit logs for tests, written by the code that a server writes them with."""

from pathlib import Path
from typing import Any

import msgspec

from decided.audit.appender import Appender
from decided.audit.line import Decision, Scribe
from decided.contract.answers import answer
from decided.contract.types import Choice, Noul, Question

KEY = b"a key for tests, and for nothing else"
QUESTIONS: dict[str, Question] = {
    "late": Noul("Is the parcel late?"),
    "team": Choice({"billing": None, "delivery": None}),
}
SCRIBE = Scribe("fake", "digest-of-weights", KEY)


def decision(number: int) -> Decision:
    answers = {name: answer(question, [number + 1.0, 1.0]) for name, question in QUESTIONS.items()}
    return Decision(1.7e9 + number, f"request-{number}", "ci", 0, f"state {number}", QUESTIONS, answers, [None, 0.9])


def write_log(path: Path, decisions: int, max_bytes: int = 2**30, scribe: Scribe = SCRIBE) -> None:
    """An event and two lines for each decision."""
    appender = Appender(path, max_bytes)
    head, line = scribe.tell(appender.head, 1.7e9, "opened")
    appender.append(line, head)
    for number in range(decisions):
        head, lines = scribe.write(appender.head, decision(number))
        appender.append(b"".join(lines), head)
    appender.close()


def entries(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
