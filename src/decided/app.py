"""The routes: HTTP in, HTTP out, and the order in which a request is checked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from decided import bodies, metrics
from decided.contract import (
    Health,
    ModelEntry,
    ModelList,
    Ready,
    Request,
    encode,
    read_batch,
    read_object,
    read_request,
)
from decided.errors import BodyTooLarge, Headers, MethodNotAllowed, NotFound
from decided.keys import Keys
from decided.openapi import document
from decided.service import Outcome, Service
from decided.version import VERSION

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

JSON = b"application/json"
_PART_BYTES = 2**18


class Reply(NamedTuple):
    """A response. A body of parts is sent as they come."""

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: bytes = JSON
    headers: Headers = ()


class Call:
    """One HTTP request on its way through the routes, with what the log wants to know of it."""

    __slots__ = ("body_ended", "headers", "questions", "receive", "scope", "tokens")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.body_ended = False
        self.questions = 0
        self.tokens = 0

    def declares_more_than(self, limit: int) -> bool:
        declared = self.headers.get(b"content-length", b"")
        return declared.isdigit() and int(declared[:20]) > limit

    async def body(self, limit: int) -> bytes:
        """The whole body, of at most `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise BodyTooLarge(limit)
            parts.append(part)
            if not message.get("more_body", False):
                self.body_ended = True
                return parts[0] if len(parts) == 1 else b"".join(parts)


class ClientGone(Exception):
    """The client left before its answer."""


Handler = Callable[[Call], Awaitable[Reply]]


class App:
    """Finds the route and answers. What it raises, the edge words."""

    def __init__(self, service: Service, keys: Keys, max_body_bytes: int) -> None:
        self._service = service
        self._keys = keys
        self._max_body_bytes = max_body_bytes
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/systemone": ("POST", self._single),
            "/v1/systemone/batch": ("POST", self._batch),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics),
            "/openapi.json": ("GET", self._openapi),
        }

    def endpoint(self, path: str) -> str:
        """The path as a metric label: one of ours, or `other`."""
        return path if path in self._routes else "other"

    async def reply(self, call: Call) -> Reply:
        route = self._routes.get(call.scope["path"])
        if route is None:
            raise NotFound
        method, handler = route
        if call.scope["method"] != method and not (method == "GET" and call.scope["method"] == "HEAD"):
            raise MethodNotAllowed("GET, HEAD" if method == "GET" else method)
        return await handler(call)

    async def _single(self, call: Call) -> Reply:
        outcome = await self._decide(call, read_request)
        return Reply(200, encode(next(self._service.responses(outcome))))

    async def _batch(self, call: Call) -> Reply:
        outcome = await self._decide(call, read_batch)
        parts = self._batch_parts(outcome)
        first = await anext(parts)
        return Reply(200, first if len(first) < _PART_BYTES else _chain(first, parts))

    async def _decide(self, call: Call, read: Callable[[dict[str, Any], int], Request]) -> Outcome:
        self._keys.check(call.headers.get(b"authorization"))

        async def read_body() -> Request:
            encoding = call.headers.get(b"content-encoding", b"")
            if call.declares_more_than(self._max_body_bytes):
                raise BodyTooLarge(self._max_body_bytes)
            received = await call.body(self._max_body_bytes)
            bodies.check_encoding(call.headers.get(b"content-type", b""), encoding)
            body = bodies.decode(received, encoding, self._max_body_bytes)
            return read(read_object(body), self._service.engine.card.max_options)

        outcome = await self._service.decide(read_body)
        call.questions = outcome.question_count
        call.tokens = outcome.usage.input_tokens + outcome.usage.output_tokens
        return outcome

    async def _batch_parts(self, outcome: Outcome) -> AsyncIterator[bytes]:
        """The batch response, in one part if it is small. Between two states, others get the loop."""
        model = self._service.engine.card.name
        part = bytearray(b'{"model":' + encode(model) + b',"results":[')
        for index, response in enumerate(self._service.responses(outcome)):
            if index:
                part += b","
                await asyncio.sleep(0)
            part += encode(response)
            if len(part) >= _PART_BYTES:
                yield bytes(part)
                part.clear()
        part += b'],"total_usage":' + encode(outcome.usage) + b"}"
        yield bytes(part)

    async def _models(self, call: Call) -> Reply:
        card = self._service.engine.card
        return _json(ModelList([ModelEntry(card.name, card.description, card.release_date, card.kind)]))

    async def _health(self, call: Call) -> Reply:
        engine, in_flight = self._service.engine, self._service.in_flight
        card = engine.card
        return _json(Health("ok", card.name, card.kind, card.device, VERSION, in_flight, engine.queue_depth()))

    async def _ready(self, call: Call) -> Reply:
        await self._service.engine.check()
        return _json(Ready(True, upstream=self._service.engine.remote))

    async def _metrics(self, call: Call) -> Reply:
        return Reply(200, self._service.metrics.render(), metrics.CONTENT_TYPE)

    async def _openapi(self, call: Call) -> Reply:
        self._keys.check(call.headers.get(b"authorization"))
        return Reply(200, document())


def _json(body: object) -> Reply:
    return Reply(200, encode(body))


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
