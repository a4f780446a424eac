"""A small HTTP/1.1 client for one origin: kept connections, one call at a time on each, replies bounded in size.

General clients bring redirects, cookies, proxies, decompression and retries of their own, all of which would have to be
switched off here, and cost two to three times the CPU of everything else that is done for a question. Parsing, where
mistakes are dangerous, is left to llhttp (`httptools`), as for the calls that the service itself receives.
"""

import asyncio
import ssl
from collections import deque
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

MAX_REPLY_BYTES = 4 * 2**20
_MAX_HEAD_BYTES = 64 * 2**10
_CONNECT_S = 5.0
_KEEP_ALIVE_S = 30.0
_MAX_AGE_S = 300.0
"""However busy, a connection is replaced at this age: behind one address there may be engines that came later."""


class Unreachable(Exception):
    """No connection, or one that broke: nobody knows whether the engine saw the call."""


class Garbled(Exception):
    """An answer that cannot be used."""


class HttpReply(NamedTuple):
    status: int
    body: bytes
    retry_after: str


class Pool:
    """Connections to one origin. How many there are is the business of those who call."""

    def __init__(self, origin: str) -> None:
        parts = urlsplit(origin)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._tls = ssl.create_default_context() if secure else None
        self._idle: deque[_Connection] = deque()  # the one used last at the end

    async def call(self, request: bytes, timeout_s: float) -> HttpReply:
        """Send a whole request, return the whole reply. A call that is cancelled takes its connection with it."""
        async with asyncio.timeout(timeout_s):
            connection = self._kept() or await self._connect()
            try:
                reply = await connection.exchange(request)
            except BaseException:
                connection.abort()
                raise
        now = asyncio.get_running_loop().time()
        if connection.reusable and now - connection.opened < _MAX_AGE_S:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.abort()
        return reply

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def _kept(self) -> "_Connection | None":
        """The connection used last, so that those beyond the need grow old and are dropped."""
        oldest = asyncio.get_running_loop().time() - _KEEP_ALIVE_S
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().abort()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"no connection: {error or type(error).__name__}") from None
        connection.opened = loop.time()
        return connection


class _Connection(asyncio.Protocol):
    """One connection, fed to the parser. Its public fields are the pool's."""

    def __init__(self) -> None:
        self.reusable = False
        self.opened = 0.0
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[HttpReply] | None = None

    async def exchange(self, request: bytes) -> HttpReply:
        self.reusable = False
        if self._transport.is_closing():
            raise Unreachable("the connection was closed")
        self._begin()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def abort(self) -> None:
        self.reusable = False
        self._transport.abort()

    def _begin(self) -> None:
        self._body = bytearray()
        self._received = 0
        self._retry_after = ""
        self._length_known = self._in_body = False

    # --- from the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():  # words that nobody asked for
            self.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(Garbled("the reply is not HTTP"))
        if self._received > MAX_REPLY_BYTES + _MAX_HEAD_BYTES or len(self._body) > MAX_REPLY_BYTES:
            self._fail(Garbled(f"the reply is larger than {MAX_REPLY_BYTES} bytes"))
        elif not self._in_body and self._received > _MAX_HEAD_BYTES and not self._waiter.done():
            self._fail(Garbled("the head of the reply does not end"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._in_body and not self._length_known and exc is None:  # the end of the connection is that of the body
            self._complete()
        self._fail(Unreachable(f"the connection broke: {exc or 'end of file'}"))

    # --- from the parser ---

    def on_message_begin(self) -> None:
        if self._waiter is not None and self._waiter.done():  # more than was asked for, in one piece with the reply
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-length" | b"transfer-encoding":
                self._length_known = True
            case b"retry-after":
                self._retry_after = value.decode(errors="replace")

    def on_headers_complete(self) -> None:
        self._in_body = self._parser.get_status_code() >= 200

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # it announces another
            return
        if self._waiter is not None and not self._waiter.done():
            self.reusable = self._parser.should_keep_alive() and self._length_known
            self._complete()

    def _complete(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(HttpReply(self._parser.get_status_code(), bytes(self._body), self._retry_after))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
