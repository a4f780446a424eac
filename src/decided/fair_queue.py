"""What runs next: a fair queue, pure policy, with no threads and no clock of its own.

Every request has a lane. Lanes are served in the order of the cost they have been given so far (start-time fair
queueing), so a lane of sixteen thousand questions and a lane of three share the model evenly, and the small one is
done after its three. A lane that was idle starts at the present, it cannot save up credit.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """The waiting work of one request."""

    __slots__ = ("abandoned", "queued", "served", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[T, int]] = deque()
        self.served = 0
        self.queued = False
        self.abandoned = False


class FairQueue(Generic[T]):
    """Deals the work of many lanes. `abandoned` lanes are dropped, whole, when their turn comes."""

    def __init__(self) -> None:
        self._lanes: list[tuple[int, int, Lane[T]]] = []
        self._now = 0
        self._arrivals = count()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def push(self, lane: Lane[T], work: Iterable[tuple[T, int]]) -> None:
        """Add work, each piece with its cost, to the end of a lane. One that was idle starts at the present."""
        lane.waiting.extend(work)
        if not lane.queued:
            lane.served = max(lane.served, self._now)
            self._enter(lane)

    def push_back(self, lane: Lane[T], piece: T, cost: int) -> None:
        """Work that was taken and goes on, before all that waits in its lane, which was not idle meanwhile."""
        lane.waiting.appendleft((piece, cost))
        if not lane.queued:
            self._enter(lane)

    def take(self, budget: int) -> list[T]:
        """The next fair batch of at most `budget` cost. A piece larger than the budget comes alone, but it comes."""
        batch: list[T] = []
        while self._lanes:
            served, _, lane = self._lanes[0]
            if self._is_over(lane):
                continue
            piece, cost = lane.waiting[0]
            if batch and cost > budget:
                break
            lane.waiting.popleft()
            batch.append(piece)
            budget -= cost
            self._now = max(self._now, served)
            lane.served = served + cost
            if lane.waiting:
                heapreplace(self._lanes, (lane.served, next(self._arrivals), lane))
            else:
                self._retire(lane)
        return batch

    def take_small(self, most: int) -> T | None:
        """The first piece, in fair order, that costs no more than this. Those before it keep their turns."""
        passed: list[tuple[int, int, Lane[T]]] = []
        found: T | None = None
        while self._lanes and found is None:
            served, _, lane = self._lanes[0]
            if self._is_over(lane):
                continue
            entry = heappop(self._lanes)
            if lane.waiting[0][1] > most:
                passed.append(entry)
                continue
            found, cost = lane.waiting.popleft()
            lane.served, lane.queued = served + cost, False
            self._enter(lane)
        for entry in passed:
            heappush(self._lanes, entry)
        return found

    def _enter(self, lane: Lane[T]) -> None:
        if lane.waiting:
            lane.queued = True
            heappush(self._lanes, (lane.served, next(self._arrivals), lane))

    def _is_over(self, lane: Lane[T]) -> bool:
        """Whether the first lane was given up, as a whole or piece by piece; then it leaves."""
        if lane.waiting and not lane.abandoned:
            return False
        lane.waiting.clear()
        self._retire(lane)
        return True

    def _retire(self, lane: Lane[T]) -> None:
        heappop(self._lanes)
        lane.queued = False
