"""The scheduler, without threads, model or clock: random requests, pieces, cancels and failures, and what holds."""

import asyncio
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from decided.contract.types import Noul
from decided.engines.api import Encoded, Item
from decided.errors import InferenceFailed
from decided.serving.job import Job, Piece, State, StreamedJob
from decided.serving.scheduler import Scheduler

ROOM = 320
PIECES = st.lists(st.integers(1, 60), min_size=1, max_size=6)  # the costs of an item's runs
STATES = st.tuples(st.lists(PIECES, min_size=1, max_size=3), st.integers(0, 400))  # items; bytes kept
JOBS = st.lists(st.tuples(st.booleans(), st.lists(STATES, min_size=1, max_size=4)), min_size=1, max_size=6)


def job_of(states: int, streamed: bool = False, client: str = "") -> Job:
    future: Any = asyncio.Future(loop=_LOOP)
    questions = [Noul("Is it so?")]
    if streamed:
        return StreamedJob(["state"] * states, questions, future, lambda index, found: None, client)
    return Job(["state"] * states, questions, future, client)


_LOOP = asyncio.new_event_loop()


def state_of(job: Job, index: int, items: list[list[int]], room: int = 0) -> State:
    made = [Item([0], costs[0], payload=list(costs)) for costs in items]
    return State(job, index, Encoded(made, 1, room=room))


class Run:
    """Runners that take what they are dealt and finish it in any order, with failures and cancels among it."""

    def __init__(self, jobs: list[tuple[bool, list[Any]]], seed: int, runners: int) -> None:
        self.random = random.Random(seed)
        self.scheduler = Scheduler(runners, ROOM)
        self.runners = runners
        self.running: list[tuple[Piece, bool]] = []
        self.jobs = [job_of(len(states), streamed, "abc"[number % 3]) for number, (streamed, states) in enumerate(jobs)]
        self.wanted = {
            (number, index): sum(sum(costs) for costs in items)
            for number, (_, states) in enumerate(jobs)
            for index, (items, _) in enumerate(states)
        }
        self.given = dict.fromkeys(self.wanted, 0)
        self.ended: set[tuple[int, int]] = set()
        self.waiting = [
            state_of(self.jobs[number], index, items, room)
            for number, (_, states) in enumerate(jobs)
            for index, (items, room) in enumerate(states)
        ]
        self.random.shuffle(self.waiting)

    def name(self, state: State) -> tuple[int, int]:
        return self.jobs.index(state.job), state.index

    def step(self) -> None:
        if self.waiting and self.random.random() < 0.5:
            state = self.waiting.pop()
            if not state.is_over:
                self.scheduler.add(state)
        elif len([1 for _, beside in self.running if not beside]) < self.runners:
            self.began(self.scheduler.take(0), False)
        elif not any(beside for _, beside in self.running):
            self.began(self.scheduler.take_beside(), True)
        if self.running and self.random.random() < 0.5:
            self.finish(self.running.pop(self.random.randrange(len(self.running)))[0])
        if self.random.random() < 0.02:
            self.cancel(self.random.choice(self.jobs))

    def began(self, batch: list[Piece], beside: bool) -> None:
        for piece in batch:
            assert not piece.state.is_over, "what was given up began"
            if beside:
                assert all(2 * piece.cost <= other.cost for other, _ in self.running)
            self.running.append((piece, beside))
            self.given[self.name(piece.state)] += piece.cost

    def finish(self, piece: Piece) -> None:
        state, costs = piece.state, piece.item.payload
        if self.random.random() < 0.03:
            self.scheduler.end(piece)
            if not state.job.abandoned and not state.job.is_lost(state.index):
                self.scheduler.lose(state, InferenceFailed("told to"))
            return
        assert costs.pop(0) == piece.cost
        if costs:
            self.scheduler.put_back(piece, costs[0])
        elif self.scheduler.end(piece) and not state.job.abandoned and not state.job.is_lost(state.index):
            self.ended.add(self.name(state))

    def cancel(self, job: Job) -> None:
        still = self.scheduler.drop(job)
        assert {id(piece) for piece in still} == {id(piece) for piece, _ in self.running if piece.state.job is job}

    def to_the_end(self) -> None:
        for _ in range(20_000):
            self.step()
            if not (self.waiting or self.running or self.scheduler):
                return
        raise AssertionError("it never ended")


@settings(max_examples=150, deadline=None)
@given(JOBS, st.integers(0, 2**32), st.integers(1, 4))
def test_none_is_lost_and_the_charges_add_up(jobs: list[Any], seed: int, runners: int) -> None:
    run = Run(jobs, seed, runners)
    run.to_the_end()
    for name, wanted in run.wanted.items():
        job = run.jobs[name[0]]
        if name in run.ended:
            assert run.given[name] == wanted
        else:
            assert job.abandoned or job.is_lost(name[1]), "a state was forgotten"
    for room in (run.scheduler._of_short, run.scheduler._of_long):
        assert not room.inside
        assert room._left == room._size
    assert not run.scheduler._running


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(PIECES, min_size=1, max_size=4), min_size=2, max_size=6), st.integers(1, 3))
def test_no_job_is_ahead_of_another_that_waits_by_more_than_their_pieces(
    jobs: list[list[list[int]]], runners: int
) -> None:
    """All arrive at once. At any time two jobs that both have work were given the same, up to what runs of them."""
    scheduler = Scheduler(runners)
    states = [state_of(job_of(1), 0, [[cost for item in items for cost in item]]) for items in jobs]
    for state in states:
        scheduler.add(state)
    given_to = dict.fromkeys(states, 0)
    left = {state: sum(state.encoded.items[0].payload) for state in states}
    running: list[Piece] = []
    while scheduler or running:
        while len(running) < runners and (batch := scheduler.take(0)):
            for piece in batch:
                waiting = [
                    given_to[state]
                    for state in states
                    if left[state] and state is not piece.state and not any(other.state is state for other in running)
                ]
                if waiting:
                    assert given_to[piece.state] <= min(waiting) + 60
                given_to[piece.state] += piece.cost
                running.append(piece)
        piece = running.pop(0)
        costs = piece.item.payload
        left[piece.state] -= costs.pop(0)
        if costs:
            scheduler.put_back(piece, costs[0])
        else:
            scheduler.end(piece)
    assert not any(left.values())


def test_a_state_that_does_not_fit_waits_outside_and_short_ones_pass_it() -> None:
    scheduler = Scheduler(runners=8, room=320)
    first, second, third = (state_of(job_of(1), 0, [[10, 10]], room=200) for _ in range(3))
    short = state_of(job_of(1), 0, [[10, 10]], room=10)
    for state in (first, second, third, short):
        scheduler.add(state)
    taken = [piece for _ in range(8) for piece in scheduler.take(0)]
    assert [piece.state for piece in taken] == [first, short]
    scheduler.drop(second.job)
    scheduler.drop(first.job)
    assert not scheduler.take(0)  # the first still runs, and keeps what it has
    scheduler.put_back(taken[0], 10)
    assert [piece.state for piece in scheduler.take(0)] == [third]


def test_clients_come_into_a_full_room_by_turns() -> None:
    scheduler = Scheduler(runners=8, room=320)
    crowd = [state_of(job_of(1, client="crowd"), 0, [[10]], room=200) for _ in range(10)]
    other = state_of(job_of(1, client="other"), 0, [[10]], room=200)
    for state in (*crowd, other):
        scheduler.add(state)
    entered = []
    while batch := scheduler.take(0):
        entered.append(batch[0].state)
        scheduler.end(batch[0])
    assert entered.index(other) <= 2
    assert len(entered) == 11


def test_a_short_piece_runs_beside_long_ones_and_a_long_one_does_not() -> None:
    scheduler = Scheduler(runners=1)
    scheduler.add(state_of(job_of(1), 0, [[100]]))
    [long] = scheduler.take(0)
    assert not scheduler.take_beside()
    scheduler.add(state_of(job_of(1), 0, [[80]]))
    assert not scheduler.take_beside()
    small = state_of(job_of(1), 0, [[50]])
    scheduler.add(small)
    assert [piece.state for piece in scheduler.take_beside()] == [small]
    scheduler.end(long)
    assert not scheduler.is_busy  # what runs beside takes nobody's place
    assert scheduler.take(0)[0].cost == 80
