"""One HTTP request on its way through the service, and the reply to it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

from decided.errors import BodyTooLarge, Headers, Unreadable

JSON = b"application/json"
LINES = b"application/x-ndjson"

_RANGES = re.compile(r'(?:[^,"]|"(?:\\.|[^"\\])*")+')
_QUALITY = re.compile(r";\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*(?:;|$)", re.IGNORECASE)


class Reply(NamedTuple):
    """A response. A body of parts is sent as they come."""

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    content_type: bytes = JSON
    headers: Headers = ()


class Line(Protocol):
    """The way back to the client."""

    def write(self, call: "Call", reply: Reply, request_id: bytes) -> None:
        """Send a reply whose body is there."""

    async def stream(self, call: "Call", reply: Reply, request_id: bytes) -> None:
        """Send a reply whose body comes in parts, no faster than the client reads."""

    def abort(self) -> None:
        """Break the connection off."""


class Call:
    """A request: its head, its body as it arrives, and what the log wants to know of it.

    The connection feeds it; a handler reads it. What arrives after the reply is dropped.
    """

    __slots__ = ("_broken", "_parts", "_size", "_waiting", "ended", "headers", "id", "invite_body", "last", "method",
                 "old", "path", "questions", "replied", "tokens")  # fmt: skip

    def __init__(
        self, method: str, path: str, headers: dict[bytes, bytes], old: bool = False, last: bool = False
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.old = old  # HTTP/1.0
        self.last = last  # the client wants no further call on this connection
        self.id = ""  # once the edge has chosen it
        self.ended = False
        self.replied = False
        self.questions = 0
        self.tokens = 0
        self.invite_body: Callable[[], None] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._broken: str | None = None
        self._waiting: asyncio.Future[None] | None = None

    def declares_more_than(self, limit: int) -> bool:
        declared = self.headers.get(b"content-length", b"")
        return declared.isdigit() and int(declared[:20]) > limit

    def wants_lines(self) -> bool:
        """Whether the client names lines of JSON as a reply that it takes, and likes them no less than JSON."""
        accept = self.headers.get(b"accept", b"")
        if LINES not in accept.lower():  # what nearly every client sends
            return False
        liked = {}
        for media_range in _RANGES.findall(accept.decode("latin-1")):
            name, _, _ = media_range.partition(";")
            quality = _QUALITY.search(media_range)
            liked[name.strip().lower()] = float(quality[1]) if quality else 1.0
        json = next((liked[name] for name in ("application/json", "application/*", "*/*") if name in liked), 0.0)
        lines = liked.get(LINES.decode(), 0.0)
        return lines > 0 and lines >= json

    async def body(self, limit: int) -> bytes:
        """The whole body, of at most `limit` bytes."""
        if self.invite_body is not None and not self.ended:  # the client waits to be asked
            self.invite_body()
        while not self.ended and self._size <= limit and self._broken is None:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if self._size > limit:
            raise BodyTooLarge(limit)
        if self._broken is not None:
            raise Unreadable(self._broken)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def feed(self, part: bytes) -> None:
        if not self.replied:
            self._size += len(part)
            self._parts.append(part)
            self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def break_off(self, reason: str) -> None:
        """The rest of the body cannot be read."""
        self._broken = reason
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
