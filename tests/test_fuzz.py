"""Hostile input: from the OpenAPI document, from mutated requests, and from bytes that mean nothing.

No reply may be a 5xx, and the server must be alive and right afterwards.
"""

import json
import random
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.server import Server, running_server

REQUEST = json.dumps(
    {
        "state": {"message": "Where is my parcel? ü 😀", "days": 3, "paid": True},
        "questions": {
            "topic": {"type": "choice", "instructions": "About?", "criteria": {"delivery": "late", "billing": None}},
            "mood": {"type": "score", "instructions": ["How", "upset?"], "criteria": ["calm", {"a": 1}, "angry"]},
            "angry": {"type": "noul", "criteria": {"true": "shouting", "false": None}},
        },
    },
    ensure_ascii=False,
).encode()
NASTY = b'null|NaN|1e999|\\ud800|\xff|\x00|"|{|]|[[|,|-0|\\u0000|true|'.split(b"|")


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with all paths that there are."""
    with running_server("--outcomes", str(tmp_path_factory.mktemp("outcomes") / "outcomes.jsonl")) as server:
        yield server


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_document_is_true_and_nothing_made_from_it_gives_a_5xx(telling: Server, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{telling.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(operations) == 7  # all but the document itself
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue  # there is nothing to get wrong in a GET without parameters

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            # Not every rule can be said in a schema (a noul needs words): what is valid by schema may be a 422.
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        check()


def mutated(chance: random.Random) -> bytes:
    body = bytearray(REQUEST)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(body) + 1)
        match chance.randrange(4):
            case 0:
                body[start : start + chance.randint(0, 12)] = chance.choice(NASTY)
            case 1:
                del body[start : start + chance.randint(1, 40)]
            case 2:
                body[start:start] = body[chance.randrange(len(body) + 1) :][: chance.randint(1, 60)]
            case _:
                body[start:start] = bytes([chance.randrange(256)])
    return bytes(body)


def test_two_thousand_mutated_bodies() -> None:
    chance = random.Random(7)
    seen: set[int] = set()
    with running_server("--request-timeout-s", "5") as server:
        for _ in range(20):
            bodies = [mutated(chance) for _ in range(100)]
            heads = [b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body) for body in bodies]
            heads[-1] += b"Connection: close\r\n"
            replies = server.raw(b"".join(head + b"\r\n" + body for head, body in zip(heads, bodies, strict=True)))
            statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", replies)]
            assert len(statuses) == 100
            seen.update(statuses)
        assert server.ask("alive").status == 200
    assert seen == {200, 400, 422}  # every step was reached, and nothing else was answered


def test_one_thousand_streams_of_noise() -> None:
    """Each is followed by the end of a head and by a last request: whatever the noise means, the server closes."""
    chance = random.Random(11)
    chunked = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    starts = [b"", b"POST /v1/systemone HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n", chunked]
    starts += [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01"]
    end = b"\r\n\r\nGET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    seen: set[bytes] = set()
    with running_server("--request-timeout-s", "0.2", "--max-in-flight", "2000") as server:
        for _ in range(1_000):
            with server.connect() as connection:
                connection.sendall(chance.choice(starts) + chance.randbytes(chance.choice((0, 1, 3, 300))) + end)
                replies = read_to_the_end(connection)
            seen.update(re.findall(rb"HTTP/1\.1 (\d{3}) ", replies))
        assert server.ask("alive").status == 200
        assert server.get("/health").json["in_flight"] == 0
    assert {b"200", b"400"} <= seen <= {b"200", b"400", b"504"}


def read_to_the_end(connection: socket.socket) -> bytes:
    """All that comes until the server closes. If it does not, the time-out of the connection is an error."""
    replies = b""
    while part := connection.recv(65536):
        replies += part
    return replies
