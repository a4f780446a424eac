"""A batch as a stream: one line per state as it is ready, errors that stay with their state, and an end that shows."""

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spec.checks import (
    AUTHORIZED,
    BATCH,
    MIXED,
    NOUL,
    eventually,
    has_ids,
    in_flight,
    peak_memory,
    refused,
    served,
)
from tests.spec.wire import Wire, message
from tests.support.gate import Gate
from tests.support.server import Reply, Server, read_all, running_server

LINES = "application/x-ndjson"
ACCEPT = {"Accept": LINES}


def streamed(server: Server, states: list[Any], questions: Any = None, headers: dict[str, str] = ACCEPT) -> Reply:
    body = {"states": states, "questions": {"q": NOUL} if questions is None else questions}
    return server.request("POST", BATCH, body, headers)


def lines_of(reply: Reply) -> list[dict[str, Any]]:
    """Check that a reply is a stream; return its lines in the order of the states."""
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == LINES
    assert reply.headers["transfer-encoding"] == "chunked"
    has_ids(reply)
    assert reply.body == b"" or reply.body.endswith(b"\n")
    lines = [json.loads(line) for line in reply.body.splitlines()]
    assert all(next(iter(line)) == "index" for line in lines)
    lines.sort(key=lambda line: int(line["index"]))
    assert [line["index"] for line in lines] == list(range(len(lines)))
    return lines


class Stream(Wire):
    """A stream that is read line by line, as far as one likes."""

    def __init__(self, server: Server, states: list[str], questions: Any = None, *more: str) -> None:
        super().__init__(server)
        body = json.dumps({"states": states, "questions": {"q": NOUL} if questions is None else questions}).encode()
        self.send(message(body, f"Accept: {LINES}", *more, path=BATCH))

    def head(self) -> str:
        return self._until(b"\r\n\r\n").decode()

    def line(self) -> Any:
        size = int(self._until(b"\r\n"), 16)
        if not size:
            assert self._exactly(2) == b"\r\n"
            return None
        part = self._exactly(size)
        assert self._exactly(2) == b"\r\n"
        return json.loads(part)


# --- the lines ---


def test_each_line_is_the_single_response_to_its_state(server: Server) -> None:
    long = "word " * 1500
    states = ["one", {"two": [2]}, None, long, "five"]
    lines = lines_of(streamed(server, states, MIXED))
    assert lines == [{"index": index, **served(server.ask(state, MIXED))} for index, state in enumerate(states)]
    assert "warnings" in lines[3]
    assert "warnings" not in lines[4]


def test_no_states_are_an_empty_stream(server: Server) -> None:
    assert lines_of(streamed(server, [])) == []


def test_the_largest_batch_has_a_line_for_every_state(server: Server) -> None:
    assert len(lines_of(streamed(server, [f"state {n}" for n in range(256)], MIXED))) == 256


def test_a_line_comes_when_its_state_is_ready_and_not_when_all_are(one_by_one: Server) -> None:
    with Gate() as gate, Stream(one_by_one, ["first", gate.state, *["more"] * 39]) as stream:
        assert stream.head().startswith("HTTP/1.1 200 ")
        assert stream.line()["index"] == 0
        assert in_flight(one_by_one) == 1  # it still works on the others
        gate.open()
        assert [stream.line()["index"] for _ in range(40)] == list(range(1, 41))
        assert stream.line() is None
    assert eventually(lambda: in_flight(one_by_one) == 0)


def test_a_connection_goes_on_after_a_stream(server: Server) -> None:
    with Stream(server, ["x", "y"]) as stream:
        for _ in range(2):
            stream.head()
            assert [stream.line()["index"], stream.line()["index"], stream.line()] == [0, 1, None]
            body = json.dumps({"states": ["x", "y"], "questions": {"q": NOUL}}).encode()
            stream.send(message(body, f"Accept: {LINES}", path=BATCH))


def test_http_1_0_gets_the_lines_without_chunks(server: Server) -> None:
    body = json.dumps({"states": ["x", "y"], "questions": {"q": NOUL}}).encode()
    head = f"POST {BATCH} HTTP/1.0\r\nAccept: {LINES}\r\nContent-Length: {len(body)}\r\n\r\n"
    reply = server.raw(head.encode() + body)
    start, _, lines = reply.partition(b"\r\n\r\n")
    assert b"chunked" not in start.lower()
    assert [json.loads(line)["index"] for line in lines.splitlines()] == [0, 1]


def test_a_stream_from_a_remote_engine(remote: Server) -> None:
    lines = lines_of(streamed(remote, ["x", "y"], MIXED))
    assert lines == [{"index": index, **served(remote.ask(state, MIXED))} for index, state in enumerate("xy")]


# --- Accept ---


@pytest.mark.parametrize(
    "accept",
    [
        LINES,
        "APPLICATION/X-NDJSON",
        f"{LINES}; q=0.5",
        f"{LINES};charset=utf-8",
        f"{LINES}, */*",
        f"application/json;q=0.9, {LINES}",
        f"application/json, {LINES}",
        f'text/plain;note="a, b;q=0", {LINES};q=1.000',
        pytest.param(f'{LINES}, "' + '\\"' * 32_000, id="a quote that nothing closes"),  # once a minute of the server
    ],
)
def test_who_names_lines_gets_lines(server: Server, accept: str) -> None:
    assert len(lines_of(streamed(server, ["x", "y"], headers={"Accept": accept}))) == 2


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/*",
        "application/json",
        f"{LINES};q=0",
        f"{LINES}; Q=0.000",
        f"{LINES};q=0.4, application/json;q=0.5",
        f"{LINES};q=0.5, */*",
        f"{LINES}-more",
        f'text/plain;note="{LINES}"',
        "application/ndjson",
    ],
)
def test_who_does_not_gets_the_batch_response_as_ever(server: Server, accept: str | None) -> None:
    plain = server.batch(["x", "y"], MIXED)
    reply = streamed(server, ["x", "y"], MIXED, {} if accept is None else {"Accept": accept})
    served(reply)
    assert reply.body == plain.body
    assert set(reply.headers) == set(plain.headers)


def test_the_other_endpoint_does_not_stream(server: Server) -> None:
    served(server.ask("x", headers=ACCEPT))


# --- refusals: before the stream, they are those of every request ---


def test_what_refuses_the_whole_request_is_an_ordinary_error(server: Server) -> None:
    refused(server.request("POST", BATCH, b"no json", ACCEPT), 400)
    refused(server.request("POST", BATCH, b" " * (2**20 + 1), ACCEPT), 413)
    refused(server.request("POST", BATCH, b"{}", ACCEPT | {"Content-Encoding": "br"}), 415)
    refused(streamed(server, ["x"], {}), 422)
    refused(streamed(server, ["x"] * 257), 422)
    refused(server.request("GET", BATCH, headers=ACCEPT), 405)


def test_the_key_and_the_places_count_for_streams(strict: Server) -> None:
    refused(streamed(strict, ["x"]), 401)
    assert len(lines_of(streamed(strict, ["x"], headers=ACCEPT | AUTHORIZED))) == 1
    key = f"Authorization: {AUTHORIZED['Authorization']}"
    with Gate() as gate, Stream(strict, [gate.state], None, key) as holder:
        assert eventually(gate.reached)
        reply = streamed(strict, ["x"], headers=ACCEPT | AUTHORIZED)
        refused(reply, 503)
        assert reply.headers["retry-after"] == "1"
        gate.open()
        assert "200" in holder.head()
        assert (holder.line()["index"], holder.line()) == (0, None)
    assert len(lines_of(streamed(strict, ["x"], headers=ACCEPT | AUTHORIZED))) == 1


# --- errors that stay with their state ---


@pytest.mark.parametrize("word", ["FAIL", "FAIL-READ", "NAN", "SHORT"])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_state_that_fails_fails_alone(server: Server, word: str, place: int) -> None:
    states = [f"fine {n}" for n in range(5)]
    states[place] = f"{word} here"
    lines = lines_of(streamed(server, states, MIXED))
    assert lines.pop(place) == {"index": place, "status": 500, "detail": "inference failed"}
    states.pop(place)
    assert [line["answers"] for line in lines] == [served(server.ask(state, MIXED))["answers"] for state in states]
    assert in_flight(server) == 0
    assert served(server.get("/health"))["queue_depth"] == 0


def test_every_state_may_fail(server: Server) -> None:
    states = ["FAIL", "FAIL-READ", "NAN", "SHORT"] * 10
    assert {line["detail"] for line in lines_of(streamed(server, states, MIXED))} == {"inference failed"}


def test_a_failure_is_logged_with_the_request_and_its_state(server: Server) -> None:
    streamed(server, ["fine", "FAIL"], headers=ACCEPT | {"x-request-id": "stream-with-a-failure"})
    assert eventually(lambda: "request stream-with-a-failure: states[1]: the model failed" in server.log())


def test_a_failing_state_does_not_fail_its_neighbours(server: Server) -> None:
    with Stream(server, ["FAIL", "SLEEP=0.1", "FAIL"] * 5) as stream:
        stream.head()
        for _ in range(5):
            served(server.ask("another client"))
        found = [stream.line() for _ in range(15)]
    assert sorted(line["index"] for line in found if "detail" in line) == [n for n in range(15) if n % 3 != 1]


def test_states_whose_time_ran_out_get_a_line_each_and_the_stream_ends(narrow: Server) -> None:
    assert eventually(lambda: in_flight(narrow) == 0)
    late = narrow.metric('service_rejected_total{reason="timed_out"}')
    with Gate() as gate:
        lines = lines_of(streamed(narrow, ["quick", "quick too", gate.state, "never", "never"]))
    assert [line.get("status", 200) for line in lines] == [200, 200, 504, 504, 504]
    assert {line["detail"] for line in lines[2:]} == {"no answer within 1 s"}
    assert in_flight(narrow) == 0
    assert narrow.metric('service_rejected_total{reason="timed_out"}') == late + 1
    assert eventually(lambda: narrow.ask("again").status == 200)


def test_no_state_in_time_is_a_stream_of_errors_too(narrow: Server) -> None:
    assert eventually(lambda: narrow.ask("ready?").status == 200)
    with Gate() as gate:
        assert [line["status"] for line in lines_of(streamed(narrow, [gate.state, "x"]))] == [504, 504]
    assert eventually(lambda: narrow.ask("again").status == 200)


def test_a_slow_sender_gets_the_ordinary_refusal(narrow: Server) -> None:
    with Wire(narrow) as wire:
        wire.send(message(b'{"states":', f"Accept: {LINES}", path=BATCH, length=100))
        assert refused(wire.reply(), 504) == "the body did not arrive within 1 s"


def test_when_the_worker_dies_every_state_that_is_left_hears_of_it() -> None:
    with running_server(env={"FAKE_TOKEN_BUDGET": "10"}) as server:
        lines = lines_of(streamed(server, ["fine", "SLEEP=0.1", "DIE", "never"]))
        assert [line.get("status", 200) for line in lines] == [200, 200, 500, 500]
        refused(streamed(server, ["x"]), 503)


# --- readers that are slow, or leave ---


def test_a_disconnect_in_mid_stream_abandons_the_rest(one_by_one: Server) -> None:
    before = one_by_one.metric("service_batch_questions_sum")
    with Gate() as gate:
        with Stream(one_by_one, ["first", gate.state, *["never"] * 200]) as stream:
            stream.head()
            stream.line()
            assert eventually(gate.reached)
        assert eventually(lambda: in_flight(one_by_one) == 0)
        assert served(one_by_one.get("/health"))["queue_depth"] == 0
    for _ in range(3):  # the model deals fairly: what is left would run between these
        served(one_by_one.ask("next"))
    assert one_by_one.metric("service_batch_questions_sum") - before == 5


def test_a_disconnect_before_the_first_line_abandons_everything(one_by_one: Server) -> None:
    with Gate() as gate:
        with Stream(one_by_one, [gate.state, *["never"] * 200]):
            assert eventually(gate.reached)
        assert eventually(lambda: in_flight(one_by_one) == 0)
        assert eventually(lambda: "status=499" in one_by_one.log())


@pytest.fixture(scope="module")
def wordy(front: str) -> Iterator[Server]:
    """A server whose clients have five seconds to read."""
    with running_server("--request-timeout-s", "5", env={"FAKE_TOKEN_BUDGET": "1000"}, front=front) as running:
        served(running.batch(["x"], MANY))
        yield running


@pytest.fixture
def patient(front: str) -> Iterator[Server]:
    """A server whose clients have more time than any machine takes, and that has answered at length before."""
    with running_server("--request-timeout-s", "60", env={"FAKE_TOKEN_BUDGET": "1000"}, front=front) as running:
        served(running.batch(["x"], MANY))
        yield running


MANY = {f"q{n}": {"type": "choice", "criteria": {f"option {k:060}": None for k in range(256)}} for n in range(8)}
STATES = [f"state {n}" for n in range(256)]


def test_a_reader_who_pauses_loses_nothing_and_costs_no_place_and_little_memory(patient: Server) -> None:
    decided = patient.metric("service_questions_total") + len(MANY) * len(STATES)
    memory = peak_memory(patient)
    size = 0
    with Stream(patient, STATES, MANY) as stream:
        assert eventually(lambda: patient.metric("service_questions_total") == decided, 30)
        assert eventually(lambda: in_flight(patient) == 0)
        stream.head()
        for index in range(len(STATES)):
            line = stream.line()
            assert line["index"] == index
            size += len(json.dumps(line))
        assert stream.line() is None
    assert size > 40_000_000
    assert peak_memory(patient) - memory < 25_000_000


def test_a_reader_who_does_not_read_is_cut_off(wordy: Server) -> None:
    with Stream(wordy, STATES, MANY, "x-request-id: never-read") as stream:
        assert eventually(lambda: "id=never-read" in wordy.log())
        assert not read_all(stream.socket).endswith(b"0\r\n\r\n")
    served(wordy.ask("next"))


# --- what the operator sees ---


def test_the_log_and_the_metrics_count_what_was_decided(server: Server) -> None:
    questions = server.metric("service_questions_total")
    replies = server.metric(f'service_requests_total{{endpoint="{BATCH}",status="200"}}')
    tokens = server.metric('service_tokens_total{direction="input"}')
    lines = lines_of(streamed(server, ["a", "FAIL", "b c"], MIXED, ACCEPT | {"x-request-id": "counted-stream"}))
    used = sum(line["usage"]["input_tokens"] for line in lines if "usage" in line)
    assert eventually(lambda: "id=counted-stream" in server.log())
    (logged,) = re.findall("id=counted-stream .*", server.log())
    assert re.search(rf" status=200 ms=\S+ questions=6 tokens={used}$", logged)
    assert server.metric("service_questions_total") == questions + 6
    assert server.metric('service_tokens_total{direction="input"}') == tokens + used
    assert server.metric(f'service_requests_total{{endpoint="{BATCH}",status="200"}}') == replies + 1


def test_a_stream_in_flight_is_finished_when_the_server_stops() -> None:
    with Gate() as gate, running_server(env={"FAKE_TOKEN_BUDGET": "10"}) as server:
        with Stream(server, ["first", gate.state, *["more"] * 19]) as stream:
            stream.head()
            stream.line()
            server.process.send_signal(signal.SIGTERM)
            assert eventually(lambda: "stopping" in server.log())
            gate.open()
            assert [stream.line()["index"] for _ in range(20)] == list(range(1, 21))
            assert stream.line() is None
            assert stream.ended()
        assert server.process.wait(20) == 0


def test_a_second_signal_breaks_a_stream_off() -> None:
    one_by_one = {"FAKE_TOKEN_BUDGET": "10"}
    with Gate() as never, running_server(env=one_by_one) as server, Stream(server, ["x", never.state]) as stream:
        stream.head()
        stream.line()
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: "stopping" in server.log())
        server.process.send_signal(signal.SIGTERM)
        assert stream.ended()  # without the last chunk: a client notices


def test_the_api_document_knows_the_stream(server: Server) -> None:
    document = served(server.get("/openapi.json"))
    content = document["paths"][BATCH]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", LINES}
    kinds = [each["$ref"].rpartition("/")[2] for each in content[LINES]["schema"]["anyOf"]]
    line, problem = (document["components"]["schemas"][kind] for kind in kinds)
    assert set(line["required"]) == {"index", "model", "answers", "usage"}
    assert problem["required"] == ["index", "status", "detail"]
