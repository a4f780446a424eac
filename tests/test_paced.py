"""Asking no faster than answers come: the policy with a clock of our own, and a slow server that is asked for real."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from decided.backend import Questions
from decided.client.protocol import BatchResult, failure
from decided.paced import Pace, Paced
from tests.commands.conftest import Run, decided  # noqa: F401 - a fixture
from tests.support.server import running_server


class Simulation:
    """A server that works off states one after the other, or all side by side, and a client that keeps to the pace."""

    def __init__(self, most: int, seconds: float, side_by_side: bool = False) -> None:
        self.now = 0.0
        self.pace = Pace(most, clock=lambda: self.now)
        self._seconds = seconds
        self._side_by_side = side_by_side
        self._asked: list[float] = []

    def answer(self, states: int) -> None:
        for _ in range(states):
            self._asked += [self.now] * (self.pace.limit - len(self._asked))
            began = self._asked.pop(0)
            self.now = max(self.now, began + self._seconds) if self._side_by_side else self.now + self._seconds
            self.pace.answered(began)


def test_a_fast_server_is_asked_as_much_as_allowed() -> None:
    fast = Simulation(128, 0.001)
    fast.answer(300)
    assert fast.pace.limit == 128


@pytest.mark.parametrize("seconds", [0.05, 0.2, 1.0, 5.0])
def test_what_is_asked_at_a_time_is_a_second_or_two_of_work(seconds: float) -> None:
    slow = Simulation(128, seconds)
    slow.answer(500)
    assert slow.pace.limit * seconds <= max(2.0, 4 * seconds)


def test_a_server_that_takes_long_and_answers_side_by_side_is_not_slow() -> None:
    far = Simulation(128, 3.0, side_by_side=True)
    far.answer(2000)
    assert far.pace.limit == 128


def test_time_outs_halve_what_is_asked_once_for_all_that_was_asked_together() -> None:
    now = 0.0
    pace = Pace(64, clock=lambda: now)
    for _ in range(1 + 8 + 16 + 32):
        pace.answered(now)
    assert pace.limit == 64
    now = 30.0
    for _ in range(64):
        pace.timed_out(0.0)
    assert pace.limit == 32
    for number in range(10):
        now += 30
        pace.timed_out(now)
        assert pace.limit == max(1, 16 >> number)


def test_a_slow_server_is_asked_again_until_it_has_answered_all(
    decided: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Eight at a time would take the server more than seven seconds, of which it has six."""
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"q": {"type": "noul", "instructions": "So?"}}))
    rows = "".join(json.dumps({"state": f"SLEEP=0.9 {number}"}) + "\n" for number in range(8)).encode()
    with running_server("--request-timeout-s", "6") as server:
        done = decided("run", "-", "--questions", path, "--server", server.url, stdin=rows)
        assert server.log().count("endpoint=/v1/systemone/batch") > 8  # some were asked again
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line)["error"] for line in done.out.splitlines()] == [None] * 8


def test_a_state_that_times_out_alone_is_an_error(
    decided: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"q": {"type": "noul", "instructions": "So?"}}))
    with running_server("--request-timeout-s", "0.5") as server:
        done = decided("run", "-", "--questions", path, "--server", server.url, stdin=b'{"state": "SLEEP=1"}\n')
    assert json.loads(done.out)["error"] == "no answer within 0.5 s"


class SlowBackend:
    """Gives up on every state."""

    model, description, max_options, rows_in_flight, least_in_flight = "slow", "", 256, 128, 4

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        self.asked.append(list(states))
        for index in range(len(states)):
            await asyncio.sleep(0)
            yield BatchResult(index, None, failure(504, "no answer within 30 s"))

    async def close(self) -> None:
        pass


def test_states_that_time_out_together_are_asked_alone_and_then_are_errors() -> None:
    backend = SlowBackend()

    async def ask() -> list[BatchResult]:
        return [result async for result in Paced(backend).batch(["a", "b", "c"], {})]

    found = asyncio.run(asyncio.wait_for(ask(), 5))
    assert sorted((result.index, result.error is not None and result.error.status) for result in found) == [
        (0, 504),
        (1, 504),
        (2, 504),
    ]
    assert backend.asked == [["a", "b", "c"], ["a"], ["b"], ["c"]]
