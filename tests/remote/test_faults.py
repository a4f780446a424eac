"""An engine that misbehaves: nothing hangs, nothing is guessed, nobody else is harmed, nothing leaks."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.remote.fake_engine import FakeEngine
from tests.spec.checks import eventually
from tests.support.server import Reply, Server, running_server

TIMEOUT_S = 3.0
KEY = "key-of-the-engine"
TOPIC = {"type": "choice", "instructions": "Which?", "criteria": {"one": "RIGHT", "two": None, "three": None}}


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


@pytest.fixture(scope="module")
def server(engine: FakeEngine) -> Iterator[Server]:
    with decided(engine) as running:
        yield running


@contextmanager
def decided(engine: FakeEngine, *flags: str) -> Iterator[Server]:
    environment = {"SERVICE_REMOTE_URL": engine.url, "SERVICE_REMOTE_API_KEY": KEY}
    flags = ("--model", "openai:m", "--request-timeout-s", f"{TIMEOUT_S}", *flags)
    with running_server(*flags, env=environment, module="decided") as server:
        yield server


def leaks(reply: Reply, engine: FakeEngine) -> list[str]:
    everything = reply.body.decode() + json.dumps(reply.headers)
    return [word for word in ("SECRET", str(engine.port), KEY, "127.0.0.1") if word in everything]


@pytest.mark.parametrize(
    "fault",
    ["garbage", "no-http", "error", "bad-request", "no-logprobs", "no-labels", "nan", "string-nan", "huge"],
)
def test_an_unusable_reply_is_a_failure_and_never_a_guess(server: Server, engine: FakeEngine, fault: str) -> None:
    reply = server.ask(f"FAULT={fault}", {"q": TOPIC})
    assert (reply.status, reply.detail) == (500, "inference failed")
    assert leaks(reply, engine) == []
    assert "SECRET" not in server.log()
    assert KEY not in server.log()
    assert server.ask("fine", {"q": TOPIC}).json["answers"]["q"]["choice"] == "one"


def test_in_a_stream_only_the_state_that_fails_fails(server: Server, engine: FakeEngine) -> None:
    states = ["fine", "FAULT=garbage", "also fine", "FAULT=hang", "FAULT=error"]
    body = {"states": states, "questions": {"q": TOPIC, "again": TOPIC}}
    reply = server.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
    lines = sorted((json.loads(line) for line in reply.body.splitlines()), key=lambda line: int(line["index"]))
    assert [line.get("status", 200) for line in lines] == [200, 500, 200, 504, 500]
    assert lines[0]["answers"]["q"]["choice"] == "one"
    assert lines[1] == {"index": 1, "status": 500, "detail": "inference failed"}
    assert leaks(reply, engine) == []
    assert server.get("/health").json["queue_depth"] == 0


@pytest.mark.parametrize("fault", ["short", "short-and-vague"])
def test_a_state_too_long_for_the_model_is_cut_and_said_to_be(server: Server, fault: str) -> None:
    reply = server.ask(f"FAULT={fault} " + "word " * 4000, {"q": TOPIC})
    assert reply.status == 200
    answer = reply.json["answers"]["q"]
    assert (answer["choice"], answer["truncated"]) == ("one", True)
    (warning,) = reply.json["warnings"]
    kept, given = map(int, re.search(r"read (\d+) of about (\d+) tokens of the state", warning).groups())  # type: ignore[union-attr]
    assert 150 < kept <= 500
    assert 3000 < given < 5500


def test_a_question_too_long_for_the_model_fails(server: Server) -> None:
    reply = server.ask("text", {"q": {"type": "noul", "instructions": "FAULT=short " + "word " * 600}})
    assert (reply.status, reply.detail) == (500, "inference failed")


@pytest.mark.parametrize("fault", ["drip", "hang"])
def test_what_does_not_end_is_too_late(server: Server, engine: FakeEngine, fault: str) -> None:
    before = engine.abandoned
    reply = server.ask(f"FAULT={fault}", {"q": TOPIC})
    assert reply.status == 504
    assert eventually(lambda: engine.abandoned > before)  # the call was cancelled, not left behind
    assert server.get("/health").json["queue_depth"] == 0


@pytest.mark.parametrize("fault", ["close", "half", "always-503", "always-429"])
def test_an_engine_out_of_reach_is_503(engine: FakeEngine, fault: str) -> None:
    with decided(engine) as server:
        reply = server.ask(f"FAULT={fault}", {"q": TOPIC})
        assert reply.status == 503
        assert reply.headers.get("retry-after") == ("1" if fault.startswith("always") else None)
        assert leaks(reply, engine) == []


@pytest.mark.parametrize("fault", ["once-closed", "once-429", "once-503"])
def test_what_may_pass_is_tried_again(server: Server, engine: FakeEngine, fault: str) -> None:
    began = time.monotonic()
    reply = server.ask(f"FAULT={fault} {began}", {"q": TOPIC})
    assert reply.status == 200
    assert reply.json["answers"]["q"]["choice"] == "one"
    if fault == "once-429":
        assert time.monotonic() - began >= 1.0  # Retry-After


@pytest.mark.parametrize("fault", ["error", "bad-request", "garbage"])
def test_what_would_fail_again_is_not_tried_again(server: Server, engine: FakeEngine, fault: str) -> None:
    mark = f"FAULT={fault} {time.monotonic()}"
    server.ask(mark, {"q": TOPIC})
    assert len([call for call in engine.calls if mark in call.prompt]) == 1


def test_a_redirect_is_not_followed_and_the_key_stays(server: Server, engine: FakeEngine) -> None:
    with FakeEngine() as stranger:
        reply = server.ask(f"FAULT=redirect TO={stranger.url}/v1/chat/completions", {"q": TOPIC})
        assert reply.status == 500
        assert stranger.calls == []
    assert {call.headers.get("authorization") for call in engine.calls} == {f"Bearer {KEY}"}


def test_the_key_of_the_service_stays_here(engine: FakeEngine) -> None:
    environment = {"SERVICE_REMOTE_URL": engine.url, "SERVICE_API_KEY": "key-of-the-service"}
    seen = len(engine.calls)
    with running_server("--model", "openai:m", env=environment, module="decided") as server:
        assert server.ask("fine", headers={"Authorization": "Bearer key-of-the-service"}).status == 200
    assert all("authorization" not in call.headers for call in engine.calls[seen:])


def test_hung_calls_do_not_harm_the_others(server: Server) -> None:
    hung = [threading.Thread(target=server.ask, args=("FAULT=hang", {"q": TOPIC})) for _ in range(8)]
    for thread in hung:
        thread.start()
    beside = []
    while any(thread.is_alive() for thread in hung):
        beside.append(server.ask("fine", {"q": TOPIC}).status)
    assert set(beside) == {200}
    assert len(beside) > 3
    assert server.ask("fine", {"q": TOPIC}).status == 200


def test_one_failing_question_ends_the_others_of_its_request(server: Server, engine: FakeEngine) -> None:
    bad = {"type": "noul", "instructions": "FAULT=error"}
    slow = {"type": "noul", "instructions": "FAULT=hang"}
    assert server.ask("text", {"slow": slow, "bad": bad}).status == 500  # and not 504: the other was not waited for


def test_connections_are_reused(engine: FakeEngine) -> None:
    with decided(engine, "--remote-concurrency", "4") as server:
        before = engine.connections
        for _ in range(10):
            assert server.ask("fine", {str(number): TOPIC for number in range(8)}).status == 200
        assert engine.connections - before <= 5


def test_ready_is_asked_of_the_engine_but_not_at_every_probe(engine: FakeEngine) -> None:
    with decided(engine) as server:
        assert server.get("/ready").json == {"ready": True, "upstream": True}
        before = len(engine.calls)
        for _ in range(50):
            server.get("/ready")
        assert len(engine.calls) - before <= 3


def test_down_up_down(engine: FakeEngine) -> None:
    """The server starts without its engine, becomes ready when it comes, and says so when it goes."""
    with FakeEngine() as gone:
        port = gone.port
    with decided(gone) as server:
        reply = server.get("/ready")
        assert (reply.status, leaks(reply, gone)) == (503, [])
        assert server.ask("fine", {"q": TOPIC}).status == 503
        for _ in range(2):
            with FakeEngine(port=port) as back:
                wait_for(server, 200)
                assert server.ask("fine", {"q": TOPIC}).json["answers"]["q"]["choice"] == "one"
                assert back.port == port
            wait_for(server, 503)
            assert server.ask("fine", {"q": TOPIC}).status == 503


def test_an_engine_that_is_away_is_not_asked_again_and_again() -> None:
    with FakeEngine() as away, decided(away) as server:
        while "requests get 503 until it answers" not in server.log():
            assert server.ask("FAULT=close", {"q": TOPIC}).status == 503
        before = len(away.calls)
        for _ in range(20):
            assert server.ask("FAULT=close", {"q": TOPIC}).status == 503
        assert len(away.calls) - before < 20  # a trial now and then


def wait_for(server: Server, status: int) -> None:
    assert eventually(lambda: server.get("/ready").status == status), server.log()
