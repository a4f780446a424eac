"""Which piece of which request runs next, and what may be in memory for it: pure, without threads and without a clock.

A state comes in with its items. An item runs piece by piece; after each the next one is dealt anew, so what a request
gets is bounded by what the others get, however long it is. Three rules beside the fair order:

- What items keep between their pieces (the keys and values of a long state) has a bound, for all of them together. A
  state that does not fit waits outside until another has ended, and clients come in by turns; short states and long
  ones have a room each.
- When every runner is busy with something long, one more may run something short: the system's own scheduler then
  shares the cores, so nobody waits for the end of a piece that cannot be cut.
- What was given up is never dealt again, and what it kept is let go when its last run has ended.
"""

from decided.errors import DecidedError
from decided.fair_queue import ClientTurns, FairQueue
from decided.serving.job import Job, Piece, State

_SHORT = 2
"""How many times longer than a piece all that runs must be for the piece to run beside it."""
_SMALL = 8
"""A state that keeps less than this part of the room is a short one."""


class Room:
    """Memory that states keep between their pieces. One always fits, however large."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self.inside: set[State] = set()
        self._outside: ClientTurns[State] = ClientTurns()

    def enter(self, state: State) -> bool:
        """Whether the state is in; else it waits outside."""
        if self._outside or not self._fits(state):
            self._outside.push(state.job.lane.client, state)
            return False
        self._admit(state)
        return True

    def leave(self, state: State) -> list[State]:
        """Those who came in for it."""
        self.inside.remove(state)
        self._left += state.encoded.room
        entered = []
        while self._outside and (self._outside.first().is_over or self._fits(self._outside.first())):
            following = self._outside.pop()
            if not following.is_over:
                self._admit(following)
                entered.append(following)
        return entered

    def _fits(self, state: State) -> bool:
        return not self.inside or state.encoded.room <= self._left

    def _admit(self, state: State) -> None:
        self.inside.add(state)
        self._left -= state.encoded.room


class Scheduler:
    def __init__(self, runners: int = 1, room: int = 0) -> None:
        self._runners = runners
        self._small = room // _SMALL
        self._of_short, self._of_long = Room(room // 2), Room(room)
        self._queue: FairQueue[Piece] = FairQueue()
        self._running: set[Piece] = set()

    def __bool__(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._queue)

    @property
    def is_busy(self) -> bool:
        """Whether every runner has a piece."""
        return sum(not piece.beside for piece in self._running) >= self._runners

    def add(self, state: State) -> None:
        if not state.encoded.room or self._room_of(state).enter(state):
            self._push(state)

    def take(self, budget: int) -> list[Piece]:
        """The next pieces that run together."""
        return self._begin(self._queue.take(budget))

    def take_beside(self) -> list[Piece]:
        """One more piece, beside runners that are all busy with far longer ones."""
        if not self.is_busy:
            return []
        piece = self._queue.take_small(min(piece.cost for piece in self._running) // _SHORT)
        if piece is None:
            return []
        piece.beside = True
        return self._begin([piece])

    def put_back(self, piece: Piece, cost: int) -> None:
        """A run has ended, and its item goes on."""
        state = piece.state
        self._running.remove(piece)
        state.running -= 1
        if not state.is_over:
            self._queue.push_back(state.job.lane, Piece(state, piece.item, cost, fresh=False), cost)
        self._let_go(state)

    def end(self, piece: Piece) -> bool:
        """A run has ended, and its item with it. Whether that was the state's last."""
        state = piece.state
        self._running.remove(piece)
        state.running -= 1
        state.left -= 1
        self._let_go(state)
        return not state.left

    def lose(self, state: State, error: DecidedError) -> None:
        """The model failed on a state."""
        state.job.lose(state.index, error)
        if state.job.abandoned:
            self.drop(state.job)
        else:
            self._let_go(state)

    def drop(self, job: Job) -> list[Piece]:
        """Nobody waits for this job any more. What runs of it is returned."""
        job.abandon()
        job.lane.waiting.clear()
        for state in [state for room in (self._of_short, self._of_long) for state in room.inside if state.job is job]:
            self._let_go(state)
        return [piece for piece in self._running if piece.state.job is job]

    def _begin(self, batch: list[Piece]) -> list[Piece]:
        for piece in batch:
            self._running.add(piece)
            piece.state.running += 1
            if piece.fresh:
                job = piece.state.job
                job.begun += len(piece.item.questions)
                job.cost_begun += piece.cost
        return batch

    def _push(self, state: State) -> None:
        items = state.encoded.items
        self._queue.push(state.job.lane, [(Piece(state, item, item.cost, fresh=True), item.cost) for item in items])

    def _let_go(self, state: State) -> None:
        """Free the room of a state that is over, once nothing of it runs."""
        if not state.encoded.room:
            return
        room = self._room_of(state)
        if state.is_over and not state.running and state in room.inside:
            for following in room.leave(state):
                self._push(following)

    def _room_of(self, state: State) -> Room:
        return self._of_short if state.encoded.room <= self._small else self._of_long
