"""A language-model engine that thinks for a fixed time, whatever it is asked, and any number of questions at once.

It speaks just enough of the chat protocol for `decided`, and costs next to nothing, so that what is measured is the
service in front of it. It counts the calls and the connections they came on.
"""

import asyncio
import json
import math
import re
import threading
from typing import cast

import uvloop
from loadgen import HOST

PATH = "/v1/chat/completions"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def _reply(body: object) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def _answer() -> bytes:
    """As long as a real one: 20 tokens, four of them labels."""
    words = [*"ABCD", "The", "I", "It", "This", "Yes", "No", "a", "b", "1", "In", "To", "What", "If", "We", "So", "As"]
    tokens = [
        {"token": word, "logprob": math.log(0.5**place / 2), "bytes": [65]} for place, word in enumerate(words, 1)
    ]
    position = {**tokens[0], "top_logprobs": tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": "A"}, "logprobs": {"content": [position]}}
    usage = {"prompt_tokens": 180, "completion_tokens": 1, "total_tokens": 181}
    return _reply({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})


class SlowEngine:
    """Runs in a thread of its own while it is entered."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.port = 0
        self.connections = 0
        self.calls = 0
        self.answer = _answer()
        self.models = _reply({"object": "list", "data": []})

    def __enter__(self) -> "SlowEngine":
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run(ready)), daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        server = await self._loop.create_server(lambda: _Connection(self, self._loop), HOST, 0, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._over.wait()
        server.close()


class _Connection(asyncio.Protocol):
    """One call at a time, its body dropped unread."""

    def __init__(self, engine: SlowEngine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._head = b""
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._engine.connections += 1

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head = b""
            length = _LENGTH.search(data, 0, end)
            self._missing = (int(length[1]) if length else 0) - (len(data) - end - 4)
            if data.startswith(b"GET"):
                self._transport.write(self._engine.models)
                return
        if self._missing <= 0:
            self._missing = 0
            self._engine.calls += 1
            self._loop.call_later(self._engine.seconds, self._transport.write, self._engine.answer)
