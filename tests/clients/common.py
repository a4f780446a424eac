"""What the client tests share: one sample question set, the answers read without a client, a busy server."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spec.checks import eventually, in_flight
from tests.support.gate import Gate
from tests.support.server import Server

KEY = "client-tests-0123456789"
_REFUSALS = 'service_rejected_total{reason="at_capacity"}'

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


def wait_for_in_flight(server: Server, wanted: int) -> None:
    assert eventually(lambda: in_flight(server) == wanted), f"in_flight did not become {wanted}"


@contextmanager
def busy(server: Server, key: str | None = None) -> Iterator[None]:
    """Hold the one place of a server until it has refused somebody, which it must; who held it is served."""
    wait_for_in_flight(server, 0)
    before = server.metric(_REFUSALS)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with ThreadPoolExecutor() as pool, Gate() as gate:
        held = pool.submit(server.ask, gate.state, None, headers)
        assert eventually(gate.reached)
        refused = pool.submit(eventually, lambda: server.metric(_REFUSALS) > before)
        refused.add_done_callback(lambda _: gate.open())
        yield
        assert refused.result()
        assert held.result().status == 200


def noise(characters: int) -> str:
    """Text that does not compress well."""
    return "".join(random.Random(characters).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=characters))


def assert_distribution(probabilities: Mapping[Any, float], confidence: float) -> None:
    assert all(0 <= p <= 1 for p in probabilities.values())
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
    assert 0 <= confidence <= 1
