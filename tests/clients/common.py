"""What the client tests share: one sample question set, the answers read without a client, a busy server."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.server import Server

KEY = "client-tests-0123456789"

STATE: dict[str, Any] = {
    "subject": "Charged twice — señor Müller 🙂",
    "lines": ["I paid on Monday.", None, 2.5, True],
    "customer": {"since": 2019, "plan": None},
}

# Every shape of question that a client may send; the order is kept in the answers.
QUESTIONS: dict[str, Any] = {
    "billing": {"type": "noul", "instructions": "Is this about billing?"},
    "described": {"type": "noul", "instructions": None, "criteria": {"true": "It asks for money back", "false": None}},
    "structured.noul": {"type": "noul", "instructions": {"field": "anger", "question": "Is the writer angry?"}},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": None, "sales": None, "né": None}},
    "why": {"type": "choice", "instructions": None, "criteria": {"refund": {"when": "money back"}, "other": ["rest"]}},
    "only": {"type": "choice", "criteria": {"one": "the only option"}},
    "urgency": {"type": "score", "instructions": ["How", "urgent?"], "criteria": ["low", {"level": "mid"}, ["high"]]},
}

# More words than the model reads: its answers carry `truncated` and the response `warnings`, which clients must bear.
LONG_STATE = "word " * 3_000


def plain_answer(
    server: Server, state: object = STATE, questions: object = QUESTIONS, key: str | None = None
) -> dict[str, Any]:
    """The answer as any HTTP client gets it: what a real client reads must be the same."""
    content = json.dumps({"state": state, "questions": questions}, ensure_ascii=False).encode()
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    reply = server.request("POST", "/v1/systemone", content, headers)
    assert reply.status == 200, reply.body
    body: dict[str, Any] = reply.json
    return body


def wait_for_in_flight(server: Server, wanted: int, within: float = 5.0) -> None:
    end = time.monotonic() + within
    while server.get("/health").json["in_flight"] != wanted:
        assert time.monotonic() < end, f"in_flight did not become {wanted} within {within} s"
        time.sleep(0.005)


@contextmanager
def busy(server: Server, seconds: float) -> Iterator[None]:
    """Hold one place of the server for that long; it must be served in the end."""
    wait_for_in_flight(server, 0)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(server.ask(f"SLEEP={seconds}").status))
    thread.start()
    try:
        wait_for_in_flight(server, 1)
        yield
    finally:
        thread.join()
    assert got == [200]


def noise(characters: int) -> str:
    """Text that does not compress well."""
    return "".join(random.Random(characters).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=characters))


def assert_distribution(probabilities: Mapping[Any, float], confidence: float) -> None:
    assert all(0 <= p <= 1 for p in probabilities.values())
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
    assert 0 <= confidence <= 1
