"""Places and time: refused at once when full, given up when late, and every place given back."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.spec.checks import (
    BATCH,
    GETS,
    NOUL,
    POSTS,
    SINGLE,
    body_for,
    bytes_for,
    eventually,
    in_flight,
    refused,
    served,
)
from tests.spec.wire import Wire, head, message
from tests.support.gate import Gate
from tests.support.server import Server, running_server

LIMIT_S = 1.0  # the time limit of the narrow server


def batch_of(states: list[str], questions: Any = None) -> bytes:
    return json.dumps({"states": states, "questions": questions or {"q": NOUL}}).encode()


@pytest.fixture
def idle(single: Server) -> Server:
    """A server with its one place free and its model at rest."""
    return at_rest(single)


@pytest.fixture
def hasty(narrow: Server) -> Server:
    """The same with little time."""
    return at_rest(narrow)


def at_rest(server: Server) -> Server:
    assert eventually(lambda: in_flight(server) == 0)
    assert eventually(lambda: server.ask("ready?").status == 200)
    return server


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate() as closed:
        yield closed


# --- 503 ---


@pytest.mark.parametrize("held", POSTS)
@pytest.mark.parametrize("refused_path", POSTS)
def test_one_more_than_the_limit_is_refused_at_once(idle: Server, gate: Gate, held: str, refused_path: str) -> None:
    """Both POSTs share one count; a refusal is not queued: it comes while the place is still taken."""
    with Wire(idle) as holder:
        holder.send(message(bytes_for(held, gate.state), path=held))
        assert eventually(gate.reached)
        reply = idle.request("POST", refused_path, body_for(refused_path))
        assert "capacity" in refused(reply, 503)
        assert reply.headers["retry-after"] == "1"
        gate.open()
        served(holder.reply())


@pytest.mark.parametrize("path", POSTS)
def test_a_place_is_taken_before_the_body_is_read(idle: Server, path: str) -> None:
    body = bytes_for(path)
    with Wire(idle) as holder, Wire(idle) as other:
        holder.send(head(f"Content-Length: {len(body)}", path=path))
        assert eventually(lambda: in_flight(idle) == 1)
        reply = other.exchange(head("Content-Length: 100", "Expect: 100-continue", path=path))
        refused(reply, 503)
        assert reply.headers["retry-after"] == "1"
        holder.send(body)
        served(holder.reply())


def test_a_refused_request_takes_no_place(idle: Server) -> None:
    with Wire(idle) as holder:
        holder.send(head("Content-Length: 5"))
        assert eventually(lambda: in_flight(idle) == 1)
        for _ in range(5):
            refused(idle.ask("x"), 503)
        assert in_flight(idle) == 1
    assert eventually(lambda: idle.ask("x").status == 200)


def test_the_other_endpoints_are_not_limited(idle: Server) -> None:
    with Wire(idle) as holder:
        holder.send(head("Content-Length: 5"))
        assert eventually(lambda: in_flight(idle) == 1)
        for path in (*GETS, "/openapi.json"):
            assert idle.get(path).status == 200
        assert idle.get("/nowhere").status == 404


# --- every place is given back ---


def _answered(server: Server, gate: Gate) -> None:
    served(server.ask("x"))


def _unreadable(server: Server, gate: Gate) -> None:
    refused(server.request("POST", SINGLE, b"no json"), 400)


def _too_large(server: Server, gate: Gate) -> None:
    refused(server.request("POST", SINGLE, b" " * (2**20 + 1)), 413)


def _unsupported(server: Server, gate: Gate) -> None:
    refused(server.request("POST", SINGLE, b"{}", {"Content-Encoding": "br"}), 415)


def _invalid(server: Server, gate: Gate) -> None:
    refused(server.ask("x", {}), 422)


def _failed(server: Server, gate: Gate) -> None:
    refused(server.ask("FAIL"), 500)


def _no_distribution(server: Server, gate: Gate) -> None:
    refused(server.ask("NAN"), 500)


def _left_while_sending(server: Server, gate: Gate) -> None:
    with Wire(server) as wire:
        wire.send(head("Content-Length: 5") + b"{")
        assert eventually(lambda: in_flight(server) == 1)


def _left_while_waiting(server: Server, gate: Gate) -> None:
    with Wire(server) as wire:
        wire.send(message(bytes_for(state=gate.state)))
        assert eventually(gate.reached)


def _left_with_more_asked(server: Server, gate: Gate) -> None:
    with Wire(server) as wire:
        wire.send(message(bytes_for(state=gate.state)) + message(bytes_for()))
        assert eventually(gate.reached)


def _broken_chunk(server: Server, gate: Gate) -> None:
    with Wire(server) as wire:
        wire.send(head("Transfer-Encoding: chunked"))
        assert eventually(lambda: in_flight(server) == 1)
        refused(wire.exchange(b"zz\r\n"), 400)


@pytest.mark.parametrize(
    "outcome",
    [
        _answered,
        _unreadable,
        _too_large,
        _unsupported,
        _invalid,
        _failed,
        _no_distribution,
        _left_while_sending,
        _left_while_waiting,
        _left_with_more_asked,
        _broken_chunk,
    ],
)
def test_a_place_is_free_at_once_after(idle: Server, gate: Gate, outcome: Callable[[Server, Gate], None]) -> None:
    """Also while the model is still busy with what was given up: the gate is closed as yet."""
    outcome(idle, gate)
    assert eventually(lambda: in_flight(idle) == 0)
    gate.open()
    assert eventually(lambda: idle.ask("x").status == 200)


# --- 504 ---


@pytest.mark.parametrize("path", POSTS)
def test_a_slow_model_is_given_up(hasty: Server, gate: Gate, path: str) -> None:
    """And its place is free while the model is still busy with it."""
    began = time.monotonic()
    assert refused(hasty.request("POST", path, body_for(path, gate.state)), 504) == "no answer within 1 s"
    assert time.monotonic() - began > LIMIT_S - 0.05
    assert eventually(lambda: in_flight(hasty) == 0)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("sent", [b"", b'{"state"'], ids=["nothing", "a part"])
def test_a_slow_sender_is_given_up(hasty: Server, path: str, sent: bytes) -> None:
    """The time limit starts at admission and covers reading the body."""
    with Wire(hasty) as wire:
        began = time.monotonic()
        said = refused(wire.exchange(head("Content-Length: 100", path=path) + sent), 504)
        assert said == "the body did not arrive within 1 s"
        assert time.monotonic() - began > LIMIT_S - 0.05
        assert eventually(lambda: in_flight(hasty) == 0)


def test_a_sender_that_trickles_is_given_up_too(hasty: Server) -> None:
    """Long before its body would be whole."""
    with Wire(hasty) as wire:
        wire.send(head("Content-Length: 5000"))
        while wire.quiet(0.05):
            wire.send(b" ")
        refused(wire.reply(), 504)


def test_the_time_of_the_sender_and_of_the_model_count_together(hasty: Server) -> None:
    """Neither 0.4 s of sending nor 0.8 s of running is too long; both are."""
    body = bytes_for(state="SLEEP=0.8")
    with Wire(hasty) as wire:
        wire.send(message(body)[:-1])
        time.sleep(0.4)
        refused(wire.exchange(body[-1:]), 504)


@pytest.mark.parametrize("how", ["late", "left"])
def test_work_that_was_not_started_is_never_started(hasty: Server, gate: Gate, how: str) -> None:
    """Of ten states the model has begun the first when the request ends: the others are dropped."""
    before = hasty.metric("service_batch_questions_sum")
    with Wire(hasty) as wire:
        wire.send(message(batch_of([gate.state, *["never"] * 9]), path=BATCH))
        assert eventually(gate.reached)
        if how == "late":
            refused(wire.reply(), 504)
    assert eventually(lambda: in_flight(hasty) == 0)
    assert served(hasty.get("/health"))["queue_depth"] == 0
    gate.open()
    assert eventually(lambda: hasty.ask("next").status == 200)
    ran = hasty.metric("service_batch_questions_sum")
    for _ in range(5):  # the model deals fairly: what is left would run between these
        served(hasty.ask("next"))
    assert hasty.metric("service_batch_questions_sum") == ran + 5
    assert ran - before < 10


# --- many clients ---


@pytest.fixture(scope="module", params=["fake", "fake:whole"], ids=["a question a piece", "a state in pieces"])
def cutting(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Servers whose models cut their work as the real ones do, in pieces of one question."""
    with running_server("--model", str(request.param), env={"FAKE_TOKEN_BUDGET": "10"}) as running:
        yield running


def test_one_large_batch_does_not_starve_others(cutting: Server, gate: Gate) -> None:
    """Small requests that come while a large batch runs are all answered before its last states are begun."""
    with Gate() as last, Wire(cutting) as large, ExitStack() as stack:
        states = [gate.state] * 2 + ["SLEEP=0.002"] * 100 + [last.state] * 2  # two, where two threads run the model
        large.send(message(batch_of(states, {"q": NOUL, "r": NOUL}), path=BATCH))
        assert eventually(gate.reached)
        small = [stack.enter_context(Wire(cutting)) for _ in range(5)]
        for wire in small:
            wire.send(message(bytes_for(state="small")))
        answered = f'service_requests_total{{endpoint="{SINGLE}",status="200"}}'
        assert eventually(lambda: cutting.metric(answered) + in_flight(cutting) == 6)
        gate.open()
        for wire in small:
            served(wire.reply())
        assert in_flight(cutting) == 1
        last.open()
        assert len(served(large.reply())["results"]) == len(states)


def test_requests_of_many_clients_run_together(server: Server, gate: Gate) -> None:
    """What waits while the model is busy is one batch, whoever asked it; or two, if the last was not read yet."""
    assert eventually(lambda: in_flight(server) == 0)
    with Wire(server) as busy:
        busy.send(message(bytes_for(state=gate.state)))
        assert eventually(gate.reached)
        batches, questions = (server.metric(f"service_batch_questions_{part}") for part in ("count", "sum"))
        wires = [Wire(server) for _ in range(8)]
        for number, wire in enumerate(wires):
            wire.send(
                message(
                    bytes_for(
                        state=f"client {number}", questions={str(number): {"type": "noul", "instructions": "so?"}}
                    )
                )
            )
        assert eventually(lambda: in_flight(server) == 9)
        gate.open()
        served(busy.reply())
        for number, wire in enumerate(wires):
            with wire:
                assert list(served(wire.reply())["answers"]) == [str(number)]
    assert eventually(lambda: server.metric("service_batch_questions_sum") == questions + 9)
    assert server.metric("service_batch_questions_count") <= batches + 3
