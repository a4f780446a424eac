"""Places at the engine, dealt in turn: a batch of thousands of calls and a request of three share them evenly, as do a
client of many requests and a client of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from decided.fair_queue import FairQueue, Lane

Turn = asyncio.Future[None]


class Turns:
    """At most `places` calls at a time. A request has a lane in its client's share; who was served least is next."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: FairQueue[Turn] = FairQueue()
        self.waiting = 0

    @asynccontextmanager
    async def turn(self, lane: Lane[Turn]) -> AsyncIterator[None]:
        await self._take(lane)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, lane: Lane[Turn]) -> None:
        if self._free:
            self._free -= 1
            return
        turn: Turn = asyncio.get_running_loop().create_future()
        self._queue.push(lane, [(turn, 1)])
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled in the moment after its turn had come
                self._pass_on()
            raise
        finally:
            self.waiting -= 1

    def _pass_on(self) -> None:
        while batch := self._queue.take(1):
            if not batch[0].done():  # done: cancelled while it waited
                batch[0].set_result(None)
                return
        self._free += 1
