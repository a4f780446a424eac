"""What the tests of the contract ask again and again."""

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Reply, Server

KEY = "spec-key-0123456789"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}

SINGLE = "/v1/systemone"
BATCH = "/v1/systemone/batch"
POSTS = (SINGLE, BATCH)
GETS = ("/v1/models", "/health", "/ready", "/metrics")

NOUL = {"type": "noul", "instructions": "Is it so?"}
CHOICE = {"type": "choice", "instructions": "Which one?", "criteria": {"red": "the warm one", "blue": None}}
SCORE = {"type": "score", "instructions": "How much?", "criteria": ["none", "some", "all"]}
MIXED: dict[str, Any] = {"n": NOUL, "c": CHOICE, "s": SCORE}

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def body_for(path: str, state: Any = "A parcel is late.", questions: Any = None) -> dict[str, Any]:
    """A request for either endpoint, the batch with that one state."""
    chosen = {"q": NOUL} if questions is None else questions
    return {"state": state, "questions": chosen} if path == SINGLE else {"states": [state], "questions": chosen}


def bytes_for(path: str = SINGLE, state: Any = "A parcel is late.", questions: Any = None) -> bytes:
    return json.dumps(body_for(path, state, questions)).encode()


def has_ids(reply: Reply) -> str:
    """Check the two id headers that every response carries; return the id."""
    request_id = reply.headers["x-request-id"]
    assert REQUEST_ID.fullmatch(request_id)
    assert reply.headers["x-typesafe-request-id"] == request_id
    return request_id


def refused(reply: Reply, status: int) -> str:
    """Check that a reply is this error, with the error body and nothing else; return its words."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"].split(";")[0] == "application/json"
    has_ids(reply)
    body = reply.json
    assert list(body) == ["detail"]
    assert isinstance(body["detail"], str)
    assert body["detail"]
    return str(body["detail"])


def served(reply: Reply) -> Any:
    """Check that a reply is a success in JSON with finite numbers only; return its body."""
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].split(";")[0] == "application/json"
    has_ids(reply)
    return json.loads(reply.body, parse_constant=lambda text: pytest.fail(f"{text} on the wire"))


def answers_of(reply: Reply) -> Any:
    return served(reply)["answers"]


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether it comes true. The time is for a machine that does much else; who waits in vain has found a fault."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def in_flight(server: Server) -> int:
    return int(served(server.get("/health"))["in_flight"])


def peak_memory(server: Server) -> int:
    """The most memory, in bytes, that the server process has held so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024
