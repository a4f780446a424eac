"""The outermost wrapper: request id, clock, log line, metrics, and the last resort when all else fails.

It stands outside the routes so that no reply, not even a 500, leaves without its id.
"""

import asyncio
import logging
import random
import re
import time

from decided.app import App
from decided.call import Call, Line, Reply
from decided.contract import MAX_REQUEST_ID_CHARACTERS, Problem, encode
from decided.errors import DecidedError, InferenceFailed, MethodNotAllowed, Unavailable, Unreadable
from decided.logs import RequestLog
from decided.metrics import Metrics

log = logging.getLogger("decided")

CLIENT_CLOSED = 499  # the usual number, in logs and metrics, for a client that left; it is never sent
CLIENT_LEFT = "the client left"  # the message with which the connection cancels what nobody waits for
_ids = random.Random()  # noqa: S311 - an id is no secret, and asking the system for each would switch threads
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,%d}" % MAX_REQUEST_ID_CHARACTERS)


class Edge:
    """Serves a call, whatever happens."""

    def __init__(self, app: App, metrics: Metrics, request_log: RequestLog) -> None:
        self._app = app
        self._metrics = metrics
        self._log = request_log

    async def serve(self, call: Call, line: Line) -> None:
        began = time.perf_counter()
        request_id = chosen_id(call.headers.get(b"x-request-id", b""))
        call.id = request_id.decode()
        status = CLIENT_CLOSED
        try:
            reply = await self._reply(call)
            if reply is None:
                return
            status = reply.status
            if isinstance(reply.body, bytes):
                line.write(call, reply, request_id)
            else:
                await self._stream(call, reply, request_id, line)
        finally:
            self._note(call, status, time.perf_counter() - began)

    async def _stream(self, call: Call, reply: Reply, request_id: bytes, line: Line) -> None:
        """A reply that was begun can only be ended, or broken off so that the client notices."""
        try:
            await line.stream(call, reply, request_id)
        except asyncio.CancelledError:
            line.abort()
        except Exception:
            log.exception("request %s: broke off while sending", call.id)
            line.abort()

    def refuse(self, reason: str, line: Line) -> None:
        """Answer what never became a call."""
        call, request_id = Call("", "", {}), chosen_id(b"")
        call.id = request_id.decode()
        line.write(call, self._refusal(Unreadable(reason)), request_id)
        self._note(call, Unreadable.status, 0.0)

    async def _reply(self, call: Call) -> Reply | None:
        """The reply, or none if nobody waits for it."""
        try:
            return await self._app.reply(call)
        except DecidedError as error:
            if isinstance(error, InferenceFailed):
                log.error("request %s: %s", call.id, error.reason, exc_info=error.__cause__)
            return self._refusal(error)
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (CLIENT_LEFT,):
                return None
            return self._refusal(Unavailable("the server is stopping"))
        except Exception:
            log.exception("request %s: unexpected error", call.id)
            return self._refusal(DecidedError("internal server error"))

    def _refusal(self, error: DecidedError) -> Reply:
        if error.refusal:
            self._metrics.refused(error.refusal)
        headers = ((b"allow", error.allowed.encode()),) if isinstance(error, MethodNotAllowed) else error.headers
        return Reply(error.status, encode(Problem(error.detail)), headers=headers)

    def _note(self, call: Call, status: int, seconds: float) -> None:
        endpoint = self._app.endpoint(call.path)
        self._metrics.replied(endpoint, status, seconds)
        self._log.write(call.id, endpoint, status, seconds, call.questions, call.tokens)


def chosen_id(given: bytes) -> bytes:
    """The client's request id if it is one, else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else b"%032x" % _ids.getrandbits(128)
