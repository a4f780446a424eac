"""Thirteen faults that servers of this protocol have shown, each provoked here over a real socket."""

import contextlib
import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.spec.checks import eventually
from tests.support.gate import Gate
from tests.support.server import Reply, Server, running_server, start

NOUL = {"type": "noul", "instructions": "Is it so?"}
ASKED = "service_batch_questions_sum"


def until(condition: Callable[[], bool]) -> None:
    assert eventually(condition), "it did not happen"


@pytest.mark.parametrize("model", ["fake", "fake:whole"], ids=["a question a piece", "a state in pieces"])
def test_1_a_large_batch_starves_nobody_and_ends_with_its_504(model: str) -> None:
    with running_server("--model", model, "--request-timeout-s", "3") as server, ThreadPoolExecutor(1) as pool:
        states = [f"SLEEP=0.05 {number}" for number in range(256)]
        questions = {f"q{number}": NOUL for number in range(64)}
        large = pool.submit(server.batch, states, questions)
        until(lambda: server.get("/health").json["queue_depth"] > 10_000)
        beside = []
        while not large.done():
            beside.append(server.ask("small").status)
        assert set(beside) == {200}
        assert len(beside) > 3
        assert large.result().status == 504
        assert server.get("/health").json["queue_depth"] == 0
        assert server.get("/health").json["in_flight"] == 0

        ran, asked = server.metric(ASKED), 0

        def asked_alone() -> bool:
            nonlocal asked
            before, asked = server.metric(ASKED), asked + 1
            assert server.ask("after").status == 200
            return server.metric(ASKED) == before + 1

        until(lambda: all(asked_alone() for _ in range(5)))  # the model deals fairly: what is left would run between
        assert server.metric(ASKED) - ran - asked <= 3 * 64  # what had begun before the 504: three pieces at the most


def test_2_half_sent_bodies_do_not_hold_their_places() -> None:
    with running_server("--max-in-flight", "2", "--request-timeout-s", "0.6") as server:
        head = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        slow = [server.connect() for _ in range(2)]
        for connection in slow:
            connection.sendall(head)
        until(lambda: server.get("/health").json["in_flight"] == 2)
        assert server.ask("refused").status == 503
        assert server.metric('service_rejected_total{reason="at_capacity"}') == 1
        for connection in slow:
            assert connection.recv(12) == b"HTTP/1.1 504"
        assert server.ask("served").status == 200
        for connection in slow:
            connection.close()


def test_3_long_instructions_and_options_are_cut_and_reported() -> None:
    question = {
        "type": "choice",
        "instructions": "word " * 12_000,
        "criteria": {"a": "long " * 3_000, "b": None},
    }
    with running_server("--model", "embedded:small") as server:
        reply = server.ask("a state", {"long": question, "short": NOUL}).json
    assert reply["usage"]["input_tokens"] < 2_048
    assert reply["answers"]["long"]["truncated"] is True
    assert "truncated" not in reply["answers"]["short"]
    [warning] = reply["warnings"]
    assert "long" in warning
    assert "instructions" in warning
    assert "options" in warning


def test_4_poison_is_refused_before_it_meets_others_and_fails_alone_when_it_does(server: Server) -> None:
    poisons = [b'{"state":"\\ud800","questions":{}}', b'{"state":"\xed\xa0\x80","questions":{}}']
    with ThreadPoolExecutor(16) as pool:
        good = [pool.submit(server.ask, f"SLEEP=0.001 good {number}") for number in range(60)]
        bad = [pool.submit(server.ask, "FAIL") for _ in range(6)]
        unread = [pool.submit(server.request, "POST", "/v1/systemone", poison) for poison in poisons]
    assert {reply.result().status for reply in good} == {200}
    assert {reply.result().status for reply in bad} == {500}
    assert {reply.result().status for reply in unread} == {400}


def test_5_batches_are_filled_not_split(server: Server) -> None:
    """Held exactly, with a gate, in test_worker.py; here: many three-question requests share batches."""
    before = server.metric("service_batch_questions_sum"), server.metric("service_batch_questions_count")
    questions = dict.fromkeys(("a", "b", "c"), NOUL)
    with ThreadPoolExecutor(25) as pool, Gate() as gate:
        held = pool.submit(server.ask, gate.state)
        until(gate.reached)
        replies = [pool.submit(server.ask, f"state {number}", questions) for number in range(24)]
        until(lambda: server.get("/health").json["queue_depth"] == 72)
        gate.open()
        assert held.result().status == 200
        assert {reply.result().status for reply in replies} == {200}
    ran = server.metric("service_batch_questions_sum") - before[0]
    batches = server.metric("service_batch_questions_count") - before[1]
    assert ran == 1 + 72
    assert batches < 24


def test_6_a_very_long_state_with_many_questions_is_read_once() -> None:
    with running_server("--model", "embedded:small", "--request-timeout-s", "300") as server:
        reply = server.ask("late parcel " * 16_250, {f"q{number}": NOUL for number in range(16)})
    assert reply.status == 200
    assert len(reply.json["warnings"]) == 16


PLAUSIBLE: list[tuple[Any, int]] = [
    ({"state": "s", "questions": {"q": None}}, 422),
    ({"state": "s", "questions": {"q": 5}}, 422),
    ({"state": "s", "questions": {"q": "yes?"}}, 422),
    ({"state": "s", "questions": {"q": []}}, 422),
    ({"state": "s", "questions": {"q": {"type": None}}}, 422),
    ({"state": "s", "questions": {"q": {"type": ["noul"]}}}, 422),
    ({"state": "s", "questions": []}, 422),
    ({"state": "s", "questions": None}, 422),
    ({"state": "s", "questions": {"q": {"type": "choice", "criteria": ["a", "b"]}}}, 422),
    ({"state": "s", "questions": {"q": {"type": "score", "criteria": {"a": "b"}}}}, 422),
    (b'{"state":' + b"[" * 5_000 + b"]" * 5_000 + b"}", 400),
    (b'{"state":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}", 400),
    (b'{"state":"\\ud800"}', 400),
    (b'{"state":1e999}', 400),
    (b"[]", 400),
    (b"null", 400),
]


@pytest.mark.parametrize(("body", "status"), PLAUSIBLE)
def test_7_plausible_bad_input_is_a_4xx(server: Server, body: Any, status: int) -> None:
    reply = server.request("POST", "/v1/systemone", body)
    assert reply.status == status
    assert reply.detail
    if status == 422 and isinstance(body, dict) and isinstance(body["questions"], dict):
        assert '"q"' in reply.detail


def test_8_failures_show_no_internals_a_dead_worker_is_noticed_and_so_is_a_client_that_left() -> None:
    with Gate() as never, running_server("--max-in-flight", "1") as server:
        failed = server.ask("FAIL")
        assert (failed.status, failed.detail) == (500, "inference failed")
        assert failed.headers["x-request-id"] in server.log()
        body = json.dumps({"state": never.state, "questions": {"q": NOUL}}).encode()
        leaving = server.connect()
        leaving.sendall(b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.get("/health").json["in_flight"] == 1)
        leaving.close()
        until(lambda: server.get("/health").json["in_flight"] == 0)
        server.process.kill()
    with running_server("--worker-grace-s", "0") as server:
        assert server.ask("DIE").status == 500
        until(lambda: server.get("/ready").status == 503)
        assert server.get("/ready").detail == "the inference worker has stopped"
        assert server.ask("new work").status == 503
        assert server.get("/health").status == 200


def test_8_a_process_whose_worker_is_lost_ends_by_itself() -> None:
    with running_server("--worker-grace-s", "1") as server:
        assert server.ask("DIE").status == 500
        assert server.ask("new work").status == 503
        assert server.process.wait(20) == 5
        assert "ending" in server.log()
    with running_server("--worker-grace-s", "0.5", "--request-timeout-s", "0.2") as server:  # stuck after 10 s
        assert server.ask("SLEEP=60").status == 504
        assert server.process.wait(40) == 5


def test_9_the_token_budget_bounds_a_batch() -> None:
    with running_server(env={"FAKE_TOKEN_BUDGET": "40"}) as server:
        assert server.batch(["state"] * 16, {f"q{number}": NOUL for number in range(16)}).status == 200
        assert server.metric('service_batch_questions_bucket{le="4.0"}') == server.metric(
            "service_batch_questions_count"
        )


def test_11_nothing_is_shown_to_those_without_the_key() -> None:
    key = "the key"
    with running_server(env={"SERVICE_API_KEY": key}) as server:
        assert server.get("/openapi.json").status == 401
        assert {server.get(path).status for path in ("/docs", "/redoc")} == {404}
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert server.get("/openapi.json", {"Authorization": f"{scheme} {key}"}).status == 200
        health = server.get("/health").body.decode()
        assert "://" not in health
        assert "/" not in health
        assert key not in health


@pytest.mark.parametrize(
    "body",
    [
        b'{"state":NaN,"questions":{"q":{"type":"noul","instructions":"x"}}}',
        '{"state":"s","questions":{"q":{"type":"noul","instructions":"x"}}}'.encode("utf-16"),
        b'{"state":"s","state":"t","questions":{"q":{"type":"noul","instructions":"x"}}}',
        b'{"state":"s","questions":{"q":{"type":"noul","instructions":"x"}, "q":{"type":"noul","instructions":"y"}}}',
        b'{"state":"s","questions":{"q":{"type":"choice","criteria":{"a":null,"\\u0061":null}}}}',
    ],
)
def test_12_what_cannot_be_read_one_way_only_is_not_read(server: Server, body: bytes) -> None:
    assert server.request("POST", "/v1/systemone", body).status == 400


def test_12_a_choice_is_always_one_of_the_names(server: Server) -> None:
    names = ["1", "null", "true", "", "ü", "a b"]
    question = {"type": "choice", "criteria": dict.fromkeys(names)}
    for number in range(20):
        answer = server.ask(f"state {number}", {"q": question}).json["answers"]["q"]
        assert answer["choice"] in names
        assert list(answer["probabilities"]) == names


def test_13_refusals_stay_out_of_the_latency_histogram(server: Server) -> None:
    series = 'service_request_seconds_count{endpoint="/v1/systemone"}'
    before = server.metric(series)
    refusals: list[Reply] = [server.request("POST", "/v1/systemone", b"{"), server.ask("s", {}), server.ask("FAIL")]
    assert [reply.status for reply in refusals] == [400, 422, 500]
    assert server.metric(series) == before
    assert server.ask("answered").status == 200
    assert server.metric(series) == before + 1


def test_no_small_body_costs_much_memory() -> None:
    """The widest answer that a small body can ask for: 256 states, 64 questions, 256 options."""
    question = {"type": "choice", "criteria": {f"{number:x}": None for number in range(256)}}
    with running_server(env={"SERVICE_REQUEST_TIMEOUT_S": "300"}) as server:  # memory counts here, not time
        assert server.ask("warm").status == 200
        before = peak_mebibytes(server)
        reply = server.batch([""] * 256, {f"{number:x}": question for number in range(64)})
        assert reply.status == 200
        assert len(reply.json["results"]) == 256
        assert peak_mebibytes(server) - before < 200


def peak_mebibytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def test_slow_heads_and_idle_connections_do_no_harm(server: Server) -> None:
    idle = [server.connect() for _ in range(300)]
    for connection in idle[:150]:
        connection.sendall(b"POST /v1/systemone HTTP/1.1\r\nHos")
    assert server.ask("served").status == 200
    for connection in idle:
        connection.close()


def test_an_endless_head_is_cut_off(server: Server) -> None:
    refused = 'service_requests_total{endpoint="other",status="400"}'
    before = server.metric(refused)
    connection = server.connect()
    stop = threading.Event()

    def flood() -> None:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nX-Endless: ")
            while not stop.is_set():
                connection.sendall(b"x" * 16_384)
        except OSError:
            pass

    sender = threading.Thread(target=flood)
    sender.start()
    try:
        with contextlib.suppress(ConnectionResetError):  # the rest of the flood may overtake the reply
            assert connection.recv(12) == b"HTTP/1.1 400"
        until(lambda: server.metric(refused) == before + 1)
        sender.join(60)
        assert not sender.is_alive()  # the flood ended because the server closed, not because it was told to
    finally:
        stop.set()
        connection.close()
        sender.join()
    assert server.ask("served").status == 200


def test_a_large_request_in_one_piece_is_not_taken_for_a_head(server: Server) -> None:
    body = json.dumps({"state": "x" * 120_000, "questions": {"q": NOUL}}).encode()
    request = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    health = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    replies = server.raw(request * 5 + health)
    assert replies.count(b"HTTP/1.1 200 OK") == 6
    assert b"HTTP/1.1 400" not in replies


def test_what_was_asked_before_the_nonsense_is_answered_and_the_nonsense_refused(server: Server) -> None:
    body = json.dumps({"state": "SLEEP=0.2", "questions": {"q": NOUL}}).encode()
    good = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    bad = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno chunk size\r\n"
    for nonsense in (bad, b"no request line\r\n\r\n"):
        replies = server.raw(good + nonsense)
        assert re.findall(rb"HTTP/1\.1 (\d{3})", replies) == [b"200", b"400"]
        assert replies.count(b"connection: close") == 1


def test_sigterm_while_the_model_loads_ends_the_process_at_once() -> None:
    server = start("--port", "0", "--model", "fake:slow")
    try:
        until(lambda: "loading" in server.log())
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.process.wait()
        server.log_path.unlink()
