"""Places and time: refused at once when full, given up when late, and every place given back."""

import time
from collections.abc import Callable

import pytest

from tests.spec.checks import (
    BATCH,
    GETS,
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
from tests.support.server import Server

LIMIT_S = 1.0  # the time limit of the narrow server


@pytest.fixture
def idle(narrow: Server) -> Server:
    """The narrow server with its one place free and its model at rest."""
    assert eventually(lambda: in_flight(narrow) == 0)
    assert eventually(lambda: narrow.ask("ready?").status == 200)
    return narrow


def elapsed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


# --- 503 ---


@pytest.mark.parametrize("held", POSTS)
@pytest.mark.parametrize("refused_path", POSTS)
def test_one_more_than_the_limit_is_refused_at_once(idle: Server, held: str, refused_path: str) -> None:
    """Both POSTs share one count; a refusal is not queued."""
    with Wire(idle) as holder:
        holder.send(message(bytes_for(held, "SLEEP=0.4"), path=held))
        assert eventually(lambda: in_flight(idle) == 1)
        began = time.monotonic()
        reply = idle.request("POST", refused_path, body_for(refused_path))
        assert time.monotonic() - began < 0.3
        assert "capacity" in refused(reply, 503)
        assert reply.headers["retry-after"] == "1"
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
    assert eventually(lambda: idle.ask("x").status == 200, 1)


def test_the_other_endpoints_are_not_limited(idle: Server) -> None:
    with Wire(idle) as holder:
        holder.send(head("Content-Length: 5"))
        assert eventually(lambda: in_flight(idle) == 1)
        for path in (*GETS, "/openapi.json"):
            assert idle.get(path).status == 200
        assert idle.get("/nowhere").status == 404


# --- every place is given back ---


def _answered(server: Server) -> None:
    served(server.ask("x"))


def _unreadable(server: Server) -> None:
    refused(server.request("POST", SINGLE, b"no json"), 400)


def _too_large(server: Server) -> None:
    refused(server.request("POST", SINGLE, b" " * (2**20 + 1)), 413)


def _unsupported(server: Server) -> None:
    refused(server.request("POST", SINGLE, b"{}", {"Content-Encoding": "br"}), 415)


def _invalid(server: Server) -> None:
    refused(server.ask("x", {}), 422)


def _failed(server: Server) -> None:
    refused(server.ask("FAIL"), 500)


def _no_distribution(server: Server) -> None:
    refused(server.ask("NAN"), 500)


def _late(server: Server) -> None:
    refused(server.ask("SLEEP=1.5"), 504)


def _slow_sender(server: Server) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(head("Content-Length: 5")), 504)


def _left_while_sending(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(head("Content-Length: 5") + b"{")
        assert eventually(lambda: in_flight(server) == 1)


def _left_while_waiting(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(message(bytes_for(state="SLEEP=1.5")))
        assert eventually(lambda: in_flight(server) == 1)


def _left_with_more_asked(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(message(bytes_for(state="SLEEP=1.5")) + message(bytes_for()))
        assert eventually(lambda: in_flight(server) == 1)


def _broken_chunk(server: Server) -> None:
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
        _late,
        _slow_sender,
        _left_while_sending,
        _left_while_waiting,
        _left_with_more_asked,
        _broken_chunk,
    ],
)
def test_a_place_is_free_at_once_after(idle: Server, outcome: Callable[[Server], None]) -> None:
    """Also while the model is still busy with what was given up."""
    outcome(idle)
    assert eventually(lambda: in_flight(idle) == 0, 0.5)
    assert eventually(lambda: idle.ask("x").status == 200)


# --- 504 ---


@pytest.mark.parametrize("path", POSTS)
def test_a_slow_model_is_given_up(idle: Server, path: str) -> None:
    began = time.monotonic()
    refused(idle.request("POST", path, body_for(path, "SLEEP=1.3")), 504)
    assert LIMIT_S - 0.05 < time.monotonic() - began < LIMIT_S + 0.5


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("sent", [b"", b'{"state"'], ids=["nothing", "a part"])
def test_a_slow_sender_is_given_up(idle: Server, path: str, sent: bytes) -> None:
    """The time limit starts at admission and covers reading the body."""
    with Wire(idle) as wire:
        began = time.monotonic()
        refused(wire.exchange(head("Content-Length: 100", path=path) + sent), 504)
        assert LIMIT_S - 0.05 < time.monotonic() - began < LIMIT_S + 0.5


def test_a_sender_that_trickles_is_given_up_too(idle: Server) -> None:
    with Wire(idle) as wire:
        began = time.monotonic()
        wire.send(head("Content-Length: 1000"))
        while wire.quiet(0.05):
            wire.send(b" ")
            assert time.monotonic() - began < 2
        refused(wire.reply(), 504)
        assert time.monotonic() - began < LIMIT_S + 0.5


def test_the_time_of_the_sender_and_of_the_model_count_together(idle: Server) -> None:
    """Neither 0.4 s of sending nor 0.8 s of running is too long; both are."""
    body = bytes_for(state="SLEEP=0.8")
    with Wire(idle) as wire:
        wire.send(message(body)[:-1])
        time.sleep(0.4)
        refused(wire.exchange(body[-1:]), 504)


@pytest.mark.parametrize("how", ["late", "left"])
def test_work_that_was_not_started_is_never_started(idle: Server, how: str) -> None:
    """Of ten states that take 0.2 s each, those that wait when the request ends are dropped."""
    before = idle.metric("service_batch_questions_sum")
    body = b'{"states":[%s],"questions":{"q":{"type":"noul","instructions":"so?"}}}' % b",".join([b'"SLEEP=0.2"'] * 10)
    with Wire(idle) as wire:
        wire.send(message(body, path=BATCH))
        if how == "late":
            refused(wire.reply(), 504)
        else:
            assert eventually(lambda: idle.metric("service_batch_questions_sum") > before)
    assert eventually(lambda: in_flight(idle) == 0, 0.4)
    assert elapsed(lambda: served(idle.ask("next"))) < 0.6
    time.sleep(0.45)
    assert idle.metric("service_batch_questions_sum") - before <= 7


# --- many clients ---


def test_one_large_batch_does_not_starve_others(one_by_one: Server) -> None:
    """While a batch of two seconds runs, small requests are answered as if it were one of them."""
    assert eventually(lambda: in_flight(one_by_one) == 0)
    body = b'{"states":[%s],"questions":{"q":{"type":"noul","instructions":"so?"}}}' % b",".join(
        [b'"SLEEP=0.01"'] * 200
    )
    with Wire(one_by_one) as large:
        large.send(message(body, path=BATCH))
        assert eventually(lambda: in_flight(one_by_one) == 1)
        for _ in range(5):
            assert elapsed(lambda: served(one_by_one.ask("small"))) < 0.4
        assert in_flight(one_by_one) == 1
    assert eventually(lambda: in_flight(one_by_one) == 0)


def test_requests_of_many_clients_run_together(server: Server) -> None:
    """What waits while the model is busy is one batch, whoever asked it."""
    assert eventually(lambda: in_flight(server) == 0)
    with Wire(server) as busy:
        busy.send(message(bytes_for(state="SLEEP=0.6")))
        assert eventually(lambda: in_flight(server) == 1)
        time.sleep(0.1)  # until the model has begun
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
        served(busy.reply())
        for number, wire in enumerate(wires):
            with wire:
                assert list(served(wire.reply())["answers"]) == [str(number)]
    assert eventually(lambda: server.metric("service_batch_questions_sum") == questions + 9)
    assert server.metric("service_batch_questions_count") == batches + 2
