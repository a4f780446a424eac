"""The routes: HTTP in, HTTP out, and the order in which a request is checked."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from decided.audit.line import Decision
from decided.contract.decoding import read_batch, read_outcomes, read_request
from decided.contract.openapi import document
from decided.contract.types import (
    BatchLineProblem,
    Health,
    ModelEntry,
    ModelList,
    Ready,
    Request,
    SingleResponse,
    encode,
)
from decided.engines.api import Verdict
from decided.errors import BodyTooLarge, DecidedError, InferenceFailed, MethodNotAllowed, NotFound, TimedOut
from decided.serving import metrics
from decided.serving.ledger import Ledger
from decided.serving.service import Decided, Service
from decided.serving.verdict_stream import VerdictStream
from decided.version import VERSION
from decided.web import bodies
from decided.web.keys import Keys
from decided.web.message import LINES, HttpRequest, Reply
from decided.web.playground import Playground

log = logging.getLogger("decided")

_PART_BYTES = 2**18


T = TypeVar("T")
Handler = Callable[[HttpRequest], Awaitable[Reply]]


class App:
    """Finds the route and answers. What it raises, the edge words."""

    def __init__(self, service: Service, keys: Keys, max_body_bytes: int, playground: Playground | None = None) -> None:
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
        if service.ledger is not None:
            self._routes["/v1/outcomes"] = ("POST", partial(self._outcomes, service.ledger))
        self._page_files: dict[str, tuple[str, Handler]] = {}
        if playground is not None:
            self._page_files = dict.fromkeys(playground.paths, ("GET", playground.reply))
            self._routes["/"] = self._page_files.pop("/")

    def endpoint(self, path: str) -> str:
        """The path as a metric label: one of ours, `/` for all that the page is made of, or `other`."""
        if path in self._routes:
            return path
        return "/" if path in self._page_files else "other"

    async def reply(self, request: HttpRequest) -> Reply:
        route = self._routes.get(request.path) or self._page_files.get(request.path)
        if route is None:
            raise NotFound
        method, handler = route
        if request.method != method and not (method == "GET" and request.method == "HEAD"):
            raise MethodNotAllowed("GET, HEAD" if method == "GET" else method)
        return await handler(request)

    async def _single(self, request: HttpRequest) -> Reply:
        found = await self._decide(request, read_request)
        self._remember(request, found)
        response = self._service.response(found.questions, found.verdicts[0])
        if self._service.audit is not None:
            await self._service.record([self._decision(request, 0, found, response)], request.caller)
        return Reply(200, encode(response))

    async def _batch(self, request: HttpRequest) -> Reply:
        if request.wants_lines():
            return await self._batch_lines(request)
        found = await self._decide(request, read_batch)
        self._remember(request, found)
        parts = self._batch_parts(request, found)
        first = await anext(parts)
        if len(first) >= _PART_BYTES:
            return Reply(200, _chain(first, parts))
        await parts.aclose()  # a generator that was begun and dropped would cost the loop a task of its own
        return Reply(200, first)

    async def _outcomes(self, ledger: Ledger, request: HttpRequest) -> Reply:
        self._check_key(request)
        receipt = await self._service.take_outcomes(ledger, lambda: self._read(request, read_outcomes), request.caller)
        return _json(receipt)

    def _check_key(self, request: HttpRequest) -> None:
        request.caller = self._keys.check(request.headers.get(b"authorization"))

    def _remember(self, request: HttpRequest, found: Decided) -> None:
        if self._service.ledger is not None:
            whose = request.caller.client, request.id
            for index, (state, verdict) in enumerate(zip(found.states, found.verdicts, strict=True)):
                self._service.ledger.remember(*whose, index, found.questions, verdict, state)

    async def _batch_lines(self, request: HttpRequest) -> Reply:
        self._check_key(request)
        read = _explaining(request, read_batch)
        decisions = await self._service.decide_each(lambda: self._read(request, read), request.caller)
        try:
            refusal = await decisions.begun()
        except BaseException:
            decisions.abandon()
            raise
        if refusal is not None and not isinstance(refusal, TimedOut):
            raise refusal
        return Reply(200, self._lines(request, decisions), LINES)

    async def _decide(self, request: HttpRequest, read: Callable[[bytes, int], Request]) -> Decided:
        self._check_key(request)
        read = _explaining(request, read)
        found = await self._service.decide(lambda: self._read(request, read), request.caller)
        request.questions = len(found.questions) * len(found.verdicts)
        request.tokens = found.usage.input_tokens + found.usage.output_tokens
        request.output_tokens = found.usage.output_tokens
        return found

    async def _read(self, request: HttpRequest, read: Callable[[bytes, int], T]) -> T:
        encoding = request.headers.get(b"content-encoding", b"")
        if not request.ended and request.declares_more_than(self._max_body_bytes):
            raise BodyTooLarge(self._max_body_bytes)
        received = await request.body(self._max_body_bytes)
        bodies.check_encoding(request.headers.get(b"content-type", b""), encoding)
        body = bodies.decode(received, encoding, self._max_body_bytes)
        return read(body, self._service.engine.card.max_options)

    async def _lines(self, request: HttpRequest, decisions: VerdictStream) -> AsyncGenerator[bytes, None]:
        """A line per state, as they are decided. Between two, others get the loop."""
        ledger, whose = self._service.ledger, (request.caller.client, request.id)
        async with aclosing(decisions.each()) as each:
            try:
                async for index, found in each:
                    if ledger is not None and isinstance(found, Verdict):
                        ledger.remember(*whose, index, decisions.questions, found, decisions.states[index])
                    yield await self._line(request, decisions, index, found)
                    await asyncio.sleep(0)
            finally:
                request.questions, request.tokens = decisions.answered, decisions.tokens
                request.output_tokens = decisions.output_tokens

    async def _line(
        self, request: HttpRequest, decisions: VerdictStream, index: int, found: Verdict | DecidedError
    ) -> bytes:
        audit = self._service.audit
        if isinstance(found, Verdict):
            try:
                response = self._service.response(decisions.questions, found)
                if audit is not None:
                    await audit.record([self._decision(request, index, decisions, response)])
                return b'{"index":%d,%b\n' % (index, encode(response)[1:])
            except DecidedError as error:
                found = error
        if isinstance(found, InferenceFailed):
            log.error("request %s: states[%d]: %s", request.id, index, found.reason, exc_info=found.__cause__)
        return encode(BatchLineProblem(index, found.status, found.detail)) + b"\n"

    async def _batch_parts(self, request: HttpRequest, found: Decided) -> AsyncGenerator[bytes, None]:
        """The batch response, in one part if it is small. Between two states, others get the loop."""
        service = self._service
        model, audit = service.engine.card.name, service.audit
        unrecorded: list[Decision] = []
        part = bytearray(b'{"model":' + encode(model) + b',"results":[')
        for index, response in enumerate(service.responses(found)):
            if index:
                part += b","
                await asyncio.sleep(0)
            part += encode(response)
            if audit is not None:
                unrecorded.append(self._decision(request, index, found, response))
            if len(part) >= _PART_BYTES:
                if unrecorded:
                    await service.record(unrecorded, request.caller)
                    unrecorded = []
                yield bytes(part)
                part.clear()
        part += b'],"total_usage":' + encode(found.usage) + b"}"
        if unrecorded:
            await service.record(unrecorded, request.caller)
        yield bytes(part)

    def _decision(
        self, request: HttpRequest, index: int, asked: Decided | VerdictStream, response: SingleResponse
    ) -> Decision:
        """What the audit log has of a response."""
        about = request.id, request.caller.client, index, asked.states[index]
        return Decision(
            time.time(), *about, asked.questions, response.answers, self._service.thresholds(asked.questions, response)
        )

    async def _models(self, request: HttpRequest) -> Reply:
        card = self._service.engine.card
        profiles = self._service.profiles.identities if self._service.profiles is not None else []
        entry = ModelEntry(
            card.name,
            self._service.description,
            card.release_date,
            card.kind,
            profiles,
            self._service.ledger is not None,
        )
        return _json(ModelList([entry]))

    async def _health(self, request: HttpRequest) -> Reply:
        engine, in_flight = self._service.engine, self._service.in_flight
        card = engine.card
        return _json(Health("ok", card.name, card.kind, card.device, VERSION, in_flight, engine.queue_depth()))

    async def _ready(self, request: HttpRequest) -> Reply:
        await self._service.check()
        return _json(Ready(True, upstream=self._service.engine.remote))

    async def _metrics(self, request: HttpRequest) -> Reply:
        return Reply(200, self._service.metrics.render(), metrics.CONTENT_TYPE)

    async def _openapi(self, request: HttpRequest) -> Reply:
        self._check_key(request)
        return Reply(200, document(self._keys.required, self._service.ledger is not None))


def _explaining(request: HttpRequest, read: Callable[..., Request]) -> Callable[[bytes, int], Request]:
    """The header is for clients that cannot add a field to the body."""
    return partial(read, explain=True) if request.headers.get(b"x-explain") == b"1" else read


def _json(body: object) -> Reply:
    return Reply(200, encode(body))


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for part in rest:
            yield part
