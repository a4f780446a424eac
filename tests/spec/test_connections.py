"""Connections: kept, pipelined, ended, and left by rude clients."""

import json
import time
from itertools import pairwise

import pytest

from tests.spec.checks import AUTHORIZED, BATCH, bytes_for, eventually, has_ids, in_flight, refused, served
from tests.spec.wire import Wire, chunked, head, message
from tests.support.server import Server

GOOD = bytes_for()


def test_pipelined_requests_are_answered_in_their_order(server: Server) -> None:
    requests = [
        message(bytes_for(state="SLEEP=0.1"), "X-Request-Id: one"),
        head("X-Request-Id: two", method="GET", path="/health"),
        message(b"no json", "X-Request-Id: three"),
        head("X-Request-Id: four", "Transfer-Encoding: chunked") + chunked(GOOD),
        message(bytes_for(BATCH), "X-Request-Id: five", path=BATCH),
        head("X-Request-Id: six", method="GET", path="/nowhere"),
    ]
    with Wire(server) as wire:
        wire.send(b"".join(requests))
        replies = [wire.reply() for _ in requests]
    assert [reply.status for reply in replies] == [200, 200, 400, 200, 200, 404]
    assert [has_ids(reply) for reply in replies] == ["one", "two", "three", "four", "five", "six"]


def test_one_connection_serves_many_requests_after_any_outcome(server: Server) -> None:
    with Wire(server) as wire:
        for _ in range(3):
            served(wire.exchange(message(GOOD)))
            refused(wire.exchange(message(b"{}")), 422)
            refused(wire.exchange(message(b"")), 400)
            refused(wire.exchange(message(GOOD, "Content-Encoding: br")), 415)
            refused(wire.exchange(message(GOOD, path="/nowhere")), 404)
            refused(wire.exchange(message(bytes_for(state="FAIL"))), 500)


def test_a_request_may_come_byte_by_byte(server: Server) -> None:
    with Wire(server) as wire:
        for byte in message(GOOD, "Connection: close"):
            wire.send(bytes([byte]))
        served(wire.reply())
        assert wire.ended()


def test_a_connection_ends_when_the_client_says_so(server: Server) -> None:
    with Wire(server) as wire:
        reply = wire.exchange(message(GOOD, "Connection: close"))
        served(reply)
        assert reply.headers["connection"] == "close"
        assert wire.ended()


def test_a_hundred_pipelined_requests(server: Server) -> None:
    with Wire(server) as wire:
        for _ in range(2):
            wire.send(
                b"".join(message(bytes_for(state=str(number)), f"X-Request-Id: n{number}") for number in range(50))
            )
        assert [has_ids(wire.reply()) for _ in range(100)] == [f"n{number}" for number in range(50)] * 2


def test_the_body_of_a_pipelined_request_may_come_later(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(message(bytes_for(state="SLEEP=0.1"), "X-Request-Id: one") + message(GOOD, "X-Request-Id: two")[:-9])
        assert has_ids(wire.reply()) == "one"
        wire.send(GOOD[-9:] + message(GOOD, "X-Request-Id: three"))
        assert [has_ids(wire.reply()) for _ in range(2)] == ["two", "three"]


def test_what_was_asked_before_the_noise_is_answered(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(message(bytes_for(state="SLEEP=0.1")) + b"this is no HTTP\r\n\r\n")
        served(wire.reply())
        refused(wire.reply(), 400)
        assert wire.ended()


def test_a_large_reply_is_whole(server: Server) -> None:
    """Some mebibytes, however they are sent, with a request behind them that is answered as well."""
    questions = {f"q{number}": {"type": "score", "criteria": ["level"] * 256} for number in range(8)}
    body = json.dumps({"states": [f"state {number}" for number in range(100)], "questions": questions}).encode()
    with Wire(server) as wire:
        wire.send(message(body, path=BATCH) + head(method="GET", path="/ready"))
        results = served(wire.reply())["results"]
        assert served(wire.reply()) == {"ready": True}
    assert len(results) == 100
    assert results[99] == served(server.ask("state 99", questions))


def test_a_client_that_leaves_while_a_large_reply_is_sent_harms_nobody(server: Server) -> None:
    questions = {f"q{number}": {"type": "score", "criteria": ["level"] * 256} for number in range(8)}
    body = json.dumps({"states": ["x"] * 100, "questions": questions}).encode()
    with Wire(server) as wire:
        wire.send(message(body, path=BATCH))
        wire.socket.recv(1)
    assert eventually(lambda: in_flight(server) == 0)
    served(server.ask("x"))


@pytest.mark.parametrize("pieces", [1, 2, 3], ids=["at once", "in two pieces", "in three pieces"])
def test_an_offer_of_another_protocol_is_ignored(server: Server, pieces: int) -> None:
    """Some clients offer HTTP/2 with their first request; the request itself is an ordinary one."""
    request = message(GOOD, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAA")
    middle = request.index(b"Upgrade: h2c") + 3
    cuts = {1: [], 2: [middle], 3: [middle, middle + 2]}[pieces]
    with Wire(server) as wire:
        for start, end in pairwise([0, *cuts, len(request)]):
            wire.send(request[start:end])
            time.sleep(0.05)
        served(wire.reply())
        served(wire.exchange(message(GOOD)))


@pytest.mark.parametrize("target", ["http://localhost/v1/systemone", "http://other.example:1/v1/systemone?a=b"])
def test_a_target_may_be_a_whole_address(server: Server, target: str) -> None:
    with Wire(server) as wire:
        served(wire.exchange(message(GOOD, path=target)))


def test_headers_without_end_get_the_error_body(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(b"POST /v1/systemone HTTP/1.1\r\n")
        line = b"X-Filler: " + b"x" * 8000 + b"\r\n"
        for _ in range(9):
            wire.send(line)
        refused(wire.reply(), 400)


def test_the_case_of_header_names_does_not_matter(strict: Server) -> None:
    lines = [f"aUTHORIZATION: {AUTHORIZED['Authorization']}", "X-REQUEST-ID: upper", "CONTENT-ENCODING: br"]
    with Wire(strict) as wire:
        reply = wire.exchange(message(GOOD, *lines))
        refused(reply, 415)
        assert has_ids(reply) == "upper"
