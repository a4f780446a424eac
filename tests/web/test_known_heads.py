"""Heads that come again: read once, the same request each time, and no more of them kept than there is room for."""

import pytest

from decided.errors import Unreadable
from decided.web import parser
from decided.web.message import HttpRequest
from decided.web.parser import KnownHeads, RequestParser

HEAD = b"POST /v1/systemone?a=b HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nContent-Length: 3\r\n\r\n"


def take(reader: RequestParser, data: bytes) -> HttpRequest:
    reader.receive(data)
    request = reader.head()
    assert request is not None
    return request


def seen(request: HttpRequest) -> tuple[object, ...]:
    return request.method, request.path, dict(request.headers), request.old, request.last, request.ended


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Heads that were read, as they were not known."""
    read: list[bytes] = []
    reading = RequestParser._head

    def noted(self: RequestParser, head: bytes) -> parser.RequestHead:
        read.append(head)
        return reading(self, head)

    monkeypatch.setattr(RequestParser, "_head", noted)
    return read


def test_a_head_is_read_once_for_all_connections_and_bodies(unread: list[bytes]) -> None:
    known = KnownHeads()
    first, second = RequestParser(known), RequestParser(known)
    expected = ("POST", "/v1/systemone", {b"host": b"h", b"x-one": b"1", b"content-length": b"3"}, False, False, True)
    for reader, body in ((first, b"abc"), (first, b"def"), (second, b"ghi")):
        request = take(reader, HEAD + body)
        assert seen(request) == expected
        assert request._body == body
        assert (reader.unread, reader.ended) == (b"", True)
    assert unread == [HEAD]


def test_a_body_that_comes_later_is_waited_for(unread: list[bytes]) -> None:
    reader = RequestParser(KnownHeads())
    take(reader, HEAD + b"abc")
    assert not take(reader, HEAD + b"d").ended
    reader.receive(b"ef" + HEAD)
    assert (reader.body(), reader.ended) == (b"def", True)
    assert reader.head() is not None
    assert unread == [HEAD]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET /a%2Fb HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HEAD http://h/a HTTP/1.1\r\nhost: h\r\n\r\n",
    ],
)
def test_a_known_head_says_what_it_said(head: bytes, unread: list[bytes]) -> None:
    known = KnownHeads()
    first, second = (seen(take(RequestParser(known), head)) for _ in range(2))
    assert first == second
    assert unread.count(head) == 1


def test_chunks_have_a_parser_of_their_own_every_time(unread: list[bytes]) -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader = RequestParser(KnownHeads())
    for body in (b"abc", b"de"):
        assert not take(reader, head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)).ended
        assert (reader.body(), reader.ended) == (body, True)
    assert unread == [head, head]


def test_what_is_refused_is_refused_again(unread: list[bytes]) -> None:
    known, head = KnownHeads(), b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n"
    for _ in range(2):
        with pytest.raises(Unreadable):
            take(RequestParser(known), head)
    assert unread == [head, head]


def test_no_more_are_kept_than_there_is_room_for() -> None:
    known = KnownHeads()
    reader = RequestParser(known)
    most = 0
    for number in range(3 * parser._MAX_KNOWN_HEADS):
        take(reader, b"GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: %d\r\n\r\n" % number)
        most = max(most, len(known._heads))
    assert most == parser._MAX_KNOWN_HEADS
    large = b"GET / HTTP/1.1\r\nHost: h\r\nCookie: %b\r\n\r\n" % (b"c" * parser._MAX_KNOWN_HEAD_BYTES)
    take(reader, large)
    assert known.get(large) is None
