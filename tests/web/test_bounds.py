"""Whatever a client does, in whatever order: what it can make the server keep is bounded in size, number and time."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import chain, repeat

import pytest

from tests.spec.checks import SINGLE, bytes_for, eventually, peak_memory, refused, served
from tests.spec.wire import Wire, head, message
from tests.support.server import Server, running_server
from tests.web.kernel import client_end, server_end

MANY = 128 * 2**20  # bytes that an attack sends if it is let
KEPT = 8 * 2**20  # by which it may grow the process: far more than the limits, and far less than MANY
PIECE = 2**16


def odd_server(odd: str, *flags: str) -> AbstractContextManager[Server]:
    return running_server(*flags, module="tests.web.odd_server", env={"ODD": odd})


# --- size ---


def reply_of(size: int) -> bytes:
    """The body of a request whose reply is one piece of about that many bytes."""
    names = {f"{number}".ljust(size // 256 - 30, "x"): None for number in range(256)}
    return bytes_for(questions={"q": {"type": "choice", "criteria": names}})


def leave_unread(server: Server, wire: Wire) -> None:
    """A reply of some mebibytes is on its way, and nobody reads it."""
    wire.send(message(reply_of(2**23)))
    assert wire.socket.recv(1)


def no_preparation(server: Server, wire: Wire) -> None:
    pass


def endless(start: bytes, piece: bytes, size: int = MANY) -> Iterator[bytes]:
    pieces = max(1, PIECE // len(piece))
    return chain([start], repeat(piece * pieces, size // (pieces * len(piece))))


LARGE = f"Content-Length: {2**40}"
CHUNKS = head("Transfer-Encoding: chunked")
ATTACKS: dict[str, tuple[Callable[[Server, Wire], None], Iterator[bytes]]] = {
    "a body behind an unread reply": (leave_unread, endless(head(LARGE), b"x")),
    "a body in chunks behind an unread reply": (leave_unread, endless(CHUNKS, b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n")),
    "requests behind an unread reply": (leave_unread, endless(b"", head(method="GET", path="/ready"))),
    "a head behind an unread reply": (leave_unread, endless(b"GET / HTTP/1.1\r\nX: ", b"x")),
    "requests whose replies nobody reads": (no_preparation, endless(b"", head(method="GET", path="/openapi.json"))),
    "a head": (no_preparation, endless(b"GET / HTTP/1.1\r\nX: ", b"x")),
    "headers": (no_preparation, endless(b"GET / HTTP/1.1\r\n", b"X: y\r\n")),
    "empty lines, then a head": (no_preparation, endless(b"\r\n" * 50_000 + b"GET / HTTP/1.1\r\nX: ", b"x")),
    "a trailer": (no_preparation, endless(CHUNKS + b"0\r\nX: ", b"x")),
    "trailers": (no_preparation, endless(CHUNKS + b"0\r\n", b"X: y\r\n")),
    "an extension of a chunk": (no_preparation, endless(CHUNKS + b"1;x=", b"x")),
    "a body in small chunks": (no_preparation, endless(CHUNKS, b"2\r\nxx\r\n", 2**25)),
    "a body that nobody wants": (no_preparation, endless(head(LARGE, path="/nowhere"), b"x")),
    "a body while a probe takes its time": (no_preparation, endless(head(LARGE, method="GET", path="/ready"), b"x")),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_memory(attack: str) -> None:
    """The client sends until it has sent all, is cut off, or nobody has taken a byte for some seconds."""
    prepare, pieces = ATTACKS[attack]
    odd = "impatient never-ready" if "probe" in attack else "impatient"
    limit = 2**24 if prepare is leave_unread else 2**20
    with odd_server(odd, "--max-body-bytes", str(limit)) as server, Wire(server, timeout=4) as wire:
        prepare(server, wire)
        before, sent = peak_memory(server), 0
        with suppress(OSError):
            for piece in pieces:
                wire.send(piece)
                sent += len(piece)
        assert sent > 0
        assert server.get("/health").status == 200
        assert peak_memory(server) - before < KEPT, f"after {sent} bytes"


# --- time ---


def fill(server: Server, request: bytes, size: int) -> tuple[int, bool]:
    """Ask for a reply of that size and read nothing of it. Returns the most bytes of it that the kernel took, and
    whether the server has cut us off."""
    most = looks = 0

    def settled() -> bool:
        nonlocal most, looks
        here, there = server_end(server, client), client_end(server, client)
        if here is not None and there is not None:
            most = max(most, here.unsent + there.unread)
        looks = 0 if here is not None and here.established else looks + 1
        return looks > 3 or most == size

    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((server.host, server.port))
        client.sendall(request)
        assert eventually(settled, 60)
    return most, most < size


@pytest.mark.parametrize("lines", [[], ["Connection: close"]], ids=["kept alive", "closed"])
def test_a_client_that_reads_nothing_is_cut_off_however_little_is_left(lines: list[str]) -> None:
    """The kernel takes all but some kilobytes, if it takes as much as the last time; else once more."""
    with odd_server("impatient", "--max-body-bytes", str(2**24)) as server:
        capacity, _ = fill(server, message(reply_of(2**23), *lines), 2**30)
        for _ in range(20):
            body = reply_of(capacity + 30_000)
            closed = len(server.raw(message(body, "Connection: close")))
            size = closed if lines else closed - len("connection: close\r\n")
            capacity, cut_off = fill(server, message(body, *lines), size)
            if cut_off:
                break
        assert cut_off
        served(server.get("/ready"))


# --- number ---


def test_one_connection_too_many_is_told_so_and_closed() -> None:
    with running_server("--max-connections", "3") as server:
        leaving, *kept = [Wire(server) for _ in range(3)]
        for wire in (leaving, *kept):
            served(wire.exchange(head(method="GET", path="/ready")))
        for path in ("/ready", SINGLE):  # whether it sends little or much, it gets to read the refusal
            reply = server.request("POST", path, bytes(2**22))
            assert "capacity" in refused(reply, 503)
            assert reply.headers["retry-after"] == "1"
            assert reply.headers["connection"] == "close"
        with Wire(server) as silent:
            refused(silent.reply(), 503)
            assert silent.ended()
        leaving.close()
        assert eventually(lambda: server.get("/ready").status == 200)
        assert server.metric('service_rejected_total{reason="at_capacity"}') >= 3
        for wire in kept:
            served(wire.exchange(message(bytes_for())))
            wire.close()


def test_of_far_too_many_connections_most_are_closed_without_a_word() -> None:
    with running_server("--max-connections", "1") as server, Wire(server) as kept:
        served(kept.exchange(head(method="GET", path="/ready")))
        with ExitStack() as crowd:
            told = [is_told(crowd.enter_context(Wire(server))) for _ in range(100)]
            assert 1 <= sum(told) < 100
            # Those who were told do not close: they are closed after a moment, and then the next is told again.
            assert eventually(lambda: is_told(crowd.enter_context(Wire(server))))
        served(kept.exchange(message(bytes_for())))


def is_told(wire: Wire) -> bool:
    """Whether the connection ends with a 503, or without any reply."""
    try:
        return wire.reply().status == 503
    except (AssertionError, ConnectionResetError):
        return False


def test_connections_leave_files_for_everything_else() -> None:
    with odd_server("few-files") as server:
        assert eventually(lambda: "at most 40 connections: this process may open 80 files" in server.log())
        with ExitStack() as crowd:
            for _ in range(40):
                served(crowd.enter_context(Wire(server)).exchange(head(method="GET", path="/ready")))
            refused(server.get("/ready"), 503)
        assert eventually(lambda: server.ask("x").status == 200)


# --- manners ---


@pytest.mark.parametrize("request_bytes", [b"no HTTP\r\n\r\n", head("Transfer-Encoding: chunked") + b"zz\r\n"])
def test_a_refused_client_that_still_sends_gets_to_read_the_refusal(server: Server, request_bytes: bytes) -> None:
    with Wire(server) as wire:
        wire.send(request_bytes + bytes(2**22))
        refused(wire.reply(), 400)
        assert wire.ended()
