"""The official client for Node, unmodified, against the running server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.common import KEY, LONG_STATE, QUESTIONS, STATE, busy, noise, plain_answer, wait_for_in_flight
from tests.support.gate import Gate
from tests.support.server import Server

FOLDER = Path(__file__).parent / "node"
PACKAGE = "node_modules/@typesafe-ai/sdk"
QUESTION = {"q": ["noul", "Is this about billing?"]}
PLAIN_QUESTION = {"q": {"type": "noul", "instructions": "Is this about billing?"}}
NO_RETRY = {"retry": {"maxRetries": 0}}

Calls = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def node_client() -> Calls:
    """Runs calls through the client, which is installed from the lock file when it is not there yet."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    wanted = json.loads((FOLDER / "package-lock.json").read_text())["packages"][PACKAGE]["version"]
    manifest = FOLDER / PACKAGE / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != wanted:
        if os.environ.get("NPM_CONFIG_OFFLINE") == "true":
            pytest.skip("the client for Node is not installed and npm is set to offline")
        install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(install, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr

    def run(
        server: Server, *calls: dict[str, Any], together: bool = False, env: dict[str, str] | None = None, **config: Any
    ) -> list[dict[str, Any]]:
        if env is None:
            config = {"apiKey": "any", "baseURL": server.url, **config}
        done = subprocess.run(
            [node, "calls.mjs"],
            cwd=FOLDER,
            input=json.dumps({"config": config, "calls": calls, "together": together}),
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        outcomes: list[dict[str, Any]] = json.loads(done.stdout)
        assert len(outcomes) == len(calls)
        return outcomes

    return run


def test_every_question_shape_is_answered_as_without_the_client(server: Server, node_client: Calls) -> None:
    (got,) = node_client(server, {"ask": {"state": STATE, "questions": QUESTIONS}})
    assert got["status"] == 200
    assert got["data"] == plain_answer(server)
    assert list(got["data"]["answers"]) == list(QUESTIONS)
    assert got["data"]["answers"]["urgency"]["legend"] == {"0": "low", "1": {"level": "mid"}, "2": ["high"]}


def test_question_helpers_and_a_null_state(server: Server, node_client: Calls) -> None:
    questions = {
        "billing": ["noul", "Is this about billing?"],
        "described": ["noul", None, {"true": "It asks for money back"}],
        "team": ["choice", None, {"billing": None, "sales": {"who": "sells"}}],
        "urgency": ["score", None, ["low", "high"]],
    }
    (got,) = node_client(server, {"ask": {"state": None, "questions": questions}})
    wire = {
        "billing": {"type": "noul", "instructions": "Is this about billing?"},
        "described": {"type": "noul", "criteria": {"true": "It asks for money back"}},
        "team": {"type": "choice", "criteria": {"billing": None, "sales": {"who": "sells"}}},
        "urgency": {"type": "score", "criteria": ["low", "high"]},
    }
    assert got["data"] == plain_answer(server, None, wire)


def test_large_states(server: Server, node_client: Calls) -> None:
    states = [noise(1_000), noise(70_000), noise(200_000), "🙂" * 200_000, LONG_STATE]
    got = node_client(server, *({"ask": {"state": state, "questions": QUESTION}} for state in states), timeout=30_000)
    for state, outcome in zip(states, got, strict=True):
        assert outcome["data"] == plain_answer(server, state, PLAIN_QUESTION)


def test_bodies_that_may_arrive_in_one_piece_with_their_head(server: Server, node_client: Calls) -> None:
    """One after the other on one connection, each larger than any limit on heads and small enough for one read."""
    calls = [{"ask": {"state": noise(70_000), "questions": QUESTION}, "options": NO_RETRY}] * 40
    assert [got["status"] for got in node_client(server, *calls)] == [200] * len(calls)


def test_request_ids(server: Server, node_client: Calls) -> None:
    ask = {"state": "text", "questions": QUESTION}
    named, first, second = node_client(
        server, {"ask": ask, "options": {"headers": {"X-Request-Id": "order-42:a.b_c"}}}, {"ask": ask}, {"ask": ask}
    )
    assert named["requestId"] == "order-42:a.b_c"
    assert first["requestId"]
    assert first["requestId"] != second["requestId"]


def test_model_list_needs_no_right_key(keyed: Server, node_client: Calls) -> None:
    (got,) = node_client(keyed, {}, apiKey="wrong")
    (model,) = got["data"]
    assert model.keys() == {"name", "description", "release_date", "kind"}
    assert all(isinstance(value, str) for value in model.values())
    time.strptime(model["release_date"], "%Y-%m-%d")
    assert got["requestId"]


def test_only_the_base_address_changes(keyed: Server, node_client: Calls) -> None:
    env = {"TYPESAFE_BASE_URL": keyed.url + "/", "TYPESAFE_API_KEY": KEY}
    (got,) = node_client(keyed, {"ask": {"state": "text", "questions": QUESTION}}, env=env)
    assert got["data"] == plain_answer(keyed, "text", PLAIN_QUESTION, KEY)


@pytest.mark.parametrize("size", [10, 900_000])
def test_a_wrong_key_is_401(keyed: Server, node_client: Calls, size: int) -> None:
    ask = {"ask": {"state": noise(size), "questions": QUESTION}}
    for got in node_client(keyed, ask, ask, ask, apiKey="wrong"):
        assert (got["error"], got["status"]) == ("AuthenticationError", 401)
        assert list(got["body"]) == ["detail"]
        assert got["requestId"]


def test_invalid_requests_are_422_that_names_the_question(server: Server, node_client: Calls) -> None:
    faulty: list[Any] = [
        {"type": "rank"},
        {"type": "box", "instructions": "The dog"},
        ["score", "How much?", ["low", None]],
        ["choice", "Which?", {"a": 1}],
        ["choice", "Which?", {str(i): None for i in range(257)}],
        ["noul"],
    ]
    calls = [{"ask": {"state": "text", "questions": {**QUESTION, "faulty-one": question}}} for question in faulty]
    for got in node_client(server, *calls):
        assert (got["error"], got["status"]) == ("UnprocessableEntityError", 422)
        assert "faulty-one" in got["body"]["detail"]
        assert got["message"] == "422 " + got["body"]["detail"]
        assert got["requestId"]


def test_unknown_fields_are_ignored(server: Server, node_client: Calls) -> None:
    ask = {"state": "text", "questions": QUESTION}
    plain, extra = node_client(
        server, {"ask": ask}, {"ask": {**ask, "keep_alive": None, "temperature": 1, "model": "x"}}
    )
    assert extra["data"] == plain["data"]


def test_a_body_over_the_limit_is_413(server: Server, node_client: Calls) -> None:
    """The client is still sending while it is refused, and must see the refusal, not a broken connection."""
    ask = {"ask": {"state": "x" * 1_500_000, "questions": QUESTION}, "options": NO_RETRY}
    for got in node_client(server, ask, ask, ask):
        assert (got["error"], got.get("status")) == ("APIError", 413), got
        assert list(got["body"]) == ["detail"]


def test_a_wrong_base_address_is_404(server: Server, node_client: Calls) -> None:
    (got,) = node_client(server, {"ask": {"state": "text", "questions": QUESTION}}, baseURL=server.url + "/v1")
    assert (got["error"], got["status"]) == ("NotFoundError", 404)
    assert list(got["body"]) == ["detail"]


def test_503_is_retried_after_the_announced_second(tight: Server, node_client: Calls) -> None:
    call = {"ask": {"state": "text", "questions": QUESTION}, "options": {"retry": {"maxRetries": 1}}}
    with busy(tight):
        (got,) = node_client(tight, call)
    assert got["status"] == 200
    assert got["ms"] >= 1000


@pytest.mark.parametrize("size", [10, 900_000])
def test_503_without_retries_comes_at_once(tight: Server, node_client: Calls, size: int) -> None:
    call = {"ask": {"state": noise(size), "questions": QUESTION}, "options": NO_RETRY}
    with busy(tight):
        (got,) = node_client(tight, call)
    assert (got["error"], got["status"], got["retryAfter"]) == ("InternalServerError", 503, "1")


def test_a_client_that_aborts_frees_its_place(tight: Server, node_client: Calls) -> None:
    wait_for_in_flight(tight, 0)
    with Gate() as gate:
        (got,) = node_client(tight, {"ask": {"state": gate.state, "questions": QUESTION}, "abortAfterMs": 300})
        assert got["error"] == "APIUserAbortError"
        wait_for_in_flight(tight, 0)


def test_many_calls_at_once_get_the_answers_of_calls_alone(server: Server, node_client: Calls) -> None:
    states = [f"message {i}: " + noise(20 * i) for i in range(40)]
    calls = [{"ask": {"state": state, "questions": PLAIN_QUESTION}} for state in states]
    together = node_client(server, *calls, together=True)
    assert len({got["requestId"] for got in together}) == len(states)
    for state, got in zip(states, together, strict=True):
        alone = plain_answer(server, state, PLAIN_QUESTION)
        assert got["data"]["usage"] == alone["usage"]
        assert got["data"]["answers"]["q"]["noul"] == pytest.approx(alone["answers"]["q"]["noul"], abs=1e-3)
