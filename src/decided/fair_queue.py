"""What runs next: a fair queue, pure policy, with no threads and no clock of its own.

Two levels, the same rule on both. Every client has a share, and every request a lane in the share of its client. The
share that was given least is next, and in it the lane that was given least (start-time fair queueing). So a lane of
sixteen thousand questions and a lane of three share the model evenly, and the small one is done after its three; and a
client with a thousand lanes gets no more than a client with one. Who was idle starts at the present, and cannot save up
credit. Without names for clients, all lanes are in one share.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """The waiting work of one request, and the client whose share it is charged to."""

    __slots__ = ("abandoned", "client", "queued", "served", "waiting")

    def __init__(self, client: str = "") -> None:
        self.client = client
        self.waiting: deque[tuple[T, int]] = deque()
        self.served = 0
        self.queued = False
        self.abandoned = False


class _Share(Generic[T]):
    """The lanes of one client that have work. `abandoned` lanes are dropped, whole, when their turn comes."""

    __slots__ = ("_arrivals", "_now", "lanes", "queued", "served")

    def __init__(self) -> None:
        self.served = 0
        self.queued = False
        self.lanes: list[tuple[int, int, Lane[T]]] = []
        self._now = 0
        self._arrivals = count()

    def enter(self, lane: Lane[T], was_idle: bool) -> None:
        if was_idle:
            lane.served = max(lane.served, self._now)
        lane.queued = True
        heappush(self.lanes, (lane.served, next(self._arrivals), lane))

    def first(self) -> tuple[T, int] | None:
        """The next piece and its cost."""
        while self.lanes:
            lane = self.lanes[0][2]
            if lane.waiting and not lane.abandoned:
                return lane.waiting[0]
            lane.waiting.clear()  # given up, as a whole or piece by piece
            heappop(self.lanes)
            lane.queued = False
        return None

    def take_first(self) -> None:
        served, _, lane = self.lanes[0]
        _, cost = lane.waiting.popleft()
        self._now = max(self._now, served)
        lane.served = served + cost
        if lane.waiting:
            heapreplace(self.lanes, (lane.served, next(self._arrivals), lane))
        else:
            heappop(self.lanes)
            lane.queued = False

    def take_small(self, most: int) -> tuple[T, int] | None:
        """The first piece that costs no more than this. Lanes before it keep their turns."""
        passed: list[tuple[int, int, Lane[T]]] = []
        found = None
        while found is None and (piece := self.first()) is not None:
            if piece[1] > most:
                passed.append(heappop(self.lanes))
            else:
                found = piece
                self.take_first()
        for entry in passed:
            heappush(self.lanes, entry)
        return found


class FairQueue(Generic[T]):
    """Deals the work of many lanes of many clients."""

    def __init__(self) -> None:
        self._of_clients: dict[str, _Share[T]] = {}
        self._shares: list[tuple[int, int, _Share[T]]] = []
        self._now = 0
        self._arrivals = count()

    def __bool__(self) -> bool:
        return bool(self._shares)

    def push(self, lane: Lane[T], work: Iterable[tuple[T, int]]) -> None:
        """Add work, each piece with its cost, to the end of a lane. One that was idle starts at the present."""
        lane.waiting.extend(work)
        self._enter(lane, was_idle=True)

    def push_back(self, lane: Lane[T], piece: T, cost: int) -> None:
        """Work that was taken and goes on, before all that waits in its lane, which was not idle meanwhile."""
        lane.waiting.appendleft((piece, cost))
        self._enter(lane, was_idle=False)

    def take(self, budget: int) -> list[T]:
        """The next fair batch of at most `budget` cost. A piece larger than the budget comes alone, but it comes."""
        batch: list[T] = []
        while self._shares:
            served, _, share = self._shares[0]
            found = share.first()
            if found is not None:
                piece, cost = found
                if batch and cost > budget:
                    break
                batch.append(piece)
                budget -= cost
                share.take_first()
                self._now = max(self._now, served)
                share.served = served + cost
            if share.lanes:
                heapreplace(self._shares, (share.served, next(self._arrivals), share))
            else:
                heappop(self._shares)
                share.queued = False
        return batch

    def take_small(self, most: int) -> T | None:
        """The first piece, in fair order, that costs no more than this. Those before it keep their turns."""
        passed: list[tuple[int, int, _Share[T]]] = []
        found: tuple[T, int] | None = None
        while self._shares and found is None:
            served, arrival, share = heappop(self._shares)
            found = share.take_small(most)
            if found is not None:
                share.served = served + found[1]
                arrival = next(self._arrivals)
            if share.lanes:
                passed.append((share.served, arrival, share))
            else:
                share.queued = False
        for entry in passed:
            heappush(self._shares, entry)
        return None if found is None else found[0]

    def _enter(self, lane: Lane[T], was_idle: bool) -> None:
        if lane.queued or not lane.waiting:
            return
        share = self._of_clients.get(lane.client)
        if share is None:
            share = self._of_clients[lane.client] = _Share()
        share.enter(lane, was_idle)
        if not share.queued:
            if was_idle:
                share.served = max(share.served, self._now)
            share.queued = True
            heappush(self._shares, (share.served, next(self._arrivals), share))


class ClientTurns(Generic[T]):
    """Whose turn it is, where turns cost about the same: clients one after the other, and in order within each."""

    def __init__(self) -> None:
        self._of_clients: dict[str, deque[T]] = {}  # none is empty, and the first has its turn

    def __bool__(self) -> bool:
        return bool(self._of_clients)

    def push(self, client: str, waiting: T) -> None:
        of_client = self._of_clients.get(client)
        if of_client is None:
            of_client = self._of_clients[client] = deque()
        of_client.append(waiting)

    def first(self) -> T:
        return next(iter(self._of_clients.values()))[0]

    def pop(self) -> T:
        """The first; its client goes behind the others."""
        client, of_client = next(iter(self._of_clients.items()))
        found = of_client.popleft()
        if len(self._of_clients) > 1 or not of_client:
            del self._of_clients[client]
            if of_client:
                self._of_clients[client] = of_client
        return found
