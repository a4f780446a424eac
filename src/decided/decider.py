"""Who decides for a command: the model, loaded into this process as the server loads it, or a running server.

Both give the same results for the same states, one by one as they are there. What only a state is to blame for is a
result with an error; whatever makes all further asking useless is raised as ModelError.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from decided.client import AsyncClient
from decided.contract import MAX_OPTIONS, Question
from decided.decisions import Decisions
from decided.engine import Engine, Verdict
from decided.errors import DecidedError, InferenceFailed, InputError, Invalid, ModelError, Unavailable
from decided.exchange import BatchResult, ClientError, Response, Tries, failure
from decided.metrics import Metrics
from decided.reading import quoted, read_state
from decided.server import started_engine
from decided.service import Service
from decided.settings import Settings

Questions = dict[str, Question]

_TIMEOUT_S = 300.0


class Decider(Protocol):
    model: str
    max_options: int

    def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        """A result for each of the states, in any order."""

    async def close(self) -> None: ...


async def opened(settings: Settings, server: str | None, api_key: str | None, retries: int = 6) -> Decider:
    """The server at an address; without one, the model that the settings name. An engine or a server that is away is
    tried again, six times in half a minute."""
    if server is not None:
        return await _Server.opened(server, api_key or settings.api_key, retries)
    return await _InProcess.opened(settings, retries)


def check_options(decider: Decider, questions: Questions) -> None:
    """Not every model can tell as many options apart as a request may have."""
    for name, question in questions.items():
        if len(question.keys()) > decider.max_options:
            raise InputError(f"question {quoted(name)}: too many options for this model, at most {decider.max_options}")


class _Server:
    max_options = MAX_OPTIONS

    def __init__(self, client: AsyncClient, url: str, model: str) -> None:
        self.model = model
        self._client = client
        self._url = url

    @classmethod
    async def opened(cls, url: str, api_key: str | None, retries: int) -> "_Server":
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request
        try:
            client = AsyncClient(url, api_key, timeout=_TIMEOUT_S, retries=retries)
        except Exception as error:  # an address that is none
            raise ModelError(f"--server {url}: {error}") from None
        try:
            models = await client.models()
            return cls(client, url, ", ".join(model.name for model in models))
        except ClientError as error:
            await client.close()
            raise ModelError(f"--server {url}: {error}") from None

    async def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        try:
            async with aclosing(self._client.batch(states, questions)) as results:
                async for result in results:
                    yield result
        except ClientError as error:
            raise ModelError(f"--server {self._url}: {error}") from None

    async def close(self) -> None:
        await self._client.close()


class _InProcess:
    def __init__(self, engine: Engine, settings: Settings, retries: int) -> None:
        self._retries = retries
        self.model = engine.card.name
        self.max_options = engine.card.max_options
        self._engine = engine
        self._service = Service(engine, Metrics(), 1, settings.request_timeout_s, settings.temperature)

    @classmethod
    async def opened(cls, settings: Settings, retries: int) -> "_InProcess":
        engine = await started_engine(settings, Metrics())
        try:
            await engine.check()  # a server starts without its remote engine and waits for it; here nobody waits
        except Unavailable as error:
            await engine.close()
            raise ModelError(str(error)) from None
        return cls(engine, settings, retries)

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
            async with aclosing(self._decided(list(waiting.values()), questions)) as each:
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

    def _decided(
        self, states: Sequence[str], questions: Questions
    ) -> AsyncGenerator[tuple[int, Verdict | DecidedError], None]:
        decisions = Decisions(questions, len(states), lambda _questions, _verdict: None)

        async def tell_each() -> DecidedError | None:
            try:
                await self._engine.decide_each(states, list(questions.values()), decisions.tell)
            except DecidedError as error:
                return error
            return None

        decisions.fill_from(asyncio.get_running_loop().create_task(tell_each()))
        return decisions.each()

    def _result(self, index: int, questions: Questions, found: Verdict | DecidedError) -> BatchResult:
        if isinstance(found, Verdict):
            try:
                made = self._service.response(questions, found)
                return BatchResult(index, Response(made.model, made.answers, made.usage, made.warnings), None)
            except DecidedError as error:
                found = error
        reason = f"{found}: {found.reason}" if isinstance(found, InferenceFailed) else str(found)
        return BatchResult(index, None, failure(found.status, reason))

    async def close(self) -> None:
        await self._engine.close()
