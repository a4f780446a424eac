"""Every limit at its boundary: the last that passes, the first that does not."""

import gzip
import json
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import zstandard

from tests.spec.checks import (
    AUTHORIZED,
    CHOICE,
    NOUL,
    POSTS,
    SCORE,
    SINGLE,
    answers_of,
    body_for,
    bytes_for,
    eventually,
    in_flight,
    peak_memory,
    refused,
    served,
)
from tests.spec.conftest import SMALL_BODY
from tests.spec.fronts import HYPERCORN
from tests.spec.wire import Wire, chunked, head, message
from tests.support.server import Server, running_server

MIB = 2**20
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def padded(size: int, path: str = SINGLE) -> bytes:
    """A good request of exactly this many bytes."""
    body = json.dumps(body_for(path) | {"padding": ""}, separators=(",", ":")).encode()
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


# --- the body ---


@pytest.mark.parametrize("path", POSTS)
def test_a_body_of_one_mebibyte(server: Server, path: str) -> None:
    served(server.request("POST", path, padded(MIB, path)))
    said = refused(server.request("POST", path, padded(MIB + 1, path)), 413)
    assert said == f"the body is larger than {MIB} bytes"


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("encoding", PACKERS)
def test_a_body_of_one_mebibyte_when_decoded(server: Server, path: str, encoding: str) -> None:
    pack, headers = PACKERS[encoding], {"Content-Encoding": encoding}
    served(server.request("POST", path, pack(padded(MIB, path)), headers))
    said = refused(server.request("POST", path, pack(padded(MIB + 1, path)), headers), 413)
    assert said == f"the body unpacks to more than {MIB} bytes"


def test_a_chunked_body_of_one_mebibyte(server: Server) -> None:
    with Wire(server) as wire:
        for size, good in ((MIB, True), (MIB + 1, False)):
            body = padded(size)
            parts = [body[start : start + 100_000] for start in range(0, size, 100_000)]
            reply = wire.exchange(head("Transfer-Encoding: chunked") + chunked(*parts))
            served(reply) if good else refused(reply, 413)


def test_the_body_limit_is_a_setting(strict: Server) -> None:
    served(strict.request("POST", SINGLE, padded(SMALL_BODY), AUTHORIZED))
    refused(strict.request("POST", SINGLE, padded(SMALL_BODY + 1), AUTHORIZED), 413)


@pytest.mark.parametrize("encoding", PACKERS)
def test_the_body_limit_holds_for_the_bytes_received_too(strict: Server, encoding: str) -> None:
    """A stream of stored blocks is larger than what it holds."""
    stored: dict[str, Callable[[bytes], bytes]] = {
        "gzip": lambda body: gzip.compress(body, 0),
        "deflate": lambda body: zlib.compress(body, 0),
        "zstd": lambda body: b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00" * 250 + zstandard.compress(body),
    }
    packed = stored[encoding](padded(SMALL_BODY - 1))
    assert len(packed) > SMALL_BODY
    refused(strict.request("POST", SINGLE, packed, AUTHORIZED | {"Content-Encoding": encoding}), 413)


def test_a_body_declared_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    with Wire(server) as wire:
        refused(wire.exchange(head(f"Content-Length: {MIB + 1}")), 413)


@pytest.mark.parametrize(
    ("declared", "status"),
    [
        ("9" * 10, 413),
        ("9" * 19, 413),
        ("18446744073709551615", 400),
        ("9" * 20, 400),
    ],
)
def test_an_absurd_length_is_too_large_or_unreadable(server: Server, front: str, declared: str, status: int) -> None:
    """Up to 19 digits it is a length, and too large. Hypercorn reads one more, and hands it on."""
    with Wire(server) as wire:
        reply = wire.exchange(head(f"Content-Length: {declared}"))
        refused(reply, 413 if front == HYPERCORN and len(declared) == 20 else status)


def test_an_endless_chunked_body_is_refused_while_it_is_sent(server: Server) -> None:
    with Wire(server) as wire:
        wire.send(head("Transfer-Encoding: chunked"))
        for _ in range(17):
            wire.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
        refused(wire.reply(), 413)


# --- questions, options, states ---


@pytest.mark.parametrize("path", POSTS)
def test_64_questions(server: Server, path: str) -> None:
    def questions(count: int) -> dict[str, Any]:
        return body_for(path, questions={f"q{number}": NOUL for number in range(count)})

    body = served(server.request("POST", path, questions(64)))
    assert len((body if path == SINGLE else body["results"][0])["answers"]) == 64
    refused(server.request("POST", path, questions(65)), 422)


def _choice(count: int) -> dict[str, Any]:
    return CHOICE | {"criteria": {f"option {number}": None for number in range(count)}}


def _score(count: int) -> dict[str, Any]:
    return SCORE | {"criteria": [f"level {number}" for number in range(count)]}


@pytest.mark.parametrize("question", [_choice, _score], ids=["choice", "score"])
def test_256_options_or_levels(server: Server, question: Callable[[int], dict[str, Any]]) -> None:
    assert len(answers_of(server.ask("x", {"many": question(256)}))["many"]["probabilities"]) == 256
    assert "many" in refused(server.ask("x", {"many": question(257)}), 422)


@pytest.mark.parametrize("question", [_choice, _score], ids=["choice", "score"])
def test_26_options_or_levels_for_a_remote_engine(remote: Server, question: Callable[[int], dict[str, Any]]) -> None:
    assert len(answers_of(remote.ask("x", {"many": question(26)}))["many"]["probabilities"]) == 26
    said = refused(remote.ask("x", {"many": question(27)}), 422)
    assert said == 'question "many": too many options: 27, at most 26 with this model'


@pytest.mark.parametrize("question", [_choice, _score], ids=["choice", "score"])
def test_one_option_or_level_is_enough(server: Server, question: Callable[[int], dict[str, Any]]) -> None:
    assert list(answers_of(server.ask("x", {"q": question(1)}))["q"]["probabilities"].values()) == [1.0]


def test_256_states(server: Server) -> None:
    assert len(served(server.batch(["x"] * 256))["results"]) == 256
    refused(server.batch(["x"] * 257), 422)


# --- the state ---


def _text(size: int) -> Any:
    return "x" * size


def _astral(size: int) -> Any:
    return "🙂" * size


def _compact(size: int) -> Any:
    return {"k": "é" * (size - 8)}


def _escaped(size: int) -> Any:
    """In the compact JSON a line break is the two characters of its escape."""
    return ["\n" * 500 + "x" * (size - 1004)]


def _spaced(size: int) -> Any:
    """White space between values, which the compact JSON leaves out."""
    return [0] * ((size - 1) // 2) if size % 2 else [0] * ((size - 4) // 2) + [10]


@pytest.mark.parametrize("state", [_text, _astral, _compact, _escaped, _spaced])
def test_200_000_characters_of_state(server: Server, state: Callable[[int], Any]) -> None:
    def body(size: int, batch: bool) -> bytes:
        states = {"states": ["x", state(size)]} if batch else {"state": state(size)}
        return json.dumps(states | {"questions": {"q": NOUL}}, ensure_ascii=False).encode()

    served(server.request("POST", SINGLE, body(200_000, False)))
    served(server.request("POST", "/v1/systemone/batch", body(200_000, True)))
    assert "state" in refused(server.request("POST", SINGLE, body(200_001, False)), 422)
    assert "states" in refused(server.request("POST", "/v1/systemone/batch", body(200_001, True)), 422)


# --- places and time ---


def test_256_requests_at_a_time(server: Server) -> None:
    """By default the 257th is refused, and the others are not disturbed by that."""
    assert eventually(lambda: in_flight(server) == 0)
    body = bytes_for()
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(256)]
        for wire in wires:
            wire.send(message(body)[:-1])
        assert eventually(lambda: in_flight(server) == 256)
        assert refused(reply := server.ask("x"), 503)
        assert reply.headers["retry-after"] == "1"
        for wire in wires:
            wire.send(body[-1:])
        for wire in wires:
            served(wire.reply())
    assert in_flight(server) == 0


@pytest.mark.slow
def test_30_seconds(server: Server) -> None:
    with Wire(server) as wire:
        began = time.monotonic()
        refused(wire.exchange(head("Content-Length: 100")), 504)
        assert 29.5 < time.monotonic() - began < 45


@pytest.mark.slow
def test_the_largest_batch_costs_less_than_200_megabytes() -> None:
    """256 states, 64 questions, 256 options each: four million probabilities in 160 kilobytes of request."""
    question = {"type": "choice", "criteria": {f"{number:x}": None for number in range(256)}}
    body = {
        "states": [str(number) for number in range(256)],
        "questions": {str(number): question for number in range(64)},
    }
    with running_server("--request-timeout-s", "300") as server:
        before = peak_memory(server)
        reply = server.request("POST", "/v1/systemone/batch", body, timeout=300)
        assert len(served(reply)["results"]) == 256
        assert peak_memory(server) - before < 200e6
