"""The operational endpoints: models, health, readiness, metrics, and the API document."""

import datetime
import importlib.metadata
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.spec.checks import (
    AUTHORIZED,
    BATCH,
    GETS,
    KEY,
    MIXED,
    SINGLE,
    bytes_for,
    eventually,
    in_flight,
    is_integer,
    refused,
    served,
)
from tests.spec.wire import Wire, head, message
from tests.support.gate import Gate
from tests.support.server import Server, running_server

SECONDS = [".005", ".01", ".025", ".05", ".1", ".25", ".5", "1", "2.5", "5", "10", "30"]
QUESTIONS = ["1", "2", "4", "8", "16", "32", "64", "128"]


# --- models, health, ready ---


def test_the_model_list(server: Server) -> None:
    body = served(server.get("/v1/models"))
    assert list(body) == ["models"]
    (entry,) = body["models"]
    assert sorted(entry) == ["description", "kind", "name", "release_date"]
    assert all(isinstance(value, str) and value for value in entry.values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["release_date"])
    datetime.date.fromisoformat(entry["release_date"])


def test_the_health(server: Server) -> None:
    assert eventually(lambda: in_flight(server) == 0)
    body = served(server.get("/health"))
    assert sorted(body) == ["device", "in_flight", "kind", "model", "queue_depth", "status", "version"]
    (entry,) = served(server.get("/v1/models"))["models"]
    assert body["status"] == "ok"
    assert (body["model"], body["kind"]) == (entry["name"], entry["kind"])
    assert body["version"] == importlib.metadata.version("decided")
    assert isinstance(body["device"], str)
    assert body["in_flight"] == body["queue_depth"] == 0
    assert is_integer(body["in_flight"])
    assert is_integer(body["queue_depth"])


def test_the_health_shows_no_address_path_or_key(keyed: Server, remote: Server) -> None:
    for server in (keyed, remote):
        text = server.get("/health").body.decode()
        for secret in (KEY, "/", "127.0.0.1", "localhost", str(server.port)):
            assert secret not in text


def test_the_health_and_the_gauges_count_what_is_in_flight_and_what_waits(one_by_one: Server) -> None:
    """Of four questions the first is begun and three wait; when their client leaves, none is left."""
    assert eventually(lambda: in_flight(one_by_one) == 0)
    questions = {str(number): MIXED["n"] for number in range(4)}
    with Gate() as gate, Wire(one_by_one) as wire:
        wire.send(message(bytes_for(state=gate.state, questions=questions)))
        assert eventually(lambda: served(one_by_one.get("/health"))["queue_depth"] == 3)
        assert in_flight(one_by_one) == 1
        assert one_by_one.metric("service_in_flight") == 1
        assert one_by_one.metric("service_queue_depth") == 3
    assert eventually(lambda: in_flight(one_by_one) == 0)
    assert served(one_by_one.get("/health"))["queue_depth"] == 0
    assert one_by_one.metric("service_in_flight") == one_by_one.metric("service_queue_depth") == 0


def test_ready(server: Server) -> None:
    assert served(server.get("/ready")) == {"ready": True}


def test_ready_with_a_remote_engine(remote: Server, lifeline: Path) -> None:
    """It says so when the engine is there, answers 503 while it cannot be reached, and comes back with it."""
    assert served(remote.get("/ready")) == {"ready": True, "upstream": True}
    lifeline.unlink()
    refused(remote.get("/ready"), 503)
    assert remote.get("/health").status == 200
    lifeline.touch()
    assert served(remote.get("/ready")) == {"ready": True, "upstream": True}


def test_a_worker_that_dies() -> None:
    """Waiting requests fail at once, readiness is 503, new work is refused; the rest goes on."""
    with running_server() as server:
        with Gate() as gate, Wire(server) as guilty, Wire(server) as waiting:
            guilty.send(message(bytes_for(state=f"{gate.state} DIE")))
            assert eventually(gate.reached)
            waiting.send(message(bytes_for(state="innocent")))
            assert eventually(lambda: in_flight(server) == 2)
            assert served(server.get("/ready")) == {"ready": True}
            gate.open()
            refused(guilty.reply(), 500)
            refused(waiting.reply(), 500)
        refused(server.get("/ready"), 503)
        refused(server.ask("x"), 503)
        refused(server.batch(["x"]), 503)
        assert server.get("/health").status == 200
        assert in_flight(server) == 0


# --- metrics ---


def families(server: Server) -> dict[str, Any]:
    reply = server.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(reply.body.decode())}


def series(server: Server, name: str, **labels: str) -> float:
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return server.metric(f"{name}{{{inside}}}" if inside else name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("service_requests_total", "counter"),
        ("service_request_seconds", "histogram"),
        ("service_batch_questions", "histogram"),
        ("service_questions_total", "counter"),
        ("service_in_flight", "gauge"),
        ("service_queue_depth", "gauge"),
    ],
)
def test_the_six_metrics_and_their_types(server: Server, remote: Server, name: str, kind: str) -> None:
    for asked in (server, remote):
        served(asked.ask("x"))
        family = families(asked)[name.removesuffix("_total") if kind == "counter" else name]
        assert family.type == kind
        assert family.samples
        assert f"# TYPE {name} {kind}\n" in asked.get("/metrics").body.decode()


def test_the_labels(server: Server) -> None:
    served(server.ask("x"))
    found = families(server)
    assert {frozenset(one.labels) for one in found["service_requests"].samples} == {frozenset({"endpoint", "status"})}
    for sample in found["service_request_seconds"].samples:
        assert set(sample.labels) - {"le"} == {"endpoint"}
    for name in ("service_batch_questions", "service_questions", "service_in_flight", "service_queue_depth"):
        assert all(set(sample.labels) <= {"le"} for sample in found[name].samples)


@pytest.mark.parametrize(
    ("name", "buckets"), [("service_request_seconds", SECONDS), ("service_batch_questions", QUESTIONS)]
)
def test_the_buckets(server: Server, name: str, buckets: list[str]) -> None:
    served(server.ask("x"))
    bounds: dict[str, list[float]] = {}
    for sample in families(server)[name].samples:
        if sample.name == f"{name}_bucket":
            bounds.setdefault(sample.labels.get("endpoint", ""), []).append(float(sample.labels["le"]))
    assert bounds
    assert all(found == [*map(float, buckets), float("inf")] for found in bounds.values())


def test_there_is_no_created_series_and_no_metric_of_another_registry(server: Server) -> None:
    served(server.ask("x"))
    text = server.get("/metrics").body.decode()
    assert "_created" not in text
    assert all(line.startswith("service_") for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("path", [SINGLE, BATCH])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, None),
        (400, b"no json"),
        (413, b" " * (2**20 + 1)),
        (422, b"{}"),
        (500, "FAIL"),
    ],
)
def test_requests_are_counted_by_endpoint_and_status(server: Server, path: str, status: int, body: Any) -> None:
    def count() -> float:
        return series(server, "service_requests_total", endpoint=path, status=str(status))

    before = count()
    for _ in range(3):
        sent = body if isinstance(body, bytes) else bytes_for(path, body or "x")
        assert server.request("POST", path, sent).status == status
    assert eventually(lambda: count() == before + 3)


def test_refusals_without_a_body_read_are_counted_too(strict: Server) -> None:
    def count(status: int) -> float:
        return series(strict, "service_requests_total", endpoint=SINGLE, status=str(status))

    before = {status: count(status) for status in (401, 503)}
    refused(strict.ask("x"), 401)
    with Wire(strict) as holder:
        holder.send(head("Content-Length: 5", f"Authorization: Bearer {KEY}"))
        assert eventually(lambda: in_flight(strict) == 1)
        refused(strict.ask("x", headers=AUTHORIZED), 503)
    assert {status: count(status) for status in before} == {status: value + 1 for status, value in before.items()}


def test_the_paths_that_clients_invent_are_no_labels(server: Server) -> None:
    refused(server.get("/invented-by-a-client"), 404)
    assert "invented" not in server.get("/metrics").body.decode()


def test_latency_is_counted_by_endpoint(server: Server) -> None:
    before = series(server, "service_request_seconds_count", endpoint=BATCH)
    total = series(server, "service_request_seconds_sum", endpoint=BATCH)
    began = time.monotonic()
    served(server.batch(["SLEEP=0.1"]))
    elapsed = time.monotonic() - began
    assert eventually(lambda: series(server, "service_request_seconds_count", endpoint=BATCH) == before + 1)
    # The server's clock stops after the client has the reply: on a busy machine, a moment later.
    assert 0.1 <= series(server, "service_request_seconds_sum", endpoint=BATCH) - total <= elapsed + 1


def test_questions_are_counted_over_all_states(server: Server) -> None:
    before = series(server, "service_questions_total")
    ran = series(server, "service_batch_questions_sum")
    served(server.ask("x", MIXED))
    served(server.batch(["x", "y"], MIXED))
    refused(server.ask("x", {}), 422)
    assert series(server, "service_questions_total") == before + 9
    assert eventually(lambda: series(server, "service_batch_questions_sum") == ran + 9)


# --- the API document ---


def test_the_api_document(server: Server) -> None:
    body = served(server.get("/openapi.json"))
    assert re.fullmatch(r"3\.1\.\d+", body["openapi"])
    assert body["info"]["version"] == importlib.metadata.version("decided")
    methods = {path: sorted(item) for path, item in body["paths"].items()}
    assert methods == {
        SINGLE: ["post"],
        BATCH: ["post"],
        "/v1/models": ["get"],
        "/health": ["get"],
        "/ready": ["get"],
        "/metrics": ["get"],
        "/openapi.json": ["get"],
    }
    for path in (SINGLE, BATCH):
        replies = body["paths"][path]["post"]["responses"]
        assert {"200", "400", "401", "413", "415", "422", "500", "503", "504"} <= set(replies)


def test_the_api_document_says_what_asks_for_the_key(server: Server, keyed: Server) -> None:
    """As it is with this server: the key is asked for, or it is not."""
    for asked, expected in ((server, []), (keyed, [{"key": list[str]()}])):
        paths = served(asked.get("/openapi.json", AUTHORIZED))["paths"]
        assert paths[SINGLE]["post"]["security"] == paths[BATCH]["post"]["security"] == expected
        assert paths["/openapi.json"]["get"]["security"] == expected
        for path in GETS:
            assert "security" not in paths[path]["get"]
