"""Who decides for a command: the model, loaded into this process as the server loads it, or a running server.

Both give the same results for the same states, one by one as they are there. What only a state is to blame for is a
result with an error; whatever makes all further asking useless is raised as ModelError.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
from msgspec import structs

from decided.client.client import AsyncClient, read_address
from decided.client.protocol import BatchResult, ClientError, Response, Tries, failure
from decided.contract.decoding import quote, read_state
from decided.contract.types import MAX_OPTIONS, Question, Request, encode
from decided.engines.api import Engine, Verdict
from decided.errors import DecidedError, InputError, Invalid, ModelError, Unavailable
from decided.hardware import physical_cores
from decided.serving.metrics import Metrics
from decided.serving.service import Service
from decided.serving.start import load_profiles, start_engine
from decided.serving.verdict_stream import VerdictStream
from decided.settings import Settings

Questions = dict[str, Question]

KEY_PLACE = "SERVICE_API_KEY, or give --api-key"
"""Where a server's key is looked for."""
_TIMEOUT_S = 300.0


class Backend(Protocol):
    model: str
    description: str
    max_options: int
    rows_in_flight: int
    """How many states to ask about at a time: enough to keep it busy, few enough to lose little when interrupted."""
    least_in_flight: int
    """How many keep it busy however long each takes."""

    def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        """A result for each of the states, in any order."""

    async def close(self) -> None: ...


async def open_backend(
    settings: Settings, server: str | None, api_key: str | None, key_place: str = KEY_PLACE, *, retries: int = 6
) -> Backend:
    """The server at an address; without one, the model that the settings name. An engine or a server that is away is
    tried again, six times in half a minute."""
    if server is not None:
        return await _Server.open(server, api_key or settings.api_key, key_place, retries)
    return await _InProcess.open(settings, retries)


def check_address(flag: str, url: str) -> None:
    """What is no address is a wrong flag, and not a server that is away."""
    try:
        read_address(url)
    except ValueError:
        raise InputError(f"{flag} must be an address such as http://127.0.0.1:8000, not {url!r}") from None


async def open_engine(settings: Settings) -> Engine:
    """The engine that the settings name, there and ready: a server starts without its remote engine and waits for it,
    but nobody waits for a command."""
    engine = await start_engine(settings, Metrics())
    try:
        await engine.check()
    except Unavailable as error:
        await engine.close()
        raise ModelError(str(error)) from None
    return engine


def check_options(backend: Backend, questions: Questions) -> None:
    """Not every model can tell as many options apart as a request may have."""
    for name, question in questions.items():
        if len(question.keys()) > backend.max_options:
            raise InputError(f"question {quote(name)}: too many options for this model, at most {backend.max_options}")


class _Server:
    max_options = MAX_OPTIONS
    rows_in_flight = 128
    least_in_flight = 4

    def __init__(self, client: AsyncClient, url: str, key_place: str, model: str, description: str) -> None:
        self.model = model
        self.description = description
        self._client = client
        self._url = url
        self._key_place = key_place

    @classmethod
    async def open(cls, url: str, api_key: str | None, key_place: str, retries: int) -> "_Server":
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request
        check_address("--server", url)
        try:
            client = AsyncClient(url, api_key, timeout=_TIMEOUT_S, retries=retries)
        except ValueError as error:  # a key that is none
            raise InputError(f"the server at {url}: {error}") from None
        try:
            models = await client.models()
            names, descriptions = ([getattr(one, part) for one in models] for part in ("name", "description"))
            return cls(client, url, key_place, ", ".join(names), " ".join(descriptions))
        except ClientError as error:
            await client.close()
            raise ModelError(_told(url, error, key_place)) from None

    async def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        try:
            async with aclosing(self._client.batch(map(_as_json, states), questions)) as results:
                async for result in results:
                    yield result
        except ClientError as error:
            kind = InputError if error.status == 422 else ModelError  # it can be asked, but not these questions
            raise kind(_told(self._url, error, self._key_place)) from None

    async def close(self) -> None:
        await self._client.close()


def _told(url: str, error: ClientError, key_place: str) -> str:
    """With where the key goes, if it is the key that was wrong or missing."""
    return f"the server at {url}: {error}" + (f": put the key in {key_place}" if error.status == 401 else "")


def _as_json(state: Any) -> Any:
    """A row of a table may hold NaN or bytes, which a client refuses: what the model in this process reads of them."""
    return state if isinstance(state, str) else msgspec.json.decode(encode(state))


class _InProcess:
    def __init__(self, engine: Engine, settings: Settings, retries: int) -> None:
        self._retries = retries
        self.model = engine.card.name
        self.max_options = engine.card.max_options
        self.rows_in_flight = 128 if engine.remote or engine.card.device != "cpu" else 32
        self.least_in_flight = min(self.rows_in_flight, max(4, settings.threads or physical_cores()))
        self._engine = engine
        profiles = load_profiles(settings, engine)
        self._service = Service(engine, Metrics(), 1, settings.request_timeout_s, settings.temperature, profiles)
        self.description = self._service.description

    @classmethod
    async def open(cls, settings: Settings, retries: int) -> "_InProcess":
        engine = await open_engine(settings)
        try:
            return cls(engine, settings, retries)
        except InputError:
            await engine.close()
            raise

    async def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        waiting: dict[int, str] = {}
        for index, state in enumerate(states):
            try:
                waiting[index] = read_state(state)
            except Invalid as error:
                yield BatchResult(index, None, failure(error.status, str(error)))
        tries = Tries(self._retries)
        while waiting:
            absent: Unavailable | None = None
            numbers = list(waiting)
            async with aclosing(self._decide(list(waiting.values()), questions)) as each:
                async for place, found in each:
                    if isinstance(found, Unavailable):
                        absent = found
                        continue
                    del waiting[numbers[place]]
                    yield self._result(numbers[place], questions, found)
            if absent is not None:
                if len(waiting) < len(numbers):
                    tries.reset()
                try:
                    await asyncio.sleep(tries.pause_after(failure(absent.status, str(absent))))
                except ClientError:
                    raise ModelError(str(absent)) from None

    def _decide(
        self, states: Sequence[str], questions: Questions
    ) -> AsyncGenerator[tuple[int, Verdict | DecidedError], None]:
        decisions = VerdictStream(questions, states, lambda _questions, _verdict: None)

        async def emit_each() -> DecidedError | None:
            try:
                await self._service.ask_each(Request(list(states), questions), decisions.emit)
            except DecidedError as error:
                return error
            return None

        decisions.fill_from(asyncio.get_running_loop().create_task(emit_each()))
        return decisions.each()

    def _result(self, index: int, questions: Questions, found: Verdict | DecidedError) -> BatchResult:
        if isinstance(found, Verdict):
            try:
                made = self._service.response(questions, found)
                return BatchResult(index, Response(**structs.asdict(made)), None)
            except DecidedError as error:
                found = error
        return BatchResult(index, None, failure(found.status, found.in_full))

    async def close(self) -> None:
        await self._engine.close()
