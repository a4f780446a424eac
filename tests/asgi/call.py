"""One call of the application, message by message, and an application to call."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from decided.asgi import Application, Settings, create_app
from tests.spec.checks import SINGLE, served
from tests.support.server import Reply

Message = dict[str, Any]
LEFT: Message = {"type": "http.disconnect"}
LINES = {"accept": "application/x-ndjson"}


def part(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def states(*given: str) -> Message:
    question = {"type": "noul", "instructions": "so?"}
    return part(json.dumps({"states": given, "questions": {"q": question}}).encode())


class Call:
    """One call of the application."""

    def __init__(self, app: Application, *incoming: Message, path: str = SINGLE, **scope: Any) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in scope.pop("headers", {}).items()]
        self.scope: Message = {"type": "http", "method": "POST", "path": path, "headers": headers} | scope
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        for message in incoming:
            self.incoming.put_nowait(message)
        self.taken: list[int] = []  # for each message received, how many had been sent before
        self.sent: list[Message] = []
        self.asked = 0  # how many messages were begun to be sent
        self.window = 1_000_000  # as many messages are taken, and no more
        self.cancelling = -1
        self.task = asyncio.create_task(self._run(app))

    async def _run(self, app: Application) -> None:
        await app(self.scope, self._receive, self._send)
        task = asyncio.current_task()
        assert task is not None
        self.cancelling = task.cancelling()

    async def _receive(self) -> Message:
        self.taken.append(len(self.sent))
        return await self.incoming.get()

    async def _send(self, message: Any) -> None:
        self.asked += 1
        while len(self.sent) >= self.window:
            await asyncio.sleep(0.005)
        self.sent.append(message)

    async def reply(self) -> Reply:
        await asyncio.wait_for(self.task, 20)
        assert self.sent[-1]["more_body"] is False
        return self.reply_so_far()

    def reply_so_far(self) -> Reply:
        start, *parts = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(headers) == len(start["headers"])
        return Reply(start["status"], headers, b"".join(message["body"] for message in parts))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Application]:
    app = create_app(Settings(**{"model": "fake"} | settings))
    async with app.lifespan():
        yield app


def run(test: Callable[[Application], Awaitable[None]], **settings: Any) -> None:
    """Run a test against an application that was started."""

    async def whole() -> None:
        async with running(**settings) as app:
            await test(app)

    asyncio.run(whole())


async def in_flight(app: Application) -> int:
    reply = await Call(app, part(b""), path="/health", method="GET").reply()
    return int(served(reply)["in_flight"])
