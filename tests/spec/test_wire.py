"""What a client library would hide: how a request lies on the wire."""

import http.client
import socket

import pytest

from tests.spec.checks import (
    AUTHORIZED,
    GETS,
    POSTS,
    SINGLE,
    bytes_for,
    eventually,
    has_ids,
    in_flight,
    refused,
    served,
)
from tests.spec.conftest import SMALL_BODY
from tests.spec.wire import Wire, chunked, head, message
from tests.support.server import Server

GOOD = bytes_for()


@pytest.fixture(autouse=True)
def leaves_nothing_behind(server: Server) -> None:
    """Every test begins with all places free: no earlier one, however rude, has kept any."""
    assert eventually(lambda: in_flight(server) == 0)


# --- chunked bodies ---


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_chunked_body(server: Server, size: int) -> None:
    parts = [GOOD[start : start + size] for start in range(0, len(GOOD), size)]
    with Wire(server) as wire:
        chunks = wire.exchange(head("Transfer-Encoding: chunked") + chunked(*parts))
        assert served(chunks) == served(wire.exchange(message(GOOD)))


def test_a_chunked_body_in_many_pieces_with_extensions_and_a_trailer(server: Server) -> None:
    half = len(GOOD) // 2
    pieces = [
        head("transfer-encoding: CHUNKED"),
        b"%x;name=value\r\n%s" % (half, GOOD[:half]),
        b"\r\n%X\r\n" % (len(GOOD) - half),
        GOOD[half:] + b"\r\n",
        b"0\r\nX-Checksum: 1\r\n\r\n",
    ]
    with Wire(server) as wire:
        for piece in pieces:
            wire.send(piece)
        served(wire.reply())
        served(wire.exchange(message(GOOD)))


def test_a_trailer_is_no_header(strict: Server) -> None:
    """What comes after the body neither names the request nor opens the door, however fast it comes."""
    trailers = f"X-Request-Id: late\r\nAuthorization: {AUTHORIZED['Authorization']}\r\n".encode()
    body = chunked(GOOD)[:-2] + trailers + b"\r\n"
    with Wire(strict) as wire:
        reply = wire.exchange(head("Transfer-Encoding: chunked") + body)
        refused(reply, 401)
        assert has_ids(reply) != "late"


@pytest.mark.parametrize("broken", [b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n", b"2\r\n{}}\r\n0\r\n\r\n", b"\r\n\r\n"])
def test_a_broken_chunk_is_a_bad_request(server: Server, broken: bytes) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(head("Transfer-Encoding: chunked") + broken), 400)


# --- lying lengths ---


def test_a_length_that_is_too_short_leaves_an_unreadable_body(server: Server) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(message(GOOD, length=len(GOOD) - 5)), 400)


def test_a_length_that_is_too_long_is_waited_for(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(message(GOOD, length=len(GOOD) + 5))
        assert wire.quiet()
        wire.send(b" " * 5)
        served(wire.reply())


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("rude", [False, True], ids=["closed", "reset"])
def test_half_a_body_is_no_request(server: Server, path: str, rude: bool) -> None:
    """The client leaves in the middle of its body: its place is free again, and the server goes on."""
    with Wire(server) as wire:
        wire.send(message(bytes_for(path), path=path)[:-20])
        assert eventually(lambda: in_flight(server) == 1)
        if rude:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert eventually(lambda: in_flight(server) == 0)
    served(server.ask("x"))


@pytest.mark.parametrize("length", ["-1", "1x", "0x10", "", "1 1", "+5"])
def test_a_length_that_is_no_number_is_a_bad_request(server: Server, length: str) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(head(f"Content-Length: {length}") + GOOD), 400)


def test_two_lengths_are_a_bad_request(server: Server) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(message(GOOD, "Content-Length: 2")), 400)


@pytest.mark.parametrize("order", [1, -1], ids=["length first", "length last"])
def test_a_length_beside_chunks_is_a_bad_request(server: Server, order: int) -> None:
    """Two servers in a row could read two different bodies."""
    lines = ["Content-Length: 4", "Transfer-Encoding: chunked"][::order]
    with Wire(server) as wire:
        refused(wire.exchange(head(*lines) + chunked(GOOD)), 400)
        assert wire.ended()


def test_no_length_and_no_chunks_is_an_empty_body(server: Server) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(head()), 400)


# --- expect: 100-continue ---


def test_a_client_that_expects_is_told_to_continue(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(head(f"Content-Length: {len(GOOD)}", "Expect: 100-continue"))
        assert wire.reply().status == 100
        wire.send(GOOD)
        served(wire.reply())


@pytest.mark.parametrize(
    ("status", "path", "lines"),
    [
        (404, "/nowhere", ["Content-Length: 5"]),
        (405, "/health", ["Content-Length: 5"]),
        (401, SINGLE, ["Content-Length: 5"]),
        (413, SINGLE, [f"Content-Length: {SMALL_BODY + 1}", f"Authorization: {AUTHORIZED['Authorization']}"]),
    ],
)
def test_a_client_that_expects_is_refused_before_it_sends(
    strict: Server, status: int, path: str, lines: list[str]
) -> None:
    with Wire(strict) as wire:
        refused(wire.exchange(head(*lines, "Expect: 100-continue", path=path)), status)


# --- HEAD, and what is no HTTP ---


@pytest.mark.parametrize("path", [*GETS, *POSTS, "/nowhere"])
def test_a_reply_to_head_has_no_body(server: Server, path: str) -> None:
    with Wire(server) as wire:
        wire.send(head(method="HEAD", path=path) + head(method="GET", path="/ready"))
        has_ids(wire.reply(bodiless=True))
        assert served(wire.reply()) == {"ready": True}


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"POST /v1/systemone HTTP/9.9\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX-A: \x00\r\n\r\n",
    ],
    ids=["tls", "http/2", "words", "version", "header", "nul"],
)
def test_what_is_no_http_gets_the_error_body_too(server: Server, noise: bytes) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(noise), 400)
        assert wire.ended()


def test_much_noise_is_one_bad_request(server: Server) -> None:
    name = 'service_requests_total{endpoint="other",status="400"}'
    before = server.metric(name)
    with Wire(server) as wire:
        refused(wire.exchange(b"x" * 100_000), 400)
    assert server.metric(name) == before + 1


def test_connect_is_refused_in_words(server: Server) -> None:
    """This is no proxy: any refusal will do, but it has its body, its id and its line in the log."""
    with Wire(server) as wire:
        reply = wire.exchange(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")
    assert reply.status in (400, 404, 405)
    refused(reply, reply.status)
    assert eventually(lambda: reply.headers["x-request-id"] in server.log())
    assert "Fatal error" not in server.log()


def test_an_http_1_0_client_is_served_and_let_go(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(message(GOOD).replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n", 1))
        served(wire.reply())
        assert wire.ended()


def test_a_refused_body_that_is_still_being_sent_does_not_hide_the_refusal(strict: Server) -> None:
    """A client that sends all before it reads must see the refusal, not a reset connection."""
    for path, headers, status in ((SINGLE, {}, 401), ("/nowhere", {}, 404), (SINGLE, AUTHORIZED, 413)):
        connection = http.client.HTTPConnection(strict.host, strict.port, timeout=10)
        connection.request("POST", path, bytes(2**22), headers)
        assert connection.getresponse().status == status
        connection.close()
