"""One connection without a socket: bytes in as segments, what became of them out. Thousands of them a second."""

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from decided.errors import DecidedError
from decided.web.connection import Connection
from decided.web.message import HttpRequest, Reply, ReplyWriter
from decided.web.parser import KnownHeads

LIMIT = 2**20
QUIET_TURNS = 8  # of the event loop without any news: more than a handler here ever waits


class Seen(NamedTuple):
    """A request as a handler sees it."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes


class Outcome(NamedTuple):
    """What became of a stream of bytes. It ends `open` (more may come), `closed`, or `refused`."""

    requests: list[Seen]
    end: str


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True
        self.closing = False
        self.half_closed = False

    def write(self, data: Any) -> None:
        assert not self.half_closed
        self.written += bytes(data)

    def write_eof(self) -> None:
        self.half_closed = True

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@dataclass
class Recorder:
    """In place of the edge: notes every request, and answers after some turns of the event loop."""

    chance: random.Random
    requests: list[Seen] = field(default_factory=list)
    refusals: list[DecidedError] = field(default_factory=list)

    async def serve(self, request: HttpRequest, line: ReplyWriter) -> None:
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        try:
            body = await request.body(LIMIT)
        except DecidedError as error:
            self.refuse(error, line, b"")
            return
        self.requests.append(Seen(request.method, request.path, request.headers, body))
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        line.write(request, Reply(200, b""), b"id")

    def refuse(self, error: DecidedError, line: ReplyWriter, given_id: bytes) -> None:
        self.refusals.append(error)
        line.write(HttpRequest("", "", {}), Reply(error.status, b""), b"id")


class Registry:
    """In place of the listener. Heads are known from one connection to the next, as they are there."""

    heads = KnownHeads()

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.turned_away: set[Connection] = set()
        self.max_connections = 1
        self.loop = asyncio.get_running_loop()
        self.date = b"today"
        self.write_timeout_s = 30.0


async def receive(segments: Iterable[bytes], chance: random.Random) -> tuple[Outcome, Recorder]:
    """Hand the segments to a new connection, some turns of the event loop apart."""
    recorder, transport = Recorder(chance), FakeTransport()
    connection = Connection(recorder, Registry())  # type: ignore[arg-type]
    connection.connection_made(transport)
    for segment in segments:
        if not transport.reading:
            await _quiet(recorder, transport)
        assert transport.reading, "nobody will ever read on"
        if transport.closing or transport.half_closed:
            break
        connection.data_received(segment)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    await _quiet(recorder, transport)
    closed = transport.closing or transport.half_closed
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return Outcome(recorder.requests, "refused" if recorder.refusals else "closed" if closed else "open"), recorder


async def _quiet(recorder: Recorder, transport: FakeTransport) -> None:
    turns, seen = 0, (-1, False, False)
    while turns < QUIET_TURNS:
        await asyncio.sleep(0)
        now = (len(transport.written), transport.closing, transport.half_closed)
        turns, seen = (turns + 1 if now == seen else 0), now
