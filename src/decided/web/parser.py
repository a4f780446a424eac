"""Bytes into requests, strictly: what two readers could take for two different requests is refused.

A head is collected whole before anything looks at it, and llhttp, the parser inside Node, reads it alone. What follows
is handed on as it came, and no further than to the end of its message. Every message has a parser of its own, so that
nothing of one reaches the next. A head that comes again, byte by byte, is the same head and is not read again.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import httptools

from decided.errors import Unreadable
from decided.web.message import HttpRequest

MAX_HEAD_BYTES = 64 * 1024

_NOT_HTTP = "this is not a valid HTTP/1.1 request"
_CHUNKS = "the chunks of the body are malformed"
_LENGTH = "the Content-Length is too large"
_TOO_LARGE = f"the request line and headers are larger than {MAX_HEAD_BYTES} bytes"
_NO_BODY = f"there are more than {MAX_HEAD_BYTES} bytes between two pieces of the body"
_ONE_HOST = "a request needs one Host header, with one valid host"
_ONE_CODING = "the only transfer encoding served is chunked, and that in HTTP/1.1"

_BLANK = b"\r\n\r\n"
_NAME = rb"([!#$%&'*+.^_`|~0-9A-Za-z-]++)"
_LINE = _NAME + rb" ([!-~]++) HTTP/1\.([01])\r\n"
_REQUEST_LINE = re.compile(_LINE)
_BEGINNING = re.compile(_LINE + rb"|\r?\Z|" + _NAME + rb"(?: [!-~]*+(?: [HTP/1.0]*+\r?)?)?\Z")
_EMPTY_LINES = re.compile(rb"(?:\r\n)*+")
_UPGRADE = re.compile(rb"(?<=\n)upgrade:[^\n]*\n", re.IGNORECASE)
_HOST = re.compile(rb"(?:\[[\w:.~%!$&'()*+,;=-]+\]|[\w.~%!$&'()*+,;=-]*)(?::[0-9]*)?", re.ASCII)
_MAX_LENGTH_DIGITS = 19
_MAX_PIECE_BYTES = 16 * 1024
_MAX_KNOWN_HEADS = 512
_MAX_KNOWN_HEAD_BYTES = 2048
_OTHER_VERSION = re.compile(rb"[!-~]+ [!-~]+ HTTP/(?!1\.[01]\r)[0-9.]+\r\n")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n")
_LONG = re.compile(rb"\r\ncontent-length:[ \t]*[0-9]{%d}" % (_MAX_LENGTH_DIGITS + 1))
_REQUEST_ID = re.compile(rb"(?i)\r\nx-request-id(?::[ \t]*([!-~]*)[ \t]*(?=\r\n[^ \t])|[ \t:])")
_UNRESERVED = re.compile(r"%(?:2[DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)", re.IGNORECASE)


class RequestHead(NamedTuple):
    """What a head says of its request."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    old: bool
    last: bool
    length: int | None
    """Of the body; none if it comes in chunks."""


class KnownHeads:
    """Heads that were read before, of all connections: most clients send the same one with every request."""

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}
        self.get = self._heads.get

    def add(self, head: bytes, found: RequestHead) -> None:
        """Keep it, if it is small and can be used again. When there is no room, all of them make room."""
        if found.length is None or len(head) > _MAX_KNOWN_HEAD_BYTES:
            return
        if len(self._heads) >= _MAX_KNOWN_HEADS:
            self._heads.clear()
        self._heads[head] = found


class RequestParser:
    """Reads one message after the other. When it has raised, it is of no further use."""

    def __init__(self, known: KnownHeads) -> None:
        self._known = known
        self.ended = True  # whether the message at hand has come to its end
        self.unread = b""
        self._llhttp: Any = None  # of the message at hand, while it is needed
        self._left = 0  # of a body whose length is known
        self._since_body = 0
        self._parts: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._host = b""  # the last one found valid: nearly always the next one too
        self._begun = 0
        self._keep_alive: bool | None = None

    def receive(self, data: bytes) -> None:
        self.unread = self.unread + data if self.unread else data

    def head(self) -> HttpRequest | None:
        """The next request, once its whole head is there; with its body, if that has come with it."""
        unread = self.unread
        if not unread:
            return None
        if unread.startswith(b"\r\n"):  # empty lines may stand before a request line
            unread = self.unread = _EMPTY_LINES.sub(b"", unread, 1)
        end = unread.find(_BLANK)
        if end > MAX_HEAD_BYTES - len(_BLANK) or (end < 0 and len(unread) > MAX_HEAD_BYTES):
            raise Unreadable(_TOO_LARGE)
        if end < 0:
            if _BEGINNING.match(unread) is None or unread.count(b"\n") != unread.count(b"\r\n"):
                raise Unreadable(_fault(unread))
            return None
        end += len(_BLANK)
        self.unread, head = unread[end:], unread[:end]
        found = self._known.get(head)
        if found is None:
            try:
                found = self._head(head)
            except Exception:
                self.unread = unread
                raise
            self._known.add(head, found)
        request = HttpRequest(found.method, found.path, found.headers, found.old, found.last)
        if found.length is not None:
            self._left, self.ended = found.length, found.length == 0
            if self._left <= len(self.unread):
                request.complete(self.body())
        return request

    def body(self) -> bytes:
        """What has come of the body of that request since the last call. At the end of it, `ended` is true."""
        if self._llhttp is not None:
            return self._chunks()
        part, self.unread = self.unread[: self._left], self.unread[self._left :]
        self._left -= len(part)
        self.ended = self._left == 0
        return part

    def refused_id(self) -> bytes:
        """The request id in the head that was refused, if one line of it says so, and none says anything else."""
        head, blank, _ = self.unread.partition(_BLANK)
        found = _REQUEST_ID.findall(head + blank)
        return found[0] if len(found) == 1 else b""

    def _head(self, head: bytes) -> RequestHead:
        line = _REQUEST_LINE.match(head)
        if line is None:
            raise Unreadable(_fault(head))
        self._headers, self._begun, self._keep_alive, self.ended = {}, 0, None, False
        self._llhttp = httptools.HttpRequestParser(self)
        method, target, minor = line.groups()
        # llhttp knows a list of methods, and of those of HTTP it reads CONNECT alone in another way. It is shown POST
        # for all others: the routes decide what a method is, and where a body ends does not depend on it.
        try:
            upgrade = self._feed(head if method == b"CONNECT" else b"POST" + head[len(method) :])
        except httptools.HttpParserError:
            raise Unreadable(_fault(head)) from None
        if upgrade:
            # A server may pass over the offer of another protocol (Java's client makes one with its first request), but
            # this parser stops there. If it stops without one, it is at a CONNECT, and what follows is not HTTP.
            without_offer = _UPGRADE.sub(b"", head)
            if without_offer != head:
                return self._head(without_offer)
        headers, self._headers = self._headers, {}  # what comes later is a trailer, and says nothing about the request
        old = minor == b"0"
        self._check_host(headers.get(b"host"), old)
        coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length", b"0")
        if coding is None:
            self._llhttp = None
        elif old or coding.lower() != b"chunked":
            raise Unreadable(_ONE_CODING)
        if len(length) > _MAX_LENGTH_DIGITS:
            raise Unreadable(_LENGTH)
        self._since_body = 0
        has_body = coding is not None or int(length) > 0
        if self._begun != 1 or self._keep_alive is None or self.ended == has_body:
            raise Unreadable(_NOT_HTTP)  # llhttp has seen something else than we have
        last = upgrade or old or not self._keep_alive
        return RequestHead(
            method.decode(), path_of(target), headers, old, last, int(length) if coding is None else None
        )

    def _check_host(self, host: bytes | None, old: bool) -> None:
        """There must be one, but in HTTP/1.0 there need not be. Two have been joined to one that is not valid."""
        if host is None:
            if not old:
                raise Unreadable(_ONE_HOST)
        elif host != self._host:
            if _HOST.fullmatch(host) is None:
                raise Unreadable(_ONE_HOST)
            self._host = host

    def _chunks(self) -> bytes:
        """Handed on up to each blank line: one of them ends the body, and beyond it may be the next head."""
        unread, position = self.unread, 0
        body: list[bytes] = []
        while position < len(unread) and not self.ended:
            end = _end_of_piece(unread, position)
            if end == position:
                break
            self._since_body += end - position
            try:
                upgrade = self._feed(unread[position:end])
            except httptools.HttpParserError:
                raise Unreadable(_CHUNKS) from None
            if upgrade or self._begun != 1:
                raise Unreadable(_CHUNKS)
            if self._since_body > MAX_HEAD_BYTES:
                raise Unreadable(_NO_BODY)
            position = end
            body.append(b"".join(self._parts))
            self._parts.clear()
        if self.ended:
            self._llhttp = None
        self.unread = unread[position:]
        return b"".join(body)

    def _feed(self, data: bytes) -> bool:
        """Whether llhttp has stopped because another protocol may follow. What it cannot read, it raises."""
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserCallbackError as error:
            raise RuntimeError("a callback of the parser failed") from error.__context__
        return False

    # --- what llhttp tells ---

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.rstrip()
        known = self._headers.get(name)
        self._headers[name] = value if known is None else known + b", " + value

    def on_headers_complete(self) -> None:
        self._keep_alive = self._llhttp.should_keep_alive()

    def on_body(self, part: bytes) -> None:
        self._since_body = 0
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self.ended = True


def _fault(head: bytes) -> str:
    """What is wrong with a head that cannot be read: what clients and proxies get wrong has words of its own."""
    if head.startswith(b"\x16\x03"):
        return "this port speaks plain HTTP, not TLS"
    if _OTHER_VERSION.match(head):
        return "this server speaks HTTP/1.1"
    lines = head.lower()
    lengths, codings = lines.count(b"\r\ncontent-length:"), lines.count(b"\r\ntransfer-encoding:")
    if lengths and codings:
        return "Content-Length and Transfer-Encoding cannot be combined"
    if lengths > 1:
        return "a request has one Content-Length at most"
    if codings and not _CHUNKED.search(lines):
        return _ONE_CODING
    return _LENGTH if lengths and _LONG.search(lines) else _NOT_HTTP


def _end_of_piece(unread: bytes, start: int) -> int:
    """Behind the next blank line, or where one may have begun. Pieces are small: chunks of a byte each would take many
    times their size while they are put together."""
    limit = min(len(unread), start + _MAX_PIECE_BYTES)
    end = unread.find(_BLANK, start, limit)
    if end >= 0:
        return end + len(_BLANK)
    begun = next(size for size in (3, 2, 1, 0) if unread.endswith(_BLANK[:size], start, limit))
    return limit - begun


def path_of(target: bytes) -> str:
    """The path that a request asks for. Only what may be written either way is decoded: %2F is not a separator."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b"/"
        except httptools.HttpParserInvalidURLError:
            return ""
    path = target.partition(b"?")[0].decode("latin-1")
    return _UNRESERVED.sub(lambda escape: chr(int(escape[0][1:], 16)), path) if "%" in path else path
