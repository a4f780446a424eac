"""One HTTP/1.1 connection: bytes into calls, replies into bytes. The parser is llhttp, the one inside Node.

Why our own and not a general server: a fifth of the time per request went into machinery this service does not use, and
the contract decides what such a server decides by itself: the body of a 400 for bytes that are no HTTP, the bound of a
head, what becomes of work whose client has left, and that a refused client can still read the refusal.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

import httptools

from decided.call import Call, Reply
from decided.edge import CLIENT_LEFT, Edge
from decided.errors import TimedOut

MAX_HEAD_BYTES = 64 * 1024
MAX_BYTES_AHEAD = 64 * 1024  # of calls sent before the one at hand is answered
MAX_DRAINED_BYTES = 64 * 2**20

_NOT_HTTP = "this is not a valid HTTP/1.1 request"
_NO_UPGRADE = "this server does not change protocols"
_STATUS_LINES = {int(status): b"HTTP/1.1 %d %s\r\ndate: " % (status, status.phrase.encode()) for status in HTTPStatus}
_UPGRADE = re.compile(rb"^Upgrade:", re.IGNORECASE | re.MULTILINE)


class Keeper(Protocol):
    """Who keeps the connections."""

    connections: "set[Connection]"
    loop: asyncio.AbstractEventLoop
    date: bytes
    write_timeout_s: float


class Connection(asyncio.Protocol):
    """Calls are answered one after the other, in the order in which they came."""

    def __init__(self, edge: Edge, keeper: Keeper) -> None:
        self._edge = edge
        self._keeper = keeper
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._held = b""
        self._waiting: deque[Call] = deque()
        self._receiving: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._in_head = True
        self._head_bytes = 0
        self._drained_bytes = 0
        self._bytes_ahead = 0
        self._broken: str | None = None
        self._closing = False
        self.idle_since: float | None = None

    # --- what the event loop and the keeper tell ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._keeper.connections.add(self)
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeper.connections.discard(self)
        self._waiting.clear()
        self.resume_writing()
        if self._task is not None:
            self._task.cancel(CLIENT_LEFT)

    def data_received(self, data: bytes) -> None:
        if self._broken is not None:
            return
        if self._in_head:
            self._head_bytes += len(data)  # back to none as soon as a head is complete
            data = self._without_upgrade(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # CONNECT: what follows is not HTTP
            self._waiting[-1].break_off(_NO_UPGRADE)
            self._broken, self._closing = _NO_UPGRADE, True
        except httptools.HttpParserError:
            self._break_off(_NOT_HTTP)
        if self._head_bytes > MAX_HEAD_BYTES and self._broken is None:
            self._break_off(f"the request line and headers are larger than {MAX_HEAD_BYTES} bytes")
        if self._task is None and self._waiting:
            self._next()
        if self._waiting:
            self._bytes_ahead += len(data)
            if self._bytes_ahead > MAX_BYTES_AHEAD:
                self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The client does not read: wait for it, but not for ever."""
        self._writable = self._keeper.loop.create_future()
        timer = self._keeper.loop.call_later(self._keeper.write_timeout_s, self._transport.abort)
        self._writable.add_done_callback(lambda _: timer.cancel())

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def finish(self) -> None:
        """Close when the calls at hand are answered; at once when there are none."""
        self._closing = True
        if self._task is None:
            self._transport.close()

    def give_up(self) -> None:
        """Close now. The call at hand is told so."""
        if self._task is not None:
            self._task.cancel()

    def close_if_idle_since(self, when: float) -> None:
        if self.idle_since is not None and self.idle_since < when:
            self._transport.close()

    # --- what the parser tells ---

    def on_message_begin(self) -> None:
        self._in_head = True
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: it comes too late to say anything about the call
        name = name.lower()
        known = self._headers.get(name)
        self._headers[name] = value if known is None else known + b", " + value

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = self._drained_bytes = 0
        parser = self._parser
        old = parser.get_http_version() == "1.0"
        last = old or not parser.should_keep_alive()
        call = Call(parser.get_method().decode(), _path(self._url), self._headers, old, last)
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            call.invite_body = self._invite_body
        self._receiving = call
        self._waiting.append(call)

    def on_body(self, body: bytes) -> None:
        call = self._receiving
        if call is None:
            return
        call.feed(body)
        if call.replied:
            self._drained_bytes += len(body)
            if self._drained_bytes > MAX_DRAINED_BYTES:
                self._transport.close()

    def on_message_complete(self) -> None:
        self._in_head = True
        call, self._receiving = self._receiving, None
        if call is not None:
            call.end()
            if call.replied and self._closing:
                self._transport.close()

    # --- one call after the other ---

    def _next(self) -> None:
        call = self._waiting.popleft()
        if not self._waiting:
            self._bytes_ahead = 0
            self._transport.resume_reading()
        self.idle_since = None
        self._closing = self._closing or call.last
        self._task = self._keeper.loop.create_task(self._serve(call))

    async def _serve(self, call: Call) -> None:
        try:
            if self._writable is not None:  # the last reply has not left yet
                await self._writable
            await self._edge.serve(call, self)
        finally:
            call.replied = True
            self._task = None
            self._after(call)

    def _after(self, call: Call) -> None:
        if self._transport.is_closing():
            return
        if self._waiting and not call.last:
            self._next()
        elif self._closing:
            # Closing on a client that still sends would reset the connection under the reply it has yet to read.
            if call.ended or self._broken is not None:
                self._transport.close()
            else:
                self._rest()
        elif self._broken is not None:
            self._refuse(self._broken)
        else:
            self._rest()

    def _rest(self) -> None:
        self.idle_since = self._keeper.loop.time()

    def _break_off(self, reason: str) -> None:
        """The bytes make no sense from here on: answer what was asked before, refuse the rest, close."""
        self._broken = reason
        if self._receiving is not None:
            self._closing = True
            self._receiving.break_off(reason)
            if self._receiving.replied:
                self._transport.close()
        elif self._task is None and not self._waiting:
            self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self._closing = True
        self._edge.refuse(reason, self)
        self._transport.close()

    def _without_upgrade(self, data: bytes) -> bytes:
        """The offer to switch protocols hidden from the parser, which would stop there and lose the body.

        Java's client offers HTTP/2 in this way with its first request; a server may ignore the offer. What may be the
        beginning of the word is held back until the rest of it is there.
        """
        data, self._held = self._held + data, b""
        if b"pgrade:" in data.lower():
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"X-Upgrade-Ignored:", head) + end + rest
        if b"\r\n\r\n" not in data:
            line = data[data.rfind(b"\n") + 1 :]
            if line and b"upgrade:".startswith(line.lower()):
                data, self._held = data[: -len(line)], line
        return data

    def _invite_body(self) -> None:
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- the way back ---

    def write(self, call: Call, reply: Reply, request_id: bytes) -> None:
        body: bytes = reply.body  # type: ignore[assignment]
        head = self._head(call, reply, request_id, b"content-length: %d\r\n\r\n" % len(body))
        without_body = call.method == "HEAD" or reply.status == HTTPStatus.NOT_MODIFIED
        self._transport.write(head if without_body else head + body)

    async def stream(self, call: Call, reply: Reply, request_id: bytes) -> None:
        plain = call.old  # HTTP/1.0 has no chunks: there, the end of the connection is the end of the body
        framing = b"\r\n" if plain else b"transfer-encoding: chunked\r\n\r\n"
        self._transport.write(self._head(call, reply, request_id, framing))
        body: AsyncGenerator[bytes, None] = reply.body  # type: ignore[assignment]
        async with aclosing(body) as parts:
            async for part in parts:
                self._transport.write(part if plain else b"%x\r\n%b\r\n" % (len(part), part))
                if self._writable is not None:
                    await self._writable
        self._transport.write(b"" if plain else b"0\r\n\r\n")

    def abort(self) -> None:
        self._transport.abort()

    def _head(self, call: Call, reply: Reply, request_id: bytes, framing: bytes) -> bytes:
        if reply.status == TimedOut.status and not call.ended:
            self._closing, self._broken = True, _NOT_HTTP  # the rest of that body may never come: do not wait for it
        head = [_STATUS_LINES[reply.status], self._keeper.date, b"\r\ncontent-type: ", reply.content_type]
        head += (b"\r\nx-request-id: ", request_id, b"\r\nx-typesafe-request-id: ", request_id, b"\r\n")
        for name, value in reply.headers:
            head += (name, b": ", value, b"\r\n")
        if call.last or (self._closing and not self._waiting):
            head.append(b"connection: close\r\n")
        head.append(framing)
        return b"".join(head)


def _path(url: bytes) -> str:
    if not url.startswith(b"/"):
        try:
            url = httptools.parse_url(url).path or b""
        except httptools.HttpParserInvalidURLError:
            return ""
    path = url.partition(b"?")[0].decode("latin-1")
    return unquote(path) if "%" in path else path
