"""One HTTP/1.1 connection: whose turn it is, how much may wait, and replies into bytes.

Why our own and not a general server: a fifth of the time per request went into machinery this service does not use, and
the contract decides what such a server decides by itself: the body of a 400 for bytes that are no HTTP, the bound of a
head, what becomes of work whose client has left, and that a refused client can still read the refusal.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol

from decided.errors import AtCapacity, DecidedError, TimedOut
from decided.web.edge import CLIENT_LEFT, Edge
from decided.web.message import HttpRequest, Reply
from decided.web.parser import KnownHeads, RequestParser

log = logging.getLogger("decided")

MAX_BYTES_AHEAD = 64 * 1024  # that wait here for their turn; the rest waits with the client
MAX_DRAINED_BYTES = 64 * 2**20

_MAX_TURNED_AWAY = 64  # connections above the limit that are told so, at a time
_LINGER_S = 2.0
_STATUS_LINES = {int(status): b"HTTP/1.1 %d %s\r\ndate: " % (status, status.phrase.encode()) for status in HTTPStatus}


class ConnectionRegistry(Protocol):
    """Who keeps the connections."""

    connections: "set[Connection]"
    turned_away: "set[Connection]"
    max_connections: int
    heads: KnownHeads
    loop: asyncio.AbstractEventLoop
    date: bytes
    write_timeout_s: float


class Connection(asyncio.Protocol):
    """One request at a time: the next is not looked at before the one at hand is answered and read to its end.

    What is sent ahead waits unread, a body is read when a handler asks for it, and no request begins while the client
    leaves a reply unread. So there is a bound to what a client can make us keep, whatever it does in whatever order.
    """

    def __init__(self, edge: Edge, registry: ConnectionRegistry) -> None:
        self._edge = edge
        self._registry = registry
        self._parser = RequestParser(registry.heads)
        self._transport: asyncio.Transport
        self._request: HttpRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._body_wanted = False
        self._drained_bytes = 0
        self._reading = True
        self._closing = False
        self._broken = False  # nothing that comes from now on can be read
        self._hung_up = False
        self.idle_since: float | None = None

    # --- what the event loop and the registry tell ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(0)  # so that we are told of every byte that the client leaves unread
        registry = self._registry
        if len(registry.connections) < registry.max_connections:
            registry.connections.add(self)
            self._rest()
        elif len(registry.turned_away) < _MAX_TURNED_AWAY:
            registry.turned_away.add(self)
            self._refuse(AtCapacity())
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.connections.discard(self)
        self._registry.turned_away.discard(self)
        self.resume_writing()
        if self._task is not None:
            self._task.cancel(CLIENT_LEFT)

    def data_received(self, data: bytes) -> None:
        if not self._broken and not self._hung_up:
            self._parser.receive(data)
            self._advance()

    def pause_writing(self) -> None:
        """The client has not taken all that it was sent: wait for it, but not for ever."""
        self._writable = self._registry.loop.create_future()
        timer = self._registry.loop.call_later(self._registry.write_timeout_s, self._transport.abort)
        self._writable.add_done_callback(lambda _: timer.cancel())

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        if self._transport.is_closing():
            return
        if self._hung_up:
            self._hang_up()
        elif self._task is None:
            self._advance()

    def finish(self) -> None:
        """Close when the requests at hand are answered; at once when there are none."""
        self._closing = True
        if self._task is None:
            self._transport.close()

    def give_up(self) -> None:
        """Close now. The request at hand is told so."""
        if self._task is not None:
            self._task.cancel()

    def close_if_idle_since(self, when: float) -> None:
        if self.idle_since is not None and self.idle_since < when:
            self._transport.close()

    # --- one request after the other ---

    def _advance(self) -> None:
        """Go on with what has come, as far as is possible now."""
        try:
            if self._request is not None and self._body_wanted:
                self._read_body(self._request)
            if self._request is None and self._writable is None and not self._hung_up:
                self._read_head()
        except DecidedError as error:
            self._break_off(error)
        except Exception:
            log.exception("unexpected error while reading a request")
            self._break_off(DecidedError("internal server error"))
        if self._reading != (len(self._parser.unread) <= MAX_BYTES_AHEAD):
            self._reading = not self._reading
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _read_head(self) -> None:
        request = self._parser.head()
        if request is None:
            if self._closing:
                self._close()
            return
        self._request = request
        self._closing = self._closing or request.last
        self._body_wanted, self._drained_bytes = False, 0
        self.idle_since = None
        if not request.ended:
            request.invite_body = self._invite_body
        self._task = self._registry.loop.create_task(self._serve(request))

    def _invite_body(self) -> None:
        """The handler asks for the body. The client may wait to be asked."""
        request = self._request
        if request is None or self._body_wanted:
            return
        self._body_wanted = True
        self._advance()
        if (
            not (request.ended or self._broken or request.old)
            and request.headers.get(b"expect", b"").lower() == b"100-continue"
        ):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _read_body(self, request: HttpRequest) -> None:
        if not request.ended:
            unread = len(self._parser.unread)
            part = self._parser.body()
            if not request.replied:
                request.feed(part)
            else:
                self._drained_bytes += unread - len(self._parser.unread)
            if self._parser.ended:
                request.end()
            elif self._drained_bytes > MAX_DRAINED_BYTES:
                self._transport.close()
        if request.ended and request.replied:
            self._request = None
            if request.last:
                self._close()

    async def _serve(self, request: HttpRequest) -> None:
        try:
            await self._edge.serve(request, self)
        finally:
            self._task = None
            request.replied = True
            if self._transport.is_closing():
                pass
            elif self._broken:
                self._hang_up()
            elif request.ended and not self._parser.unread and not self._closing:  # the usual case
                self._rest()
                self._request = None
            else:
                self._rest()
                self._body_wanted = True  # to be dropped
                self._advance()

    def _rest(self) -> None:
        self.idle_since = self._registry.loop.time()

    def _break_off(self, error: DecidedError) -> None:
        """The bytes make no sense from here on: refuse the request that they were for, and close."""
        if self._request is None:
            self._refuse(error)
        elif self._request.replied:
            self._hang_up()
        else:
            self._broken = True
            self._request.break_off(error)

    def _refuse(self, error: DecidedError) -> None:
        self._broken = True
        self._edge.refuse(error, self, self._parser.refused_id())
        self._hang_up()

    def _close(self) -> None:
        if self._parser.unread:
            self._hang_up()
        else:
            self._transport.close()

    def _hang_up(self) -> None:
        """Say no more and hear no more, but let the client close: where it still sends, our closing would reset the
        connection under the reply that it has yet to read."""
        self._hung_up = True
        self._parser.unread = b""
        if self._writable is None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._transport.write_eof()
            self._registry.loop.call_later(_LINGER_S, self._transport.abort)

    # --- the way back ---

    def write(self, request: HttpRequest, reply: Reply, request_id: bytes) -> None:
        body: bytes = reply.body  # type: ignore[assignment]
        head = self._head(request, reply, request_id, b"content-length: %d\r\n\r\n" % len(body))
        without_body = request.method == "HEAD" or reply.status == HTTPStatus.NOT_MODIFIED
        self._transport.write(head if without_body else head + body)

    async def stream(self, request: HttpRequest, reply: Reply, request_id: bytes) -> None:
        plain = request.old  # HTTP/1.0 has no chunks: there, the end of the connection is the end of the body
        framing = b"\r\n" if plain else b"transfer-encoding: chunked\r\n\r\n"
        self._transport.write(self._head(request, reply, request_id, framing))
        body: AsyncGenerator[bytes, None] = reply.body  # type: ignore[assignment]
        async with aclosing(body) as parts:
            async for part in parts:
                self._transport.write(part if plain else b"%x\r\n%b\r\n" % (len(part), part))
                if self._writable is not None:
                    await self._writable
        self._transport.write(b"" if plain else b"0\r\n\r\n")

    def abort(self) -> None:
        self._transport.abort()

    def _head(self, request: HttpRequest, reply: Reply, request_id: bytes, framing: bytes) -> bytes:
        if reply.status == TimedOut.status and not request.ended:
            self._broken = True  # the rest of that body may never come: do not wait for it
        head = [_STATUS_LINES[reply.status], self._registry.date, b"\r\ncontent-type: ", reply.content_type]
        head += (b"\r\nx-request-id: ", request_id, b"\r\nx-typesafe-request-id: ", request_id, b"\r\n")
        for name, value in reply.headers:
            head += (name, b": ", value, b"\r\n")
        if request.last or self._broken or (self._closing and not self._parser.unread):
            head.append(b"connection: close\r\n")
        head.append(framing)
        return b"".join(head)
