"""What the tests of our own client share: both of its forms, and servers that give scripted replies."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from decided import AsyncClient, BatchResult, Noul, Response
from tests.support.scripted_server import ReceivedRequest, Scripted, scripted_server

YES = {"q": Noul("Is it so?")}
ANSWER: dict[str, Any] = {
    "model": "m",
    "answers": {"q": {"type": "noul", "noul": 0.75}},
    "usage": {"input_tokens": 1, "output_tokens": 0},
}


class Asker(Protocol):
    """What both clients can do, so that each test runs with both."""

    def ask(self, state: Any, questions: Any, *, explain: bool = False) -> Response: ...
    def batch(self, states: Iterable[Any], questions: Any, *, explain: bool = False) -> Iterator[BatchResult]: ...
    def models(self) -> Any: ...


class Waiting:
    """The asynchronous client, made to wait."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = AsyncClient(*args, **options)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def ask(self, state: Any, questions: Any, *, explain: bool = False) -> Response:
        return self._loop.run_until_complete(self._client.ask(state, questions, explain=explain))

    def models(self) -> Any:
        return self._loop.run_until_complete(self._client.models())

    def batch(self, states: Iterable[Any], questions: Any, *, explain: bool = False) -> Iterator[BatchResult]:
        results = self._client.batch(states, questions, explain=explain)
        try:
            while True:
                yield self._loop.run_until_complete(anext(results))
        except StopAsyncIteration:
            return
        finally:
            self._loop.run_until_complete(results.aclose())


Make = Callable[..., Any]


@contextmanager
def answering(make: Make, *replies: Scripted | None, **options: Any) -> Iterator[tuple[Any, list[ReceivedRequest]]]:
    """A client of a server that gives these replies, the last one again and again."""
    waiting = list(replies)

    def script(asked: ReceivedRequest) -> Scripted | None:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    with scripted_server(script) as (url, log), make(url, **options) as client:
        yield client, log
