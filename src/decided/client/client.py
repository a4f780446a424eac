"""`decided.Client` and `decided.AsyncClient`: typed questions to any System One server, typed answers back.

They differ in how they wait, and in nothing else; what they send and read is in `protocol.py`.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from decided.client import protocol
from decided.client.protocol import BatchPlan, BatchResult, Chunk, ClientError, Questions, Response, ServerReply, Tries
from decided.contract.types import ModelEntry

if TYPE_CHECKING:
    import httpx2

_LONGEST_S = 1e9  # of a timeout: what a socket takes has an end
_STREAM = {"Accept": "application/x-ndjson, application/json;q=0.9"}


class _Options(ABC):
    """What both clients are told."""

    _http: "httpx2.Client | httpx2.AsyncClient"

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        model: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
    ) -> None:
        """`model` is for servers that have several. `timeout` is in seconds, for one try; there are up to `retries`
        more after 503, 429 and lost connections, after the pause that the server asks for. What none of these can be
        is a ValueError."""
        import httpx2  # here, so that a program that imports the client and does not use it does not wait for it

        if not isinstance(timeout, int | float) or not 0 < timeout <= _LONGEST_S:  # false for NaN too
            raise ValueError(f"timeout must be a finite number of seconds above 0, not {timeout!r}")
        if not isinstance(retries, int) or retries < 0:
            raise ValueError(f"retries must be a whole number from 0, not {retries!r}")
        self._model = model
        self._retries = retries
        self._caught: tuple[type[Exception], ...] = (ClientError, httpx2.RequestError, RuntimeError)
        self._too_late: tuple[type[Exception], ...] = (httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout)
        self._garbled: type[Exception] = httpx2.DecodingError
        self._open(
            base_url=read_address(base_url),
            headers=protocol.headers(api_key),
            timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0)),
            limits=httpx2.Limits(max_connections=None),
        )

    @abstractmethod
    def _open(self, **options: Any) -> None:
        """Make the HTTP client."""

    def _failure(self, error: Exception) -> ClientError:
        """What was caught, as the one kind of error that leaves a client."""
        if isinstance(error, ClientError):
            return error
        if isinstance(error, RuntimeError):  # what httpx raises once it is closed
            if not self._http.is_closed:
                raise error
            return ClientError(0, "closed", "the client is closed")
        if isinstance(error, self._garbled):
            return protocol.invalid_response(error)
        return protocol.lost(error, isinstance(error, self._too_late))

    def _plan(self, states: Iterable[Any], questions: Questions, explain: bool) -> BatchPlan:
        return BatchPlan(self._model, states, questions, self._retries, explain)


class Client(_Options):
    """Asks, and waits for the answer. May be shared by threads."""

    _http: "httpx2.Client"

    def _open(self, **options: Any) -> None:
        import httpx2

        self._http = httpx2.Client(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def ask(self, state: Any, questions: Questions, *, explain: bool = False) -> Response:
        """The answers to the questions about a state, which is a text or any JSON value. With `explain`, each has
        `evidence`: the parts of the state that it rests on, if the server can tell."""
        reply = self._send("POST", protocol.SINGLE, protocol.single(self._model, state, questions, explain))
        return protocol.response(reply.content, reply.request_id)

    def batch(
        self, states: Iterable[Any], questions: Questions, *, explain: bool = False
    ) -> Generator[BatchResult, None, None]:
        """The answers about any number of states, each as soon as it is there. A state that fails is a result with an
        error; what concerns all of them is raised. It holds a connection until it ends or is closed."""
        plan = self._plan(states, questions, explain)
        while (chunk := plan.chunk()) is not None:
            problem: ClientError | None = None
            try:
                yield from self._results(chunk)
            except self._caught as error:
                problem = self._failure(error)
            pause = plan.after(chunk, problem)
            yield from plan.late()
            time.sleep(pause)
        yield from plan.late()

    def models(self) -> list[ModelEntry]:
        return protocol.models(self._send("GET", protocol.MODELS, None))

    def _results(self, chunk: Chunk) -> Iterator[BatchResult]:
        with self._http.stream("POST", chunk.path, content=chunk.body, headers=_STREAM) as got:
            if _is_stream(got):
                for part in got.iter_bytes():
                    yield from chunk.take_part(part, got.headers.get("x-request-id", ""))
            else:
                yield from chunk.take_whole(ServerReply(got.status_code, got.headers, got.read()))

    def _send(self, method: str, path: str, body: bytes | None) -> ServerReply:
        tries = Tries(self._retries)
        while True:
            try:
                got = self._http.request(method, path, content=body)
                reply = ServerReply(got.status_code, got.headers, got.content)
                reply.checked()
                return reply
            except self._caught as error:
                time.sleep(tries.pause_after(self._failure(error)))


class AsyncClient(_Options):
    """The same, for programs with an event loop. Ask many things at once with one client."""

    _http: "httpx2.AsyncClient"
    _loop: asyncio.AbstractEventLoop | None = None

    def _open(self, **options: Any) -> None:
        import httpx2

        self._http = httpx2.AsyncClient(**options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        with suppress(RuntimeError):  # the connections of an event loop that has ended went with it
            await self._http.aclose()

    async def ask(self, state: Any, questions: Questions, *, explain: bool = False) -> Response:
        """See `Client.ask`."""
        reply = await self._send("POST", protocol.SINGLE, protocol.single(self._model, state, questions, explain))
        return protocol.response(reply.content, reply.request_id)

    async def batch(
        self, states: Iterable[Any], questions: Questions, *, explain: bool = False
    ) -> AsyncGenerator[BatchResult, None]:
        """See `Client.batch`."""
        plan = self._plan(states, questions, explain)
        while (chunk := plan.chunk()) is not None:
            problem: ClientError | None = None
            try:
                async with aclosing(self._results(chunk)) as results:
                    async for result in results:
                        yield result
            except self._caught as error:
                problem = self._failure(error)
            pause = plan.after(chunk, problem)
            for result in plan.late():
                yield result
            await asyncio.sleep(pause)
        for result in plan.late():
            yield result

    async def models(self) -> list[ModelEntry]:
        return protocol.models(await self._send("GET", protocol.MODELS, None))

    async def _results(self, chunk: Chunk) -> AsyncGenerator[BatchResult, None]:
        self._check_loop()
        async with self._http.stream("POST", chunk.path, content=chunk.body, headers=_STREAM) as got:
            if _is_stream(got):
                async for part in got.aiter_bytes():
                    for result in chunk.take_part(part, got.headers.get("x-request-id", "")):
                        yield result
            else:
                for result in chunk.take_whole(ServerReply(got.status_code, got.headers, await got.aread())):
                    yield result

    async def _send(self, method: str, path: str, body: bytes | None) -> ServerReply:
        tries = Tries(self._retries)
        while True:
            try:
                self._check_loop()
                got = await self._http.request(method, path, content=body)
                reply = ServerReply(got.status_code, got.headers, got.content)
                reply.checked()
                return reply
            except self._caught as error:
                await asyncio.sleep(tries.pause_after(self._failure(error)))

    def _check_loop(self) -> None:
        """The connections that are kept can be used in the event loop that opened them, and in no other."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            said = "an AsyncClient belongs to the event loop in which it was first used: make one for each"
            raise ClientError(0, "closed", said)


def read_address(base_url: str) -> "httpx2.URL":
    """The address that is asked, or ValueError."""
    import httpx2

    try:
        url = httpx2.URL(protocol.address(base_url))
        host = url.raw_host.decode().encode("idna")  # as a connection would, and fail, with an error of its own
    except (httpx2.InvalidURL, UnicodeError):
        host = b""
    if not host:
        raise ValueError(protocol.NO_ADDRESS)
    return url


def _is_stream(got: "httpx2.Response") -> bool:
    return got.status_code == 200 and got.headers.get("content-type", "").startswith("application/x-ndjson")
