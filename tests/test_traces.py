"""Traces: a client's goes on to remote engines, and a collector gets a span per request."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from decided.extras import install_command
from decided.web.spans import open_spans
from tests.remote.fake_engine import FakeEngine
from tests.support.fake_model import FakeModel
from tests.support.server import Server, running_server

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=a1,other=b2"}
SECRET = "a word that stays here"


# --- passed on, always ---


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


@pytest.fixture(scope="module")
def through(engine: FakeEngine) -> Iterator[Server]:
    with running_server("--model", "openai:m", env={"SERVICE_REMOTE_URL": engine.url}) as server:
        yield server


def passed_on(engine: FakeEngine, word: str) -> list[tuple[str | None, str | None]]:
    calls = [call for call in engine.of("/chat/completions") if word in call.prompt]
    return [(call.headers.get("traceparent"), call.headers.get("tracestate")) for call in calls]


def test_a_clients_trace_goes_on_to_the_engine(through: Server, engine: FakeEngine) -> None:
    assert through.ask("one traced", headers=HEADERS).status == 200
    assert passed_on(engine, "one traced") == [(HEADERS["traceparent"], HEADERS["tracestate"])]
    body = {"states": ["all traced"] * 3, "questions": {"q": {"type": "noul", "instructions": "Is it so?"}}}
    for accept in ("application/json", "application/x-ndjson"):
        through.request("POST", "/v1/systemone/batch", body, HEADERS | {"Accept": accept})
    assert set(passed_on(engine, "all traced")) == {(HEADERS["traceparent"], HEADERS["tracestate"])}


def test_requests_do_not_share_it(through: Server, engine: FakeEngine) -> None:
    """Not even two on one connection."""
    body = json.dumps({"state": "untraced", "questions": {"q": {"type": "noul", "instructions": "So?"}}}).encode()
    head = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    traced = head + f"traceparent: {HEADERS['traceparent']}\r\n\r\n".encode() + body.replace(b"untraced", b"is trace")
    through.raw(traced + head + b"Connection: close\r\n\r\n" + body)
    assert passed_on(engine, "untraced") == [(None, None)]


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        f"00-{TRACE}-{PARENT}",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01",
    ],
)
def test_what_is_no_trace_is_ignored(through: Server, engine: FakeEngine, parent: str) -> None:
    engine.calls.clear()
    assert through.ask("odd", headers={"traceparent": parent, "tracestate": "a=b"}).status == 200
    assert passed_on(engine, "odd") == [(None, None)]


# --- spans ---


class Collector:
    """An OTLP receiver: all spans that were sent to it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(resource.resource))
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield collector
        server.shutdown()
        thread.join()


def attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


def test_a_collector_gets_a_span_per_request_without_content() -> None:
    questions = {SECRET: {"type": "noul", "instructions": SECRET}, "b": {"type": "choice", "criteria": {SECRET: None}}}
    with collecting() as collector, running_server(env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}) as server:
        asked = server.ask(SECRET, questions, HEADERS | {"x-request-id": "mine"})
        assert server.ask("FAIL", questions).status == 500
        assert server.get("/nowhere").status == 404
        assert server.request("MADE-UP", "/health").status == 405
        body = {"states": [SECRET] * 3, "questions": questions}
        server.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
        assert server.stop() == 0
    traced, failed = collector.named("POST /v1/systemone")
    assert (traced.trace_id.hex(), traced.parent_span_id.hex(), traced.trace_state) == (
        TRACE,
        PARENT,
        HEADERS["tracestate"],
    )
    found = attributes(traced)
    seconds = {name: found.pop(f"decided.{name}_seconds") for name in ("queue", "tokenize", "model")}
    lasted = (traced.end_time_unix_nano - traced.start_time_unix_nano) / 1e9
    assert all(0 < value <= lasted for value in seconds.values())
    assert found == {
        "http.request.method": "POST",
        "http.route": "/v1/systemone",
        "http.response.status_code": 200,
        "decided.request_id": "mine",
        "decided.questions": 2,
        "gen_ai.operation.name": "decide",
        "gen_ai.provider.name": "decided",
        "gen_ai.response.model": "fake",
        "gen_ai.usage.input_tokens": asked.json["usage"]["input_tokens"],
        "gen_ai.usage.output_tokens": 0,
    }
    assert (failed.parent_span_id, failed.status.code, attributes(failed)["http.response.status_code"]) == (b"", 2, 500)
    (missing,) = collector.named("GET other")
    assert attributes(missing)["http.response.status_code"] == 404
    (unknown,) = collector.named("HTTP /health")  # a name that a client made up is no name for a span
    assert attributes(unknown)["http.request.method"] == "_OTHER"
    (stream,) = collector.named("POST /v1/systemone/batch")
    assert attributes(stream)["gen_ai.usage.input_tokens"] == 3 * asked.json["usage"]["input_tokens"]
    assert SECRET not in str(collector.spans)
    assert collector.resources[0]["service.name"] == "decided"


def test_what_a_remote_engine_is_asked_is_below_our_span(engine: FakeEngine) -> None:
    with collecting() as collector:
        env = {"SERVICE_REMOTE_URL": engine.url, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        env["OTEL_SERVICE_NAME"] = "triage"
        with running_server("--model", "openai:m", env=env) as server:
            assert server.ask("below", headers=HEADERS).status == 200
            server.stop()
    (span,) = collector.named("POST /v1/systemone")
    assert passed_on(engine, "below") == [(f"00-{TRACE}-{span.span_id.hex()}-01", HEADERS["tracestate"])]
    assert attributes(span)["decided.model_seconds"] > 0
    assert collector.resources[0]["service.name"] == "triage"


def test_a_collector_that_is_away_is_nobodys_problem() -> None:
    with running_server(env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) as server:
        assert server.ask("Some state.").status == 200
        assert server.stop(timeout=60) == 0


def test_without_the_extra_there_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert open_spans(FakeModel.card) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        assert open_spans(FakeModel.card) is None
    assert install_command("otel") in caplog.text
