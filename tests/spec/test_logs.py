"""Logs: one line per request with what the operator needs, and never a state, an answer or a key."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spec.checks import AUTHORIZED, BATCH, KEY, MIXED, SINGLE, body_for, bytes_for, eventually, refused, served
from tests.spec.wire import Wire, message
from tests.support.server import Server, running_server

FIELDS = {"id", "endpoint", "status", "ms", "questions", "tokens"}
SECRETS = ["zq-state", "zq-option", "zq-level", "zq-key"]
QUESTIONS: dict[str, Any] = {
    "c": {"type": "choice", "instructions": "so?", "criteria": {"zq-option-1": None, "zq-option-2": "zq-option-3"}},
    "s": {"type": "score", "instructions": "so?", "criteria": ["zq-level-1", "zq-level-2"]},
}


@pytest.fixture(scope="module")
def spoken(front: str) -> Iterator[Server]:
    """A server that logs all it ever would, for machines."""
    env = {"SERVICE_API_KEY": KEY, "SERVICE_LOG_FORMAT": "json"}
    with running_server("--log-level", "debug", "--request-timeout-s", "1.5", env=env, front=front) as running:
        yield running


def lines_of(server: Server, request_id: str) -> list[str]:
    """The request lines with this id; there is at least one, if one waits for it."""

    def found() -> list[str]:
        return [line for line in server.log().splitlines() if request_id in line and "endpoint" in line]

    assert eventually(found)
    return found()


def entry_of(server: Server, request_id: str) -> dict[str, Any]:
    (line,) = lines_of(server, request_id)
    entry: dict[str, Any] = json.loads(line)
    return entry


@pytest.mark.parametrize(
    ("status", "path", "body", "questions", "tokens"),
    [
        (200, SINGLE, bytes_for(SINGLE, "one two", MIXED), 3, 32),
        (200, BATCH, json.dumps({"states": ["one", "two"], "questions": MIXED}).encode(), 6, 62),
        (400, SINGLE, b"no json", 0, 0),
        (413, BATCH, b" " * (2**20 + 1), 0, 0),
        (422, SINGLE, b"{}", 0, 0),
        (500, SINGLE, bytes_for(SINGLE, "FAIL"), None, None),
        (504, SINGLE, bytes_for(SINGLE, "SLEEP=2"), None, None),
    ],
)
def test_each_request_has_one_line(
    spoken: Server, status: int, path: str, body: bytes, questions: int | None, tokens: int | None
) -> None:
    request_id = f"line-{status}-{len(path)}"
    assert spoken.request("POST", path, body, AUTHORIZED | {"X-Request-Id": request_id}).status == status
    entry = entry_of(spoken, request_id)
    assert set(entry) >= FIELDS
    assert (entry["id"], entry["endpoint"], entry["status"]) == (request_id, path, status)
    assert 0 <= entry["ms"] < 10_000
    assert questions is None or (entry["questions"], entry["tokens"]) == (questions, tokens)


@pytest.mark.parametrize(
    ("path", "status", "endpoint"), [("/health", 200, "/health"), ("/nowhere", 404, None), (SINGLE, 405, SINGLE)]
)
def test_other_requests_have_one_line_too(spoken: Server, path: str, status: int, endpoint: str | None) -> None:
    request_id = f"other-{status}"
    assert spoken.get(path, {"X-Request-Id": request_id}).status == status
    entry = entry_of(spoken, request_id)
    assert entry["status"] == status
    assert endpoint is None or entry["endpoint"] == endpoint


def test_a_generated_id_is_the_one_that_is_logged(spoken: Server) -> None:
    assert len(lines_of(spoken, spoken.get("/health").headers["x-request-id"])) == 1


def test_what_is_no_http_has_its_line_as_well(spoken: Server) -> None:
    with Wire(spoken) as wire:
        reply = wire.exchange(b"nonsense\r\n\r\n")
    assert entry_of(spoken, reply.headers["x-request-id"])["status"] == 400


def test_the_time_in_the_line_is_the_time_it_took(spoken: Server) -> None:
    began = time.monotonic()
    served(spoken.ask("SLEEP=0.2", headers=AUTHORIZED | {"X-Request-Id": "timed"}))
    elapsed = time.monotonic() - began
    assert 190 < entry_of(spoken, "timed")["ms"] < elapsed * 1000 + 1


def test_every_line_of_the_json_format_parses(spoken: Server) -> None:
    refused(spoken.ask("FAIL", headers=AUTHORIZED | {"X-Request-Id": "traced"}), 500)
    assert eventually(lambda: spoken.log().count("traced") >= 2)
    entries = [json.loads(line) for line in spoken.log().splitlines()]
    assert all({"time", "level"} <= set(entry) for entry in entries)
    assert any("Traceback" in entry.get("traceback", "") for entry in entries)


def test_the_text_format_has_the_same_in_one_line(server: Server) -> None:
    served(server.ask("one two", MIXED, {"X-Request-Id": "as-text"}))
    assert eventually(lambda: "as-text" in server.log())
    (line,) = [line for line in server.log().splitlines() if "as-text" in line]
    for part in (SINGLE, "as-text", r"\b200\b", r"\bquestions=3\b", r"\btokens=32\b", r"\bms=\d+"):
        assert re.search(part, line), part


def test_no_line_holds_a_state_an_answer_or_a_key(spoken: Server) -> None:
    """Whatever becomes of the request, and at the most talkative level."""
    wrong = {"Authorization": "Bearer zq-key-wrong"}
    numbers = set()
    for path in (SINGLE, BATCH):
        for state in ("zq-state", "zq-state FAIL", "zq-state FAIL-READ", "zq-state NAN", "zq-state SHORT"):
            body = body_for(path, state, QUESTIONS)
            reply = spoken.request("POST", path, body, AUTHORIZED)
            numbers |= set(re.findall(rb"0\.\d{6,}", reply.body))
            spoken.request("POST", path, body, wrong)
        spoken.request("POST", path, body_for(path, "zq-state " * 2000, QUESTIONS), AUTHORIZED)
        spoken.request("POST", path, body_for(path, "zq-state", {}), AUTHORIZED)
        spoken.request("POST", path, body_for(path, "zq-state" * 30_000, QUESTIONS), AUTHORIZED)
        spoken.request("POST", path, bytes_for(path, "zq-state", QUESTIONS)[:-1], AUTHORIZED)
        spoken.request("POST", path, bytes_for(path, "zq-state", QUESTIONS) + b"\xff", AUTHORIZED)
        spoken.request("POST", path, body_for(path, "zq-state SLEEP=2", QUESTIONS), AUTHORIZED)
        spoken.request("POST", f"{path}?state=zq-state&key={KEY}", body_for(path), AUTHORIZED)
    with Wire(spoken) as wire:
        wire.send(message(bytes_for(state="zq-state SLEEP=0.3"), f"Authorization: Bearer {KEY}"))
    with Wire(spoken) as wire:
        wire.exchange(b"zq-state zq-key\r\n\r\n")
    served(spoken.get("/health", {"X-Request-Id": "the-last-one"}))
    assert len(lines_of(spoken, "the-last-one")) == 1
    assert numbers
    for secret in (*SECRETS, KEY, *(number.decode() for number in numbers)):
        assert secret not in spoken.log()
