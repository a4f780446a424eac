"""An engine for tests, in a thread of this process. It speaks the chat protocols, and fails in the ways it is told to.

A word in the prompt chooses the fault, so that good and bad calls can stand side by side: `FAULT=garbage` and so on,
each a method of `Faults`. Otherwise it prefers options with the word RIGHT in them. `BIAS=4` makes it four times as
fond of whatever has the letter A. `FAULT=spoilt` is an answer in which `spoil` has put something else.
"""

import asyncio
import json
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

TRIVIAL = "The sky over the village"


@dataclass
class Call:
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    left: Callable[[], bool] = bool

    @property
    def prompt(self) -> str:
        messages = self.body.get("messages") or self.body.get("input") or []
        return "\n".join([str(message["content"]) for message in messages] or [self.body.get("state", "")])


@dataclass
class FakeEngine:
    """Listens on a free port of the loopback interface while it is entered."""

    shown: int = 20
    label_mass: float = 0.9
    seconds: float = 0.0
    status: int = 200
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    abandoned: int = 0
    busy: dict[str, int] = field(default_factory=dict)
    spoil: tuple[str, str] = ("(?!)", "")
    """A pattern, and what stands in its places in the JSON of a spoilt answer, and of tokens."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def of(self, path: str) -> list[Call]:
        """The calls to a path, the start-up probe left out."""
        return [call for call in self.calls if call.path.endswith(path) and TRIVIAL not in json.dumps(call.body)]

    def __enter__(self) -> "FakeEngine":
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away, as a killed process does: listening socket and connections at once."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(10)

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_address=True)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._over.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
                call = Call(method, path, headers, body, number, reader.at_eof)
                self.calls.append(call)
                await self._answer(call, writer)
                if writer.is_closing():
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            self.abandoned += 1
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> None:
        fault = re.search(r"FAULT=([\w-]+)", call.prompt)
        if fault is not None:
            handle: Callable[[FakeEngine, Call, asyncio.StreamWriter], Awaitable[None]]
            handle = getattr(Faults, fault[1].replace("-", "_"))
            await handle(self, call, writer)
        elif self.status != 200:
            reply(writer, self.status, {"error": "SECRET words of the engine"})
        elif call.method == "GET":
            reply(writer, 200, {"data": []})
        elif call.path.endswith("/tokenize"):
            text = call.body["prompt"]
            reply(writer, 200, self.spoilt({"tokens": [ord(text[-1]) + 1000 * (len(text) - 1)]}))
        else:
            await asyncio.sleep(self.seconds)
            reply(writer, 200, self.completion(call))
        await writer.drain()

    def spoilt(self, answer: Any) -> bytes:
        return re.sub(*self.spoil, json.dumps(answer)).encode()

    def completion(self, call: Call) -> Any:
        if call.path.endswith("/v1/systemone"):
            return self.answers(call)
        position = self.position(call)
        counts = {"prompt_tokens": len(call.prompt.split()), "completion_tokens": 1}
        if call.path.endswith("/api/chat"):
            read, said = counts.values()
            return {"logprobs": [position], "prompt_eval_count": read, "eval_count": said}
        if call.path.endswith("/responses"):
            content = [{"type": "output_text", "logprobs": [position]}]
            usage = {"input_tokens": counts["prompt_tokens"], "output_tokens": 1}
            return {"output": [{"type": "reasoning"}, {"type": "message", "content": content}], "usage": usage}
        if "post_sampling_probs" in call.body:
            likely = [{"token": each["token"], "prob": math.exp(each["logprob"])} for each in position["top_logprobs"]]
            position = {**likely[0], "top_probs": likely}
        return {"choices": [{"logprobs": {"content": [position]}}], "usage": counts}

    def answers(self, call: Call) -> Any:
        """To choices, in the protocol of this service. Where the state has the word CUT, some of it was not read."""
        cut = "CUT" in call.prompt
        answers, warnings = {}, []
        for name, question in call.body["questions"].items():
            options = question.get("criteria") or {"true": None, "false": None}
            weights = {option: 9.0 if "RIGHT" in str(text) else 1.0 for option, text in options.items()}
            total = sum(weights.values())
            shares = {option: weight / total for option, weight in weights.items()}
            answers[name] = {"probabilities": shares, "truncated": cut}
            warnings += [f'question "{name}": the model read 3 of 9 tokens of the state'] if cut else []
        counts = {"input_tokens": len(call.prompt.split()), "output_tokens": 1}
        return {"answers": answers, "usage": counts, "warnings": warnings}

    def position(self, call: Call) -> Any:
        """The most likely tokens: the labels of the options in the prompt, and two words."""
        options = re.findall(r"^([A-Z])\. (.*)$", call.prompt, re.MULTILINE)
        bias = float(found[1]) if (found := re.search(r"BIAS=([\d.]+)", call.prompt)) else 1.0
        weights = {
            letter: (9.0 if "RIGHT" in text else 1.0) * (bias if letter == "A" else 1.0) for letter, text in options
        }
        scale = self.label_mass / sum(weights.values())
        likely = {f" {letter}" if letter in "CF" else letter: weight * scale for letter, weight in weights.items()}
        likely |= {"The": (1 - self.label_mass) * 0.6, "a": (1 - self.label_mass) * 0.3}
        ranked = sorted(likely.items(), key=lambda pair: -pair[1])[: self.shown]
        tokens = [{"token": text, "logprob": math.log(share) if share else -9999.0} for text, share in ranked]
        return {**tokens[0], "top_logprobs": tokens}


class Faults:
    """One coroutine for each word after FAULT=."""

    @staticmethod
    async def garbage(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 200, b"<html>SECRET gateway page</html>")

    @staticmethod
    async def spoilt(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 200, engine.spoilt(engine.completion(call)))

    @staticmethod
    async def no_http(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01\x02 this is no HTTP\r\n\r\n")
        writer.close()

    @staticmethod
    async def error(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 500, {"error": "SECRET traceback"})

    @staticmethod
    async def bad_request(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 400, {"error": "SECRET schema"})

    @staticmethod
    async def short(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        """A model that reads 500 words at most, and says so."""
        words = len(call.prompt.split())
        if words > 500:
            message = f"the maximum context length is 500 tokens, the prompt has {words}"
            reply(writer, 400, {"error": {"message": message, "code": 400}})
        else:
            reply(writer, 200, engine.completion(call))

    @staticmethod
    async def short_and_vague(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        """The same, but it counts no further than its limit."""
        if len(call.prompt.split()) > 500:
            reply(writer, 400, {"error": "the maximum context length is 500, the prompt has at least 501"})
        else:
            reply(writer, 200, engine.completion(call))

    @staticmethod
    async def no_logprobs(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 200, {"choices": [{"message": {"content": "A"}, "logprobs": None}]})

    @staticmethod
    async def no_labels(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        tokens = [{"token": "<think>", "logprob": -0.01}, {"token": "Well", "logprob": -5.0}]
        position = {**tokens[0], "top_logprobs": tokens}
        reply(writer, 200, {"choices": [{"logprobs": {"content": [position]}}]})

    @staticmethod
    async def nan(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        body = b'{"choices":[{"logprobs":{"content":[{"token":"A","logprob":NaN,"top_logprobs":[]}]}}]}'
        reply(writer, 200, body)

    @staticmethod
    async def string_nan(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        position = {"token": "A", "logprob": "nan", "top_logprobs": [{"token": "A", "logprob": "nan"}]}
        reply(writer, 200, {"choices": [{"logprobs": {"content": [position]}}]})

    @staticmethod
    async def huge(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()

    @staticmethod
    async def drip(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    @staticmethod
    async def hang(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        while not call.left() and time.monotonic() - began < 60:
            await asyncio.sleep(0.05)
        raise ConnectionError

    @staticmethod
    async def redirect(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        elsewhere = re.search(r"TO=(\S+)", call.prompt)
        assert elsewhere is not None
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere[1]}\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())

    @staticmethod
    async def close(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    @staticmethod
    async def half(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n{"choices')
        await writer.drain()
        writer.close()

    @staticmethod
    async def once_closed(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        await _first(engine, call, writer, lambda: writer.transport.abort())

    @staticmethod
    async def once_429(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        await _first(engine, call, writer, lambda: reply(writer, 429, {}, "Retry-After: 1\r\n"))

    @staticmethod
    async def once_503(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        await _first(engine, call, writer, lambda: reply(writer, 503, {}))

    @staticmethod
    async def always_429(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 429, {"error": "SECRET quota"}, "Retry-After: 3600\r\n")

    @staticmethod
    async def always_503(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter) -> None:
        reply(writer, 503, {"error": "SECRET loading"})


async def _first(engine: FakeEngine, call: Call, writer: asyncio.StreamWriter, fault: Callable[[], None]) -> None:
    """The fault for the first call with this prompt, an answer for the next."""
    seen = engine.busy.get(call.prompt, 0)
    engine.busy[call.prompt] = seen + 1
    if seen == 0:
        fault()
    else:
        reply(writer, 200, engine.completion(call))


def reply(writer: asyncio.StreamWriter, status: int, body: Any, headers: str = "") -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
