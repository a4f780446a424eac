"""One HTTP request on its way through the service, and the reply to it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import NamedTuple, Protocol

from decided.engines.api import NOBODY
from decided.errors import BodyTooLarge, DecidedError, Headers

JSON = b"application/json"
LINES = b"application/x-ndjson"

_RANGES = re.compile(r'(?:[^,"]|"(?:\\.|[^"\\])*+"?)++')  # a quote that nothing closes goes to the end
_QUALITY = re.compile(r";\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*(?:;|$)", re.IGNORECASE)


class Reply(NamedTuple):
    """A response. A body of parts is sent as they come."""

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    content_type: bytes = JSON
    headers: Headers = ()


class ReplyWriter(Protocol):
    """The way back to the client."""

    def write(self, request: "HttpRequest", reply: Reply, request_id: bytes) -> None:
        """Send a reply whose body is there."""

    async def stream(self, request: "HttpRequest", reply: Reply, request_id: bytes) -> None:
        """Send a reply whose body comes in parts, no faster than the client reads."""

    def abort(self) -> None:
        """Break the connection off."""


class HttpRequest:
    """A request: its head, its body as it arrives, and what the log wants to know of it.

    A handler reads it. The connection feeds it, from the moment when a handler asks for the body.
    """

    __slots__ = ("_body", "_error", "_waiting", "caller", "ended", "headers", "id", "invite_body", "last", "method",
                 "old", "output_tokens", "path", "questions", "replied", "tokens")  # fmt: skip

    def __init__(
        self, method: str, path: str, headers: Mapping[bytes, bytes], old: bool = False, last: bool = False
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.old = old  # HTTP/1.0
        self.last = last  # the client wants no further request on this connection
        self.id = ""  # once the edge has chosen it
        self.caller = NOBODY  # once its key was checked
        self.ended = False
        self.replied = False
        self.questions = 0
        self.tokens = 0  # read and written
        self.output_tokens = 0
        self.invite_body: Callable[[], None] | None = None
        self._body: bytes | bytearray = b""
        self._error: DecidedError | None = None
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
        if self.invite_body is not None:
            self.invite_body()
        while not self.ended and len(self._body) <= limit and self._error is None:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if len(self._body) > limit:
            raise BodyTooLarge(limit)
        if self._error is not None:
            raise self._error
        return bytes(self._body)

    def feed(self, part: bytes) -> None:
        if not self._body:
            self._body = part
        else:
            # One growing piece: a body that comes in small ones would take many times its size as a list of them.
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += part
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def complete(self, body: bytes) -> None:
        """All of the body is there, before anyone has asked for it."""
        self._body, self.ended = body, True

    def break_off(self, error: DecidedError) -> None:
        """The rest of the body cannot be read."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
