"""What RFC 9110 and RFC 9112 ask of a server and a lenient parser would let pass. Over a real socket."""

import re
from collections.abc import Iterator

import pytest

from tests.spec.checks import bytes_for, eventually, has_ids, in_flight, refused, served
from tests.spec.wire import Wire, chunked, head, message
from tests.support.server import Server, running_server

GOOD = bytes_for()
NEXT = head(method="GET", path="/ready")


def with_lines(*lines: bytes, version: bytes = b"1.1") -> bytes:
    return b"\r\n".join([b"GET /ready HTTP/" + version, *lines, b"", b""])


def refused_and_closed(server: Server, request: bytes) -> None:
    """A 400, and nothing of what follows is served."""
    with Wire(server) as wire:
        refused(wire.exchange(request + NEXT), 400)
        assert wire.ended()


# --- Host ---


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"Host: a", b"Host: a"],
        [b"Host: a", b"hOST: b"],
        [b"Host:", b"Host:"],
        [b"Host: a b"],
        [b"Host: a/b"],
        [b"Host: user@a"],
        [b"Host: a:b"],
        [b"Host: [::1"],
        [b"Host: \xe4"],
    ],
    ids=repr,
)
def test_a_request_without_one_valid_host_is_a_bad_request(server: Server, lines: list[bytes]) -> None:
    refused_and_closed(server, with_lines(*lines))
    if lines:
        refused_and_closed(server, with_lines(*lines, version=b"1.0"))


@pytest.mark.parametrize("host", [b"", b"a", b"a:", b"a:80", b"a_b.example", b"127.0.0.1", b"[::1]:80", b"%C3%A4"])
def test_a_valid_host_is_none_of_our_business(server: Server, host: bytes) -> None:
    with Wire(server) as wire:
        served(wire.exchange(with_lines(b"Host: " + host)))


def test_http_1_0_needs_no_host(server: Server) -> None:
    with Wire(server) as wire:
        served(wire.exchange(with_lines(version=b"1.0")))
        assert wire.ended()


# --- paths ---


@pytest.mark.parametrize("path", ["/v1%2Fsystemone", "/v1%2fsystemone", "%2Fv1/systemone", "/v1/systemone%3F"])
def test_an_escaped_separator_separates_nothing(server: Server, path: str) -> None:
    with Wire(server) as wire:
        request = message(GOOD, path=path)
        reply = wire.exchange(request)
        assert reply.status in (400, 404)
        refused(reply, reply.status)


@pytest.mark.parametrize("path", ["/v1/%73ystemone", "/%76%31/systemone", "/v1/systemone?a=%2F", "/v1/systemon%65"])
def test_what_may_be_written_either_way_is_the_same_path(server: Server, path: str) -> None:
    with Wire(server) as wire:
        served(wire.exchange(message(GOOD, path=path)))


@pytest.mark.parametrize("target", ["http://a", "http://a:80", "http://a?b=c", "http://a/"])
def test_a_whole_address_without_a_path_is_that_of_the_page(server: Server, target: str) -> None:
    with Wire(server) as wire:
        reply = wire.exchange(head(method="GET", path=target))
    assert (reply.status, reply.body) == (200, server.get("/").body)


# --- Expect, versions, codings ---


def test_a_client_of_http_1_0_is_never_told_to_continue(server: Server) -> None:
    request = message(GOOD, "Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    with Wire(server) as wire:
        wire.send(request[: -len(GOOD)])
        assert eventually(lambda: in_flight(server) == 1)
        wire.send(GOOD)
        served(wire.reply())  # an interim reply would have come before


@pytest.mark.parametrize(
    "start",
    [b"GET /ready HTTP/2.0", b"GET /ready HTTP/0.9", b"GET /ready RTSP/1.0", b"GET  /ready HTTP/1.1", b"GET /ready"],
    ids=repr,
)
def test_a_request_line_that_is_not_one_of_http_1_is_a_bad_request(server: Server, start: bytes) -> None:
    refused_and_closed(server, start + b"\r\nHost: x\r\n\r\n")


@pytest.mark.parametrize(
    "coding", ["gzip, chunked", "chunked, chunked", "identity", "chunked\r\nTransfer-Encoding: chunked"]
)
def test_a_transfer_encoding_other_than_chunked_is_a_bad_request(server: Server, coding: str) -> None:
    refused_and_closed(server, head(f"Transfer-Encoding: {coding}") + chunked(GOOD))


def test_chunks_in_http_1_0_are_a_bad_request(server: Server) -> None:
    """An HTTP/1.0 proxy in between would not know of them."""
    request = head("Transfer-Encoding: chunked") + chunked(GOOD)
    refused_and_closed(server, request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))


@pytest.mark.parametrize(
    "line",
    [b"X-A : b", b"X-A: b\r\n folded", b"X-A: b\nX-B: c", b"X-A: b\rX-B: c", b" X-A: b", b"X\xe9: b", b": b"],
    ids=repr,
)
def test_a_header_line_that_can_be_read_in_two_ways_is_a_bad_request(server: Server, line: bytes) -> None:
    refused_and_closed(server, with_lines(b"Host: x", line))


@pytest.mark.parametrize("method", ["FOO", "get", "POSTS", "PRI", "PLAY", "!#$%&'*+-.^_`|~9"])
def test_a_method_that_nobody_knows_is_not_allowed(server: Server, method: str) -> None:
    """However its body comes, and what follows that is the next request."""
    bodies = [head(method=method, path="/health"), message(NEXT, method=method, path="/health")]
    bodies.append(head("Transfer-Encoding: chunked", method=method, path="/health") + chunked(NEXT))
    with Wire(server) as wire:
        for request in bodies:
            wire.send(request + NEXT)
            reply = wire.reply()
            refused(reply, 405)
            assert reply.headers["allow"] == "GET, HEAD"
            assert served(wire.reply()) == {"ready": True}
        refused(wire.exchange(head(method=method, path="/nowhere")), 404)
        assert wire.quiet()


def test_a_body_for_connect_is_a_bad_request(server: Server) -> None:
    refused_and_closed(server, message(GOOD, method="CONNECT", path="example.org:443"))


def test_empty_lines_before_a_request_are_ignored(server: Server) -> None:
    with Wire(server) as wire:
        for before in (b"\r\n", b"\r\n\r\n\r\n"):
            served(wire.exchange(before + NEXT))


# --- refused with their id, and in words that help ---

MINE = b"X-Request-Id: mine"
ANY = "this is not a valid HTTP/1.1 request"
ONE_HOST = "a request needs one Host header, with one valid host"
ONE_CODING = "the only transfer encoding served is chunked, and that in HTTP/1.1"
BOTH = "Content-Length and Transfer-Encoding cannot be combined"
ONE_LENGTH = "a request has one Content-Length at most"
TOO_LONG = "the Content-Length is too large"
OTHER_HTTP = "this server speaks HTTP/1.1"
HOST = b"Host: x"
CHUNKED = b"Transfer-Encoding: chunked"
REFUSED = {
    "no host": (with_lines(MINE), ONE_HOST),
    "two hosts": (with_lines(HOST, MINE, HOST), ONE_HOST),
    "gzip": (with_lines(HOST, MINE, b"Transfer-Encoding: gzip, chunked"), ONE_CODING),
    "identity": (with_lines(HOST, b"Transfer-Encoding: identity", MINE), ONE_CODING),
    "chunks in HTTP/1.0": (with_lines(HOST, CHUNKED, MINE, version=b"1.0"), ONE_CODING),
    "chunks and a length": (with_lines(HOST, CHUNKED, MINE, b"Content-Length: 4"), BOTH),
    "a length and chunks": (with_lines(HOST, b"CONTENT-LENGTH: 4", b"TRANSFER-ENCODING: chunked", MINE), BOTH),
    "two lengths": (with_lines(HOST, b"Content-Length: 4", MINE, b"content-length: 4"), ONE_LENGTH),
    "20 digits": (with_lines(HOST, b"Content-Length: 18446744073709551615", MINE), TOO_LONG),
    "21 digits": (with_lines(HOST, b"Content-Length: " + b"9" * 21, MINE), TOO_LONG),
    "a space before a colon": (with_lines(HOST, MINE, b"X-A : b"), ANY),
    "a folded line": (with_lines(HOST, b"X-A: b", b" c", MINE), ANY),
    "HTTP/1.2": (with_lines(HOST, MINE, version=b"1.2"), OTHER_HTTP),
    "HTTP/2.0": (with_lines(HOST, MINE, version=b"2.0"), OTHER_HTTP),
    "too large": (with_lines(HOST, MINE, b"X-A: " + b"x" * 2**16), "larger than 65536 bytes"),
}


@pytest.mark.parametrize(("request_bytes", "said"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("written", [MINE, MINE.lower(), b"X-REQUEST-ID:mine", b"x-Request-ID: \t mine \t"], ids=repr)
def test_a_head_that_is_refused_gets_its_id_back(
    server: Server, request_bytes: bytes, said: str, written: bytes
) -> None:
    with Wire(server) as wire:
        reply = wire.exchange(request_bytes.replace(MINE, written))
        assert said in refused(reply, 400)
        assert has_ids(reply) == "mine"
        assert wire.ended()


@pytest.mark.parametrize(
    "lines",
    [
        [b"X-Request-Id: a", b"X-Request-Id: b"],
        [b"X-Request-Id: a", b"x-request-id: a"],
        [b"X-Request-Id: a", b"X-Request-Id : a"],
        [b"X-Request-Id: a", b" b"],
        [b"X-Request-Id: a b"],
        [b"X-Request-Id : a"],
        [b"X-Request-Id: a\nX-A: b"],
        [b"X-Request-Id:"],
        [b"X-Request-Id: " + b"a" * 129],
        [b"X-Request-Id: a/b"],
        [b"X-Request-Id-Too: a"],
        [b"X-A: X-Request-Id: a"],
        [b"", b"X-Request-Id: a"],
    ],
    ids=repr,
)
def test_what_is_no_id_beyond_doubt_is_not_sent_back(server: Server, lines: list[bytes]) -> None:
    with Wire(server) as wire:
        reply = wire.exchange(with_lines(*lines))
        refused(reply, 400)
        assert len(has_ids(reply)) == 32


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "this port speaks plain HTTP, not TLS"),
        (b"\x16\x03\x01\r\n\r\n", "this port speaks plain HTTP, not TLS"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", OTHER_HTTP),
        (b"hello\r\n\r\n", ANY),
        (head("Transfer-Encoding: chunked") + b"zz\r\n", "the chunks of the body are malformed"),
        (head("Transfer-Encoding: chunked") + b"2\r\n{}}\r\n0\r\n\r\n", "the chunks of the body are malformed"),
    ],
    ids=["tls", "tls with a blank line", "http/2", "words", "no size", "too small a size"],
)
def test_other_noise_is_told_what_is_wrong(server: Server, noise: bytes, said: str) -> None:
    with Wire(server) as wire:
        assert refused(wire.exchange(noise), 400) == said
        assert wire.ended()


# --- our own faults ---


@pytest.fixture(scope="module")
def faulty() -> Iterator[Server]:
    with running_server(module="tests.web.odd_server", env={"ODD": "callback"}) as running:
        yield running


@pytest.mark.parametrize(
    "request_bytes",
    [
        head("X-Fault: 1", method="GET", path="/ready"),
        head("Transfer-Encoding: chunked") + chunked(b"FAULT"),
        head("Transfer-Encoding: chunked") + chunked(b"{", b"FAULT"),
    ],
    ids=["in a header", "in a body", "late in a body"],
)
def test_a_fault_of_ours_is_not_called_the_client_s(faulty: Server, request_bytes: bytes) -> None:
    with Wire(faulty) as wire:
        served(wire.exchange(message(GOOD)))
        reply = wire.exchange(request_bytes + NEXT)
        assert refused(reply, 500) == "internal server error"
        assert wire.ended()
    assert eventually(
        lambda: re.search(r"ERROR unexpected error while reading.*AssertionError", faulty.log(), re.DOTALL)
    )
    served(faulty.ask("x"))
