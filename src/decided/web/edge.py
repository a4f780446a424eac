"""The outermost wrapper: request id, clock, log line, metrics, and the last resort when all else fails.

It stands outside the routes so that no reply, not even a 500, leaves without its id.
"""

import asyncio
import logging
import os
import re
import time

from decided import tracing
from decided.contract.types import MAX_REQUEST_ID_CHARACTERS, Problem, encode
from decided.errors import DecidedError, InferenceFailed, MethodNotAllowed, TimedOut, Unavailable
from decided.logs import RequestLog
from decided.serving.metrics import Metrics
from decided.web.message import HttpRequest, Reply, ReplyWriter
from decided.web.routes import App
from decided.web.spans import Spans

log = logging.getLogger("decided")

CLIENT_CLOSED = 499  # the usual number, in logs and metrics, for a client that left; it is never sent
CLIENT_LEFT = "the client left"  # the message with which the connection cancels what nobody waits for
_ID_BYTES = 16
_IDS_DRAWN = 256  # at a time: asking the system for each would let go of the interpreter, and wait to get it back
_unused_ids: list[bytes] = []
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,%d}" % MAX_REQUEST_ID_CHARACTERS)


class Edge:
    """Serves a request, whatever happens."""

    def __init__(self, app: App, metrics: Metrics, request_log: RequestLog, spans: Spans | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._log = request_log
        self._spans = spans

    async def serve(self, request: HttpRequest, line: ReplyWriter) -> None:
        began = time.perf_counter()
        request_id = chosen_id(request.headers.get(b"x-request-id", b""))
        request.id = request_id.decode()
        # Without a trace too: the task of a request that had one may have begun this one.
        tracing.current.set(tracing.received(request.headers) if b"traceparent" in request.headers else None)
        span = self._spans.begin(request) if self._spans is not None else None
        status = CLIENT_CLOSED
        try:
            reply = await self._reply(request)
            if reply is None:
                return
            status = reply.status
            if isinstance(reply.body, bytes):
                line.write(request, reply, request_id)
            else:
                await self._stream(request, reply, request_id, line)
        finally:
            self._note(request, status, time.perf_counter() - began)
            if self._spans is not None and span is not None:
                self._spans.end(span, request, self._app.endpoint(request.path), status)

    async def _stream(self, request: HttpRequest, reply: Reply, request_id: bytes, line: ReplyWriter) -> None:
        """A reply that was begun can only be ended, or broken off so that the client notices."""
        try:
            await line.stream(request, reply, request_id)
        except asyncio.CancelledError:
            line.abort()
        except Exception:
            log.exception("request %s: broke off while sending", request.id)
            line.abort()

    def refuse(self, error: DecidedError, line: ReplyWriter, given_id: bytes) -> None:
        """Answer what never became a request."""
        request, request_id = HttpRequest("", "", {}), chosen_id(given_id)
        request.id = request_id.decode()
        line.write(request, self._refusal(error), request_id)
        self._note(request, error.status, 0.0)

    async def _reply(self, request: HttpRequest) -> Reply | None:
        """The reply, or none if nobody waits for it."""
        try:
            return await self._app.reply(request)
        except DecidedError as error:
            if isinstance(error, InferenceFailed):
                log.error("request %s: %s", request.id, error.reason, exc_info=error.__cause__)
                error.__cause__ = None  # its frames know the request, and the request this error: a circle
            if isinstance(error, TimedOut) and not request.ended:
                error = TimedOut(error.seconds, "the body did not arrive")
            return self._refusal(error)
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (CLIENT_LEFT,):
                return None
            return self._refusal(Unavailable("the server is stopping"))
        except Exception:
            log.exception("request %s: unexpected error", request.id)
            return self._refusal(DecidedError("internal server error"))

    def _refusal(self, error: DecidedError) -> Reply:
        if error.refusal:
            self._metrics.refused(error.refusal)
        headers = ((b"allow", error.allowed.encode()),) if isinstance(error, MethodNotAllowed) else error.headers
        return Reply(error.status, encode(Problem(error.detail)), headers=headers)

    def _note(self, request: HttpRequest, status: int, seconds: float) -> None:
        endpoint = self._app.endpoint(request.path)
        client = request.caller.client
        self._metrics.replied(endpoint, status, seconds, client)
        self._log.write(request.id, endpoint, status, seconds, request.questions, request.tokens, client)


def chosen_id(given: bytes) -> bytes:
    """The client's request id if it is one, else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else _new_id()


def _new_id() -> bytes:
    """Nobody can tell it from those before: to know the id of a request is to be one of those who saw it."""
    try:
        return _unused_ids.pop()
    except IndexError:
        drawn = os.urandom(_ID_BYTES * _IDS_DRAWN).hex().encode()
        ids = [drawn[begin : begin + 2 * _ID_BYTES] for begin in range(0, len(drawn), 2 * _ID_BYTES)]
        _unused_ids.extend(ids[1:])
        return ids[0]
