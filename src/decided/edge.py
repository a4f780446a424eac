"""The outermost wrapper: request id, clock, log line, metrics, and the last resort when all else fails.

It stands outside the routes so that no reply, not even a 500, leaves without its id.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from decided.app import App, Call, ClientGone, Receive, Reply, Scope
from decided.contract import MAX_REQUEST_ID_CHARACTERS, Problem, encode
from decided.errors import DecidedError, Headers, InferenceFailed, MethodNotAllowed, TimedOut, Unavailable, Unreadable
from decided.logs import RequestLine, RequestLog
from decided.metrics import Metrics

log = logging.getLogger("decided")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CLIENT_CLOSED = 499  # the usual number, in logs and metrics, for a client that left; it is never sent
CLIENT_LEFT = "the client left"  # the message with which the connection cancels what nobody waits for
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,%d}" % MAX_REQUEST_ID_CHARACTERS)


class Edge:
    """The ASGI application."""

    def __init__(self, app: App, metrics: Metrics, request_log: RequestLog, write_timeout_s: float) -> None:
        self._app = app
        self._metrics = metrics
        self._log = request_log
        self._write_timeout_s = write_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        call = Call(scope, receive)
        request_id = chosen_id(call.headers.get(b"x-request-id", b""))
        status = CLIENT_CLOSED
        try:
            reply = await self._reply(call, request_id)
            status = reply.status
            await self._send(reply, call, request_id, send)
        except ClientGone:
            pass
        finally:
            self._note(request_id, self._app.endpoint(scope["path"]), status, began, call.questions, call.tokens)

    def refuse_unparsed(self, message: str) -> bytes:
        """The whole reply, as bytes, to what never became a request."""
        reply = _refusal(Unreadable(message))
        request_id = chosen_id(b"")
        headers = (*_headers(reply, request_id), (b"connection", b"close"))
        self._note(request_id, "other", reply.status, time.perf_counter(), 0, 0)
        lines = [b"HTTP/1.1 400 Bad Request", *(name + b": " + value for name, value in headers)]
        return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(reply.body)  # type: ignore[arg-type]

    async def _reply(self, call: Call, request_id: bytes) -> Reply:
        try:
            return await self._app.reply(call)
        except ClientGone:
            raise
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (CLIENT_LEFT,):
                raise ClientGone from None
            return _refusal(Unavailable("the server is stopping"))  # told twice to stop: nobody may wait any longer
        except InferenceFailed as error:
            log.error("request %s: %s", request_id.decode(), error.reason, exc_info=error.__cause__)
            return _refusal(error)
        except DecidedError as error:
            return _refusal(error)
        except Exception:
            log.exception("request %s: unexpected error", request_id.decode())
            return _refusal(DecidedError("internal server error"))

    async def _send(self, reply: Reply, call: Call, request_id: bytes, send: Send) -> None:
        headers = _headers(reply, request_id)
        if reply.status == TimedOut.status and not call.body_ended:
            headers += ((b"connection", b"close"),)  # the rest of that body may never come
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if isinstance(reply.body, bytes):
            await send({"type": "http.response.body", "body": reply.body})
            return
        async with asyncio.timeout(self._write_timeout_s):
            async for part in reply.body:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _note(self, request_id: bytes, endpoint: str, status: int, began: float, questions: int, tokens: int) -> None:
        seconds = time.perf_counter() - began
        self._metrics.replied(endpoint, status, seconds)
        self._log.write(RequestLine(request_id.decode(), endpoint, status, round(seconds * 1000, 2), questions, tokens))


def _refusal(error: DecidedError) -> Reply:
    headers = ((b"allow", error.allowed.encode()),) if isinstance(error, MethodNotAllowed) else error.headers
    return Reply(error.status, encode(Problem(error.detail)), headers=headers)


def _headers(reply: Reply, request_id: bytes) -> Headers:
    headers = (
        (b"content-type", reply.content_type),
        (b"x-request-id", request_id),
        (b"x-typesafe-request-id", request_id),
        *reply.headers,
    )
    if isinstance(reply.body, bytes):
        headers += ((b"content-length", str(len(reply.body)).encode()),)
    return headers


def chosen_id(given: bytes) -> bytes:
    """The client's request id if it is one, else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16).encode()
