"""The routes: HTTP in, HTTP out, and the order in which a request is checked."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from decided import bodies, metrics
from decided.call import LINES, Call, Reply
from decided.contract import (
    BatchLine,
    BatchLineProblem,
    Health,
    ModelEntry,
    ModelList,
    Question,
    Ready,
    Request,
    encode,
)
from decided.decisions import Decisions
from decided.engine import Verdict
from decided.errors import BodyTooLarge, DecidedError, InferenceFailed, MethodNotAllowed, NotFound, TimedOut
from decided.keys import Keys
from decided.openapi import document
from decided.playground import Playground
from decided.reading import read_batch, read_request
from decided.service import Outcome, Service
from decided.version import VERSION

log = logging.getLogger("decided")

_PART_BYTES = 2**18


Handler = Callable[[Call], Awaitable[Reply]]


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
        self._page_files: dict[str, tuple[str, Handler]] = {}
        if playground is not None:
            self._page_files = dict.fromkeys(playground.paths, ("GET", playground.reply))
            self._routes["/"] = self._page_files.pop("/")

    def endpoint(self, path: str) -> str:
        """The path as a metric label: one of ours, `/` for all that the page is made of, or `other`."""
        if path in self._routes:
            return path
        return "/" if path in self._page_files else "other"

    async def reply(self, call: Call) -> Reply:
        route = self._routes.get(call.path) or self._page_files.get(call.path)
        if route is None:
            raise NotFound
        method, handler = route
        if call.method != method and not (method == "GET" and call.method == "HEAD"):
            raise MethodNotAllowed("GET, HEAD" if method == "GET" else method)
        return await handler(call)

    async def _single(self, call: Call) -> Reply:
        outcome = await self._decide(call, read_request)
        return Reply(200, encode(self._service.response(outcome.questions, outcome.verdicts[0])))

    async def _batch(self, call: Call) -> Reply:
        if call.wants_lines():
            return await self._batch_lines(call)
        outcome = await self._decide(call, read_batch)
        parts = self._batch_parts(outcome)
        first = await anext(parts)
        return Reply(200, first if len(first) < _PART_BYTES else _chain(first, parts))

    async def _batch_lines(self, call: Call) -> Reply:
        self._keys.check(call.headers.get(b"authorization"))
        decisions = await self._service.decide_each(lambda: self._read(call, read_batch))
        try:
            refusal = await decisions.begun()
        except BaseException:
            decisions.abandon()
            raise
        if refusal is not None and not isinstance(refusal, TimedOut):
            raise refusal
        return Reply(200, self._lines(call, decisions), LINES)

    async def _decide(self, call: Call, read: Callable[[bytes, int], Request]) -> Outcome:
        self._keys.check(call.headers.get(b"authorization"))
        outcome = await self._service.decide(lambda: self._read(call, read))
        call.questions = len(outcome.questions) * len(outcome.verdicts)
        call.tokens = outcome.usage.input_tokens + outcome.usage.output_tokens
        return outcome

    async def _read(self, call: Call, read: Callable[[bytes, int], Request]) -> Request:
        encoding = call.headers.get(b"content-encoding", b"")
        if call.declares_more_than(self._max_body_bytes):
            raise BodyTooLarge(self._max_body_bytes)
        received = await call.body(self._max_body_bytes)
        bodies.check_encoding(call.headers.get(b"content-type", b""), encoding)
        body = bodies.decode(received, encoding, self._max_body_bytes)
        return read(body, self._service.engine.card.max_options)

    async def _lines(self, call: Call, decisions: Decisions) -> AsyncGenerator[bytes, None]:
        """A line per state, as they are decided. Between two, others get the loop."""
        async with aclosing(decisions.each()) as each:
            try:
                async for index, found in each:
                    yield encode(self._line(call, decisions.questions, index, found)) + b"\n"
                    await asyncio.sleep(0)
            finally:
                call.questions, call.tokens = decisions.answered, decisions.tokens

    def _line(
        self, call: Call, questions: dict[str, Question], index: int, found: Verdict | DecidedError
    ) -> BatchLine | BatchLineProblem:
        if isinstance(found, Verdict):
            try:
                response = self._service.response(questions, found)
                return BatchLine(index, response.model, response.answers, response.usage, response.warnings)
            except DecidedError as error:
                found = error
        if isinstance(found, InferenceFailed):
            log.error("request %s: states[%d]: %s", call.id, index, found.reason, exc_info=found.__cause__)
        return BatchLineProblem(index, found.status, found.detail)

    async def _batch_parts(self, outcome: Outcome) -> AsyncGenerator[bytes, None]:
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
        entry = ModelEntry(card.name, self._service.description, card.release_date, card.kind)
        return _json(ModelList([entry]))

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


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for part in rest:
            yield part
