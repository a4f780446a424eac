"""Every error: its status, its body, its headers, and which comes first when several apply."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from tests.spec.checks import (
    AUTHORIZED,
    BATCH,
    GETS,
    KEY,
    NOUL,
    POSTS,
    SINGLE,
    body_for,
    bytes_for,
    eventually,
    has_ids,
    in_flight,
    refused,
    served,
)
from tests.spec.conftest import SMALL_BODY
from tests.spec.engines import SECRET
from tests.spec.wire import Wire, chunked, head, message
from tests.support.gate import Gate
from tests.support.server import Reply, Server, running_server


@pytest.fixture(scope="module")
def odd(front: str) -> Iterator[Server]:
    """A server whose engine raises what nobody expects."""
    with running_server("--model", "odd", module="tests.spec.engines", front=front) as running:
        yield running


# --- paths and methods ---


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/systemone/",
        "/v1/systemone/batch/",
        "/v1/models/",
        "/health/",
        "/ready/",
        "/metrics/",
        "/V1/systemone",
        "/v1//systemone",
        "//v1/systemone",
        "/v1/systemone/other",
        "/v2/systemone",
        "/v1/systemone/batch/../batch",
        "/nowhere?path=/health",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_trailing_slash_or_an_unknown_path_is_not_found(server: Server, method: str, path: str) -> None:
    reply = server.request(method, path, bytes_for() if method == "POST" else None)
    refused(reply, 404)
    assert "location" not in reply.headers


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_another_method_than_post_is_not_allowed(server: Server, path: str, method: str) -> None:
    reply = server.request(method, path)
    refused(reply, 405)
    assert "POST" in reply.headers["allow"]


@pytest.mark.parametrize("path", GETS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_another_method_than_get_is_not_allowed(server: Server, path: str, method: str) -> None:
    reply = server.request(method, path, b"{}")
    refused(reply, 405)
    assert "GET" in reply.headers["allow"]


@pytest.mark.parametrize("path", [*GETS, *POSTS])
def test_a_query_makes_no_other_path(server: Server, path: str) -> None:
    reply = server.request("POST" if path in POSTS else "GET", f"{path}?a=b&c", bytes_for(path))
    assert reply.status == 200


# --- inference ---


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("state", ["FAIL", "FAIL-READ", "NAN", "SHORT"])
def test_a_model_failure_is_a_500_without_internals(server: Server, path: str, state: str) -> None:
    """Raising, raising while reading, NaN, too few answers: it failed, and that is all the client learns."""
    reply = server.request("POST", path, body_for(path, f"please {state} now"), {"X-Request-Id": f"failed-{state}"})
    assert refused(reply, 500) == "inference failed"
    assert eventually(lambda: f"request failed-{state}: " in server.log())


def test_a_request_that_makes_the_model_fail_fails_alone(server: Server) -> None:
    """Requests that wait while the model is busy run together; only the guilty one is failed."""
    states = [f"FAIL {number}" if number % 4 == 0 else f"fine {number}" for number in range(12)]
    with Gate() as gate, Wire(server) as busy:
        busy.send(message(bytes_for(state=gate.state)))
        assert eventually(gate.reached)
        wires = [Wire(server) for _ in states]
        for wire, state in zip(wires, states, strict=True):
            wire.send(message(bytes_for(state=state)))
        assert eventually(lambda: in_flight(server) == 1 + len(states))
        gate.open()
        served(busy.reply())
        for wire, state in zip(wires, states, strict=True):
            with wire:
                reply = wire.reply()
                refused(reply, 500) if "FAIL" in state else served(reply)
    assert server.get("/ready").status == 200


def test_a_state_that_fails_fails_its_batch(server: Server) -> None:
    assert refused(server.batch(["fine", "FAIL", "fine"]), 500) == "inference failed"
    assert len(served(server.batch(["fine", "fine"]))["results"]) == 2


@pytest.mark.parametrize(("method", "path"), [("POST", SINGLE), ("POST", BATCH), ("GET", "/health")])
def test_what_is_unforeseen_is_an_internal_server_error(odd: Server, method: str, path: str) -> None:
    """The traceback and the request id are in the log, and only there."""
    request_id = f"odd-{method}-{path.rpartition('/')[2]}"
    body = body_for(path) if method == "POST" else None
    reply = odd.request(method, path, body, {"X-Request-Id": request_id})
    assert refused(reply, 500) == "internal server error"
    assert has_ids(reply) == request_id
    assert SECRET.encode() not in reply.body
    log = odd.log()
    assert "Traceback" in log
    assert SECRET in log
    assert any(request_id in line for line in log.splitlines() if "unexpected" in line or "rror" in line)


# --- the order of checks ---

ORDER = (404, 405, 401, 503, 413, 415, 400, 422)


def _faulty(faults: set[int], is_chunked: bool, endpoint: str = SINGLE, *more: str) -> bytes:
    """A request with all these faults, but for 503, which is the server's."""
    path = "/nowhere" if 404 in faults else endpoint
    lines = [*more] if 401 in faults else [*more, f"Authorization: Bearer {KEY}"]
    if 415 in faults:
        lines.append("Content-Type: multipart/form-data; boundary=x")
    body = bytes_for(endpoint, questions={} if 422 in faults else {"q": NOUL})
    if 400 in faults:
        body = body[:-1]
    if 413 in faults:
        body += b" " * (SMALL_BODY + 1 - len(body))
    method = "DELETE" if 405 in faults else "POST"
    if is_chunked:
        return head("Transfer-Encoding: chunked", *lines, method=method, path=path) + chunked(body)
    return message(body, *lines, method=method, path=path)


@pytest.mark.parametrize(
    "asked", [(SINGLE,), (BATCH,), (BATCH, "Accept: application/x-ndjson")], ids=["single", "batch", "stream"]
)
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("first", "second"), list(combinations(ORDER, 2)))
def test_the_order_of_checks(strict: Server, first: int, second: int, is_chunked: bool, asked: tuple[str, ...]) -> None:
    """404/405, then 401, 503, 413, 415, 400, 422: of two faults the earlier one is named."""
    assert eventually(lambda: in_flight(strict) == 0)
    with Wire(strict) as holder, Wire(strict) as wire:
        if 503 in (first, second):
            holder.send(head("Content-Length: 5", f"Authorization: Bearer {KEY}"))
            assert eventually(lambda: in_flight(strict) == 1)
        reply = wire.exchange(_faulty({first, second}, is_chunked, *asked))
        refused(reply, first)


@pytest.mark.parametrize("fault", [fault for fault in ORDER if fault != 503])
def test_each_fault_alone(strict: Server, fault: int) -> None:
    assert eventually(lambda: in_flight(strict) == 0)
    with Wire(strict) as wire:
        reply = wire.exchange(_faulty({fault}, is_chunked=False))
        refused(reply, fault)
        assert ("www-authenticate" in reply.headers) == (fault == 401)
        assert ("retry-after" in reply.headers) == (fault == 503)


def test_no_fault_at_all(strict: Server) -> None:
    assert eventually(lambda: in_flight(strict) == 0)
    with Wire(strict) as wire:
        served(wire.exchange(_faulty(set(), is_chunked=False)))


def test_a_broken_stream_comes_after_its_media_type(server: Server) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/mixed"}
    refused(server.request("POST", SINGLE, b"no gzip", headers), 415)


def test_an_invalid_request_never_reaches_the_model(server: Server) -> None:
    refused(server.ask("FAIL", {"good": NOUL, "bad": {"type": "box"}}), 422)


# --- headers ---


def _every_reply(server: Server) -> Iterator[Reply]:
    yield from (server.get(path) for path in (*GETS, "/openapi.json", "/nowhere", "/v1/systemone"))
    for body in (bytes_for(), b"", b"{}", b"x" * (2**20 + 1), bytes_for(state="FAIL")):
        yield server.request("POST", SINGLE, body)
    yield server.request("POST", SINGLE, b"{}", {"Content-Encoding": "br"})


def test_every_response_carries_both_ids_and_a_length(server: Server) -> None:
    seen: dict[int, Any] = {}
    for reply in _every_reply(server):
        has_ids(reply)
        assert int(reply.headers["content-length"]) == len(reply.body)
        seen[reply.status] = reply
    assert sorted(seen) == [200, 400, 404, 405, 413, 415, 422, 500]


def test_an_error_says_what_is_wrong_in_words(strict: Server) -> None:
    reply = strict.request("POST", SINGLE, b"{}")
    assert "Bearer" in refused(reply, 401)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert str(SMALL_BODY) in refused(strict.request("POST", SINGLE, b" " * 3000, AUTHORIZED), 413)
