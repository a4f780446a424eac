"""The service as an ASGI 3 application, for other HTTP servers and for a place inside another application.

The routes, the checks and the words are those of our own listener, because the edge is. Here is only what `connection`
does there: a request out of messages, a reply into messages, and an end to work whose client has left.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Any

from decided import logs, settings
from decided.contract.types import Problem, encode
from decided.errors import BodyTooLarge, StartError, TimedOut, Unavailable
from decided.settings import Settings
from decided.web.assembly import Assembly, assemble
from decided.web.edge import CLIENT_LEFT, chosen_id
from decided.web.message import HttpRequest, Reply

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = logging.getLogger("decided")

_MAX_DRAINED_BYTES = 64 * 2**20


def create_app(chosen: Settings | None = None) -> "Application":
    """The application. Without settings, those of the environment."""
    return Application(settings.load({}) if chosen is None else chosen)


class Application:
    """The service, from the startup of its lifespan to the shutdown."""

    def __init__(self, chosen: Settings) -> None:
        self._settings = chosen
        self._assembly: Assembly | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(_Exchange(scope, receive, send, self._settings.request_timeout_s))
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close"})
            case other:
                raise ValueError(f"this application does not serve {other!r}")

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start, and stop at the end. Servers do so by themselves; an application in which this one is mounted enters
        it in a lifespan of its own."""
        if not log.hasHandlers():
            logs.configure(self._settings.log_level, self._settings.log_format, name=log.name)
        async with assemble(self._settings) as assembly:
            log.info("serving %s (loaded in %.2f s) as an application", assembly.model, assembly.load_seconds)
            if not assembly.keys.required:
                log.warning("no API key: anyone who reaches this application can ask. Set SERVICE_API_KEY")
            self._assembly = assembly
            try:
                yield
            finally:
                self._assembly = None

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception as error:  # raised, servers would take it for an application that has no lifespan
                if not isinstance(error, StartError):
                    log.exception("the service cannot start")
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, exchange: "_Exchange") -> None:
        if self._assembly is None:
            problem = Problem("this application was not started: its lifespan has to be run")
            request_id = chosen_id(exchange.headers.get(b"x-request-id", b""))
            exchange.write(exchange, Reply(Unavailable.status, encode(problem)), request_id)
        else:
            # A task of its own: the time limit and a client that leaves cancel it, which must not reach what is around.
            exchange.task = asyncio.create_task(self._assembly.edge.serve(exchange, exchange))
            await exchange.task
        await exchange.finish()


class _Exchange(HttpRequest):
    """One request and the way back for its reply: the two ends of what an ASGI server hands over."""

    def __init__(self, scope: Message, receive: Receive, send: Send, time_limit_s: float) -> None:
        super().__init__(scope["method"], _path(scope), _headers(scope))
        self.task: asyncio.Task[None] | None = None
        self._http_1 = scope.get("http_version", "1.1").startswith("1")
        self._receive = receive
        self._send = send
        self._time_limit_s = time_limit_s
        self._watching: asyncio.Task[None] | None = None
        self._whole: tuple[Reply, bytes] | None = None
        self._left = self._aborted = False

    # --- the request ---

    async def body(self, limit: int) -> bytes:
        body = bytearray()
        while not self.ended:
            body += await self._part()
            if self._left:
                raise asyncio.CancelledError(CLIENT_LEFT)
            if len(body) > limit:
                raise BodyTooLarge(limit)
        self._watching = asyncio.create_task(self._watch())
        return bytes(body)

    async def _part(self) -> bytes:
        message = await self._receive()
        self._left = message["type"] == "http.disconnect"
        self.ended = self._left or not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def _watch(self) -> None:
        """From the last byte of the body on, all there is to hear is that the client has left."""
        while not self._left:
            await self._part()
        if self.task is not None:
            self.task.cancel(CLIENT_LEFT)

    def _stop_watching(self) -> None:
        """For the end of a reply: servers tell of it in the words in which they tell that a client has left."""
        if self._watching is not None:
            self._watching.cancel()

    # --- the reply ---

    def write(self, request: HttpRequest, reply: Reply, request_id: bytes) -> None:
        self._whole = (reply, request_id)

    async def stream(self, request: HttpRequest, reply: Reply, request_id: bytes) -> None:
        await self._put(_start(reply, request_id))
        body: AsyncGenerator[bytes, None] = reply.body  # type: ignore[assignment]
        async with aclosing(body) as parts:
            async for part in parts:
                await self._put(_content(part, more=True))
        self._stop_watching()
        await self._put(_content(b"", more=False))

    def abort(self) -> None:
        self._aborted = True

    async def finish(self) -> None:
        """Send the reply that is there, or break off the one that cannot be ended."""
        self._stop_watching()
        if self._whole is not None:
            await self._send_whole(*self._whole)
        elif self._aborted and not self._left:
            raise ConnectionAbortedError("the reply was broken off")  # so a server learns that it has to hang up

    async def _send_whole(self, reply: Reply, request_id: bytes) -> None:
        body: bytes = reply.body  # type: ignore[assignment]
        framing = [] if reply.status == HTTPStatus.NOT_MODIFIED else [(b"content-length", b"%d" % len(body))]
        if self.method == "HEAD" or reply.status == HTTPStatus.NOT_MODIFIED:
            body = b""
        too_slow = reply.status == TimedOut.status and not self.ended
        if too_slow and self._http_1:
            framing.append((b"connection", b"close"))  # the rest of that body may never come: do not wait for it
        await self._send(_start(reply, request_id, *framing))
        if not self.ended and not too_slow:
            await self._send(_content(body, more=True))
            await self._drain()
            body = b""
        await self._send(_content(body, more=False))

    async def _drain(self) -> None:
        """Read what is left of a body that was refused: a client that sends all before it reads has to see why."""
        size = 0
        try:
            async with asyncio.timeout(self._time_limit_s):
                while not self.ended and size <= _MAX_DRAINED_BYTES:
                    size += len(await self._part())
        except TimeoutError:
            return

    async def _put(self, message: Message) -> None:
        """Send a part of a stream. A client that does not read is waited for, but not for ever."""
        try:
            async with asyncio.timeout(self._time_limit_s):
                await self._send(message)
        except TimeoutError:
            raise asyncio.CancelledError(CLIENT_LEFT) from None


def _start(reply: Reply, request_id: bytes, *framing: tuple[bytes, bytes]) -> Message:
    headers = [(b"content-type", reply.content_type), (b"x-request-id", request_id)]
    headers += [(b"x-typesafe-request-id", request_id), *reply.headers, *framing]
    return {"type": "http.response.start", "status": reply.status, "headers": headers}


def _content(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def _path(scope: Message) -> str:
    """The path below the place where the application is mounted, whether or not `path` has that place in it."""
    if b"%2f" in (scope.get("raw_path") or b"").lower():
        return ""  # an escaped slash separates nothing, but `path` no longer tells it from a plain one
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def _headers(scope: Message) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        known = headers.get(name)
        headers[name] = value if known is None else known + b", " + value
    return headers
