"""No byte of a body is ever taken for a request, wherever the segments end. Over a real socket."""

import re
import socket
from collections.abc import Iterable

import pytest

from tests.spec.checks import eventually
from tests.spec.wire import Wire, head, message
from tests.support.server import Server
from tests.web.kernel import server_end

HIDDEN = message(b"", "X-Request-Id: hidden", method="GET", path="/health")
LAST = head("X-Request-Id: last", "Connection: close", method="GET", path="/ready")


def ids_of(server: Server, segments: Iterable[bytes]) -> list[bytes]:
    """The ids of all replies to what is sent in these segments, each of which the server reads by itself."""
    with Wire(server) as wire:
        for segment in segments:
            wire.send(segment)
            assert eventually(lambda: all_read(server, wire.socket))
        wire.send(LAST)
        replies = b""
        while part := wire.socket.recv(65536):
            replies += part
    return re.findall(rb"\r\nx-request-id: (\w+)", replies)


def all_read(server: Server, client: socket.socket) -> bool:
    """Whether the server has taken everything that was sent to it."""
    end = server_end(server, client)
    return end is not None and end.unread == 0


def with_body(body: bytes, *lines: str) -> bytes:
    return message(body, "X-Request-Id: outer", *lines)


@pytest.mark.parametrize("lines", range(1, 41))
def test_upgrade_lines_in_a_body_that_follows_the_blank_line(server: Server, lines: int) -> None:
    """The head as far as its last line, then the blank line with a body that would grow if it were rewritten."""
    request = with_body(b"Upgrade:\n" * lines + HIDDEN)
    blank = request.index(b"\r\n\r\n") + 2
    assert ids_of(server, [request[:blank], request[blank:]]) == [b"outer", b"last"]


OFFER = with_body(b"Upgrade: h2c\r\n\r\n" + HIDDEN, "Connection: Upgrade", "Upgrade: h2c")
CHUNKED = (
    head("X-Request-Id: outer", "Transfer-Encoding: chunked", "Upgrade: h2c", "Connection: upgrade")
    + b"%x\r\n%s\r\n0\r\nUpgrade: h2c\r\n\r\n" % (len(HIDDEN), HIDDEN)
)  # fmt: skip


@pytest.mark.parametrize("method", [b"POST", b"FOO"])
@pytest.mark.parametrize("request_bytes", [OFFER, CHUNKED], ids=["length", "chunks"])
def test_a_request_inside_a_body_stays_there_wherever_the_segments_end(
    server: Server, request_bytes: bytes, method: bytes
) -> None:
    request_bytes = request_bytes.replace(b"POST", method, 1)
    for cut in range(1, len(request_bytes)):
        assert ids_of(server, [request_bytes[:cut], request_bytes[cut:]]) == [b"outer", b"last"], cut
