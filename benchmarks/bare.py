"""The floor: uvicorn and one ASGI function that does the JSON work of a decision, and nothing else.

It decodes the request into typed structs, builds a typed answer with probabilities and confidence for each question,
encodes them and makes a request id. No admission, deadline, scheduling, model, metrics, logging or error handling:
what a server adds to this is its overhead.
"""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from os import urandom
from typing import Any

import msgspec
import uvicorn

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Choice(msgspec.Struct, tag="choice", tag_field="type"):
    criteria: dict[str, Any]
    instructions: Any = None


class Score(msgspec.Struct, tag="score", tag_field="type"):
    criteria: list[Any]
    instructions: Any = None


class Noul(msgspec.Struct, tag="noul", tag_field="type"):
    instructions: Any = None
    criteria: dict[str, Any] | None = None


class Request(msgspec.Struct):
    state: Any
    questions: dict[str, Choice | Score | Noul]


class ChoiceAnswer(msgspec.Struct, tag="choice", tag_field="type"):
    choice: str
    probabilities: dict[str, float]
    confidence: float


class ScoreAnswer(msgspec.Struct, tag="score", tag_field="type"):
    score: float
    level: int
    legend: dict[str, Any]
    probabilities: dict[str, float]
    confidence: float


class NoulAnswer(msgspec.Struct, tag="noul", tag_field="type"):
    noul: float
    probabilities: dict[str, float]
    confidence: float


class Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int


class Response(msgspec.Struct):
    model: str
    answers: Mapping[str, ChoiceAnswer | ScoreAnswer | NoulAnswer]
    usage: Usage


decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode


def answer(question: Choice | Score | Noul) -> ChoiceAnswer | ScoreAnswer | NoulAnswer:
    """Equal weights, read the way a real answer is: normalise, first argmax, expectation, confidence."""
    if isinstance(question, Noul):
        return NoulAnswer(0.5, {"true": 0.5, "false": 0.5}, 0.0)
    weights = [1.0] * len(question.criteria)
    count, total = len(weights), sum(weights)
    shares = [weight / total for weight in weights]
    top = max(shares)
    mode = shares.index(top)
    if isinstance(question, Choice):
        probabilities = dict(zip(question.criteria, shares, strict=True))
        confidence = (top - 1 / count) / (1 - 1 / count) if count > 1 else 1.0
        return ChoiceAnswer(list(probabilities)[mode], probabilities, confidence)
    levels = [str(level) for level in range(count)]
    expected = sum(level * share for level, share in enumerate(shares))
    away = sum(share * abs(level - mode) for level, share in enumerate(shares))
    scale = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
    return ScoreAnswer(
        expected,
        mode,
        dict(zip(levels, question.criteria, strict=True)),
        dict(zip(levels, shares, strict=True)),
        max(0.0, 1 - away / scale) if scale else 1.0,
    )


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    request = decode(body)
    answers = {name: answer(question) for name, question in request.questions.items()}
    reply = encode(Response("bare", answers, Usage(0, 0)))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(reply)),
        (b"x-request-id", urandom(16).hex().encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="port to listen on, loopback only")
    port = parser.parse_args().port
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        ws="none",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
