"""Asking no faster than answers come: less at a time when they are slow, more when they are not.

A table that is asked about 128 rows at a time keeps a fast server busy. A slow one would answer all of them at the end
of a minute, or time out on all of them. So the number follows the answers, and what times out is asked again, at last
alone.
"""

import math
import time
from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from decided.backend import Backend, Questions
from decided.client.protocol import BatchResult

_START = 8
_WANTED_S = 1.0
_HELPED = 0.8  # half as many at a time, and it takes at most this share of the time: they had waited for each other
_STATES_PER_REQUEST = 16
_REQUESTS = 8


class Pace:
    """How many states may be asked at a time. Pure policy: who asks tells when a state was asked and when answered.

    It goes in rounds: when as many states as the limit have been answered, all asked under it, the mean of the time
    they took decides on the next limit. The very first do not count: nobody was before them.
    """

    def __init__(self, most: int, least: int = 4, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = min(most, max(_START, least))
        self.clock = clock
        self._most = most
        self._least = min(most, least)
        self._wanted_s = _WANTED_S
        self._changed = math.inf
        self._took: list[float] = []
        self._before_shrinking = math.inf

    def answered(self, began: float) -> None:
        """A state that was asked at that time was answered."""
        self._changed = min(self._changed, self.clock())
        if began < self._changed:
            return
        self._took.append(self.clock() - began)
        if len(self._took) >= self.limit:
            self._judge(math.fsum(self._took) / len(self._took))
            self._took.clear()

    def timed_out(self, began: float) -> None:
        if self._changed == math.inf:
            self._changed = began
        if began >= self._changed:
            self._least = 1
            self._change(max(1, self.limit // 2))

    def _judge(self, took: float) -> None:
        if took > self._before_shrinking * _HELPED:  # it takes that long however few are asked: it does not queue
            self._wanted_s = max(self._wanted_s, 2 * took)
        self._before_shrinking = math.inf
        if took <= self._wanted_s / 2:
            self._change(min(self._most, self.limit * 2))
        elif took > self._wanted_s and self.limit > self._least:
            self._before_shrinking = took
            self._change(max(self._least, self.limit // 2))

    def _change(self, limit: int) -> None:
        if limit != self.limit:
            self.limit = limit
            self._changed = self.clock()
            self._took.clear()


class Paced:
    """A backend that may be given more states at a time than it should be asked: they wait for their turn, in order."""

    def __init__(self, backend: Backend, concurrency: int | None = None) -> None:
        """With `concurrency` there are never more side by side."""
        self.most = concurrency or backend.rows_in_flight
        self.pace = Pace(self.most, backend.least_in_flight)
        self._backend = backend
        self._asked = 0
        self._turns: deque[tuple[int, Future[None]]] = deque()

    @property
    def per_request(self) -> int:
        """How many states to give at a time: several share what a request costs, few come back soon."""
        return max(1, min(_STATES_PER_REQUEST, self.pace.limit // _REQUESTS))

    async def batch(self, states: Sequence[Any], questions: Questions) -> AsyncGenerator[BatchResult, None]:
        """A result for each of the states, in any order."""
        requests = deque([list(range(len(states)))] if states else [])
        again = False
        while requests:
            numbers = requests.popleft()
            open_ = len(numbers)
            await self._turn(open_, again)
            began, alone = self.pace.clock(), self._asked == 1
            try:
                async with aclosing(self._backend.batch([states[number] for number in numbers], questions)) as results:
                    async for result in results:
                        open_ -= 1
                        self._leave(1)
                        number = numbers[result.index]
                        if not alone and _timed_out(result):
                            requests.append([number])  # by itself: two in one request would never be alone
                            self.pace.timed_out(began)
                            continue
                        if result.response is not None:
                            self.pace.answered(began)
                        yield replace(result, index=number)
            finally:
                self._leave(open_)
            again = True

    async def _turn(self, number: int, again: bool) -> None:
        """Wait until so many more may be asked. What is asked again comes before what is new."""
        if self._turns or not self._has_room(number):
            turn: Future[None] = get_running_loop().create_future()
            (self._turns.appendleft if again else self._turns.append)((number, turn))
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._leave(number)
                raise
        else:
            self._asked += number

    def _leave(self, number: int) -> None:
        self._asked -= number
        while self._turns and (self._turns[0][1].done() or self._has_room(self._turns[0][0])):
            size, turn = self._turns.popleft()
            if not turn.done():
                self._asked += size
                turn.set_result(None)

    def _has_room(self, number: int) -> bool:
        return not self._asked or self._asked + number <= self.pace.limit


def _timed_out(result: BatchResult) -> bool:
    return result.error is not None and (result.error.status == 504 or result.error.code == "timed_out")
