"""Streams of requests to read: whole and broken ones, made of pieces that parsers have quarrelled over."""

import random
from collections.abc import Iterator

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"

# Part of a message -> what it may be, and what it must not be.
LINES = [
    b"GET /health HTTP/1.1", b"POST /v1/systemone HTTP/1.1", b"POST /a%2Fb%41%7e%2e?q=%2F HTTP/1.1", b"HEAD / HTTP/1.0",
    b"POST / HTTP/1.0", b"GET http://h/path?x HTTP/1.1", b"GET http://h HTTP/1.1", b"OPTIONS * HTTP/1.1",
    b"CONNECT h:443 HTTP/1.1", b"DELETE //double HTTP/1.1", b"PUT /with#hash HTTP/1.1", b"M-SEARCH * HTTP/1.1",
    b"FOO / HTTP/1.1", b"get / HTTP/1.1", b"!#$%&'*+-.^_`|~9 / HTTP/1.0", b"PRI * HTTP/1.1", b"connect h:443 HTTP/1.1",
]  # fmt: skip
BAD_LINES = [
    b"GET / HTTP/2.0", b"GET / HTTP/0.9", b"GET / HTTP/1.2", b"GET /", b"GET  / HTTP/1.1", b"GET /  HTTP/1.1",
    b" GET / HTTP/1.1", b"GET / HTTP/1.1 ", b"GET / http/1.1", b"GET /a b HTTP/1.1",
    b"G\xc3T / HTTP/1.1", b"GET /\xff HTTP/1.1", b"GET\t/ HTTP/1.1", b"OPTIONS * RTSP/1.0", b"SOURCE / ICE/1.0",
    b"PRI * HTTP/2.0", b"GET / HTTP/11", b"GET / HTTP/1.1\rX: y", b"GET / XHTTP/1.1",
]  # fmt: skip
HOSTS = [
    b"Host: h", b"host:localhost:8000 ", b"HOST: [::1]:80", b"Host: 127.0.0.1", b"Host: a_b.example", b"Host: h:",
    b"Host:",
]  # fmt: skip
BAD_HOSTS = [
    b"", b"Host: a b", b"Host: a/b", b"Host: user@h", b"Host: h:8o", b"Host: \xff", b"Host: [::1", b"Host : h",
    b"Host: h\r\nhost: h", b"Host:\r\nHost:",
]  # fmt: skip
HEADERS = [
    b"Accept: */*", b"X-Empty:", b"X-Blank:   ", b"X-Wide: \t a  b \t ", b"X-Latin: \xe9\xff", b"Connection: close",
    b"Connection: keep-alive", b"Connection: Upgrade", b"Connection: x, close ", b"Upgrade: h2c", b"upgrade:websocket",
    b"UPGRADE: a, b", b"HTTP2-Settings: AAEA", b"Expect: 100-continue", b"X-Twice: 1", b"X-Twice: 2", b"TE: trailers",
    b"!#$%&'*+-.^_`|~9: odd name", b"Proxy-Connection: close", b"Trailer: X-Sum", b'X-Quoted: "a\\"b, c"',
    b"X-Colon: a:b::c", b"X-Upgrade: no", b"Upgraded: no", b"Upgrade:", b"Connection: upgrade, close",
]  # fmt: skip
BAD_HEADERS = [
    b"no colon", b": no name", b"X-Space : x", b" X-Leading: x", b"X-Fold: a\r\n b", b"X-Fold: a\r\n\tb", b"X(Y): x",
    b"X-Nul: \x00", b"X-Control: \x01\x7f", b"X-Bare: a\nY: b", b"X-Return: a\rb", b"X-\xe9: x", b"Upgrade : h2c",
    b"Content-Length: 3", b"Content-Length: 0", b"Content-Length: +3", b"Content-Length: -3", b"Content-Length: 0x3",
    b"Content-Length: 3, 3", b"Content-Length: 3 3", b"Content-Length:", b"Content-Length: 99999999999999999999999",
    b"Content-Length: 18446744073709551617", b"Content-Length: 00000000000000000000003", b"Content-Length: \xb3",
    b"Content-Length : 3", b"Content_Length: 3", b"Content-Length: 3\r\nContent-Length: 3", b"Content-Length: 0003",
    b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked;q=1",
    b"Transfer-Encoding:", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding:\tchunked ",
    b"Transfer-Encoding : chunked", b"Transfer-Encoding: CHUNKED", b'Transfer-Encoding: "chunked"',
]  # fmt: skip
SIZES = [b"%x", b"%x", b"0%x", b"%x;ext", b'%x;a=b;c="d"', b"000000%x"]
BAD_SIZES = [
    b" %x", b"%x ", b"0x%x", b"+%x", b"-%x", b"%x\n", b"%x;a\nb", b"%x;\x00", b"%xg", b"", b"f%xffffffffffffffff",
    b"%x\r", b"%x ;a",
]  # fmt: skip
TRAILERS = [
    b"", b"", b"", b"X-Sum: 1\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"Connection: close\r\n",
    b"Host: other\r\n", b"X-Empty:\r\n", b"X-Request-Id: late\r\n",
]  # fmt: skip
BAD_TRAILERS = [
    b"no colon\r\n", b"X: a\nY: b\r\n", b"X: a\r\n fold\r\n", b"Content-Length: 9\r\n", b"X : y\r\n", b"X: \x00\r\n",
    b"Transfer-Encoding: chunked\r\n", b"\n", b"\r",
]  # fmt: skip
BODIES = [
    b"", b"x", b"{}", b"a\r\n\r\nb", b"Upgrade:\n" * 3, b"Upgrade: h2c\r\n\r\n", HIDDEN, b"\r\n" + HIDDEN,
    b"0\r\n\r\n", b"\r\n\r\n\r\n", b"x" * 40 + b"\r\n\r", bytes(range(256)),
]  # fmt: skip
SCRAPS = [
    b"", b"", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\n\n", b" ", b"\t", b":", b"\x00", b"0\r\n\r\n", b"5\r\nhello\r\n",
    b"Upgrade: x\r\n", b"\r\nTransfer-Encoding: chunked", b"\r\nContent-Length: 1", HIDDEN, b"HTTP/1.1", b",", b"\xff",
]  # fmt: skip
PARTS = {
    "before": ([b""] * 8 + [b"\r\n", b"\r\n\r\n"], [b"\n", b"\r", b" "]),
    "line": (LINES, BAD_LINES),
    "host": (HOSTS, BAD_HOSTS),
    "header": (HEADERS, BAD_HEADERS),
    "size": (SIZES, BAD_SIZES),
    "trailer": (TRAILERS, BAD_TRAILERS),
}


class Maker:
    """Makes streams of one to three messages. Most have no fault, some have one by design, some are damaged."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._fault = ""

    def stream(self) -> bytes:
        chance = self._chance
        stream = b"".join(self._message() for _ in range(chance.choice((1, 1, 2, 3))))
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            start = chance.randrange(len(stream) + 1)
            stream = stream[:start] + chance.choice(SCRAPS) + stream[start + chance.choice((0, 0, 1, 2, 9)) :]
        return stream

    def _message(self) -> bytes:
        chance = self._chance
        self._fault = chance.choice(list(PARTS)) if chance.random() < 0.3 else ""
        lines = [self._pick("host")] + [self._pick("header") for _ in range(chance.randrange(4))]
        body = chance.choice(BODIES)
        match chance.choice(("none", "length", "chunks")):
            case "length":
                lines.append(b"Content-Length: %d" % max(0, len(body) + chance.choice((0, 0, 0, 0, 1, -1))))
            case "chunks":
                lines.append(b"Transfer-Encoding: chunked")
                body = b"".join(self._chunks(body))
            case _:
                body = b""
        chance.shuffle(lines)
        head = b"".join(line + b"\r\n" for line in (self._pick("line"), *lines) if line)
        return self._pick("before") + head + b"\r\n" + body

    def _chunks(self, body: bytes) -> Iterator[bytes]:
        while body:
            size = self._chance.randint(1, len(body))
            yield self._pick("size").replace(b"%x", b"%x" % size) + b"\r\n" + body[:size] + b"\r\n"
            body = body[size:]
        yield b"0\r\n" + self._pick("trailer") + b"\r\n"

    def _pick(self, part: str) -> bytes:
        good, bad = PARTS[part]
        return self._chance.choice(bad if self._fault == part else good)
