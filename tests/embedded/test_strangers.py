"""Nobody waits for a stranger: the largest requests there are, beside small ones, with the embedded model served."""

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server, running_server

LIMIT_S = 12
NOUL = {"type": "noul", "instructions": "Is the parcel late?"}
WORDS = "the customer wants a thing that nobody has asked for before, with a number: "


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    with running_server("--model", "embedded:small", "--request-timeout-s", str(LIMIT_S)) as server:
        yield server


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def huge() -> dict[str, Any]:
    """A state of 200,000 characters, and 19 questions with 256 options each: 690 KB, within every limit."""
    options = {f"option {number}": f"{WORDS}{number}" for number in range(256)}
    asked = {f"q{number}": {"type": "choice", "criteria": options} for number in range(19)}
    body = {"state": "late parcel " * 16_666, "questions": asked}
    assert 650_000 < len(json.dumps(body)) < 2**20
    return body


def cpu_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_at_rest(server: Server) -> bool:
    before = cpu_seconds(server)
    time.sleep(0.4)
    return cpu_seconds(server) - before < 0.1


def test_small_requests_are_answered_beside_one_of_690_kilobytes_and_its_work_stops_with_its_504(
    served: Server,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(served.request, "POST", "/v1/systemone", huge())
        until(lambda: served.get("/health").json["queue_depth"] == 0 and served.get("/health").json["in_flight"] == 1)
        until(lambda: not is_at_rest(served))
        small = [served.ask(f"Parcel {number} is late.", {"late": NOUL}).status for number in range(3)]
        assert not large.done()
        assert small == [200] * 3
        assert large.result().status == 504
    assert served.ask("The parcel is late.", {"late": NOUL}).status == 200
    assert served.get("/ready").status == 200
    until(lambda: is_at_rest(served))


def test_small_requests_are_answered_beside_a_batch_of_256_states_and_64_questions(served: Server) -> None:
    states = [f"Ticket {number}: charged twice for order {1182 + number}, please refund." for number in range(256)]
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(served.batch, states, {f"q{number}": NOUL for number in range(64)})
        until(lambda: served.get("/health").json["queue_depth"] > 1000)
        small = [served.ask(f"Parcel {number} is late.", {"late": NOUL}).status for number in range(5)]
        assert not large.done()
        assert small == [200] * 5
        assert large.result().status == 504
    until(lambda: is_at_rest(served))


def test_the_work_of_a_client_that_left_stops(served: Server) -> None:
    body = json.dumps(huge()).encode()
    with served.connect() as leaving:
        leaving.sendall(b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: served.get("/health").json["in_flight"] == 1)
        until(lambda: not is_at_rest(served))
    until(lambda: served.get("/health").json["in_flight"] == 0)
    until(lambda: is_at_rest(served))
    assert served.ask("The parcel is late.", {"late": NOUL}).status == 200
