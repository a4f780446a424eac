"""The fair queue: policy alone, checked over many made-up loads."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from decided.fair_queue import ClientTurns, FairQueue, Lane

costs = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def drain(queue: FairQueue[str], budget: int) -> list[list[str]]:
    batches = []
    while queue:
        batches.append(queue.take(budget))
    return [batch for batch in batches if batch]


@settings(deadline=None)
@given(st.lists(costs, max_size=8), st.integers(1, 100))
def test_nothing_is_lost_or_doubled_and_lanes_keep_their_order(lanes: list[list[int]], budget: int) -> None:
    queue: FairQueue[tuple[int, int]] = FairQueue()
    for number, work in enumerate(lanes):
        queue.push(Lane(), [((number, index), cost) for index, cost in enumerate(work)])
    seen: list[tuple[int, int]] = []
    while queue:
        seen += queue.take(budget)
    for number, work in enumerate(lanes):
        assert [index for lane, index in seen if lane == number] == list(range(len(work)))


@settings(deadline=None)
@given(st.lists(costs, min_size=1, max_size=8), st.integers(1, 100))
def test_a_batch_keeps_the_budget_unless_one_piece_alone_is_larger(lanes: list[list[int]], budget: int) -> None:
    queue: FairQueue[int] = FairQueue()
    for work in lanes:
        queue.push(Lane(), [(cost, cost) for cost in work])
    while queue:
        batch = queue.take(budget)
        assert batch
        assert sum(batch) <= budget or len(batch) == 1


@settings(deadline=None)
@given(st.lists(costs, min_size=2, max_size=6))
def test_lanes_that_wait_are_served_alike(lanes: list[list[int]]) -> None:
    """While two lanes both have work, neither is ahead of the other by more than one piece of each."""
    queue: FairQueue[tuple[int, int]] = FairQueue()
    for number, work in enumerate(lanes):
        queue.push(Lane(), [((number, cost), cost) for cost in work])
    served = [0] * len(lanes)
    left = [len(work) for work in lanes]
    while queue:
        for number, cost in queue.take(1):
            served[number] += cost
            left[number] -= 1
            waiting = [served[other] for other in range(len(lanes)) if left[other]]
            if left[number] and len(waiting) > 1:
                assert max(waiting) - min(waiting) <= 100


def test_a_late_small_lane_does_not_wait_for_an_early_large_one() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push(Lane(), [("large", 10)] * 1000)
    queue.take(100)
    queue.push(Lane(), [("small", 10)] * 3)
    batch = queue.take(100)
    assert batch.count("small") == 3


def test_idle_time_is_not_saved_up() -> None:
    queue: FairQueue[str] = FairQueue()
    idle: Lane[str] = Lane()
    busy: Lane[str] = Lane()
    queue.push(idle, [("idle", 10)])
    queue.push(busy, [("busy", 10)] * 100)
    queue.take(500)
    queue.push(idle, [("idle", 10)] * 50)
    batch = queue.take(200)
    assert 9 <= batch.count("idle") <= 11


def test_an_abandoned_lane_is_dropped_whole() -> None:
    queue: FairQueue[str] = FairQueue()
    gone: Lane[str] = Lane()
    queue.push(gone, [("gone", 10)] * 100)
    queue.push(Lane(), [("kept", 10)])
    gone.abandoned = True
    assert drain(queue, 1000) == [["kept"]]
    assert not gone.waiting


def test_a_piece_larger_than_the_budget_runs_alone() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push(Lane(), [("small", 1), ("huge", 1000), ("small", 1)])
    assert drain(queue, 10) == [["small"], ["huge"], ["small"]]


# --- clients ---

CLIENTS = st.lists(st.tuples(st.sampled_from("abc"), costs), min_size=1, max_size=12)


@settings(deadline=None)
@given(CLIENTS, st.integers(1, 100), st.integers(1, 60), st.randoms())
def test_with_clients_nothing_is_lost_either_and_lanes_keep_their_order(
    lanes: list[tuple[str, list[int]]], budget: int, small: int, chance: Any
) -> None:
    queue: FairQueue[tuple[int, int]] = FairQueue()
    for number, (client, work) in enumerate(lanes):
        queue.push(Lane(client), [((number, index), cost) for index, cost in enumerate(work)])
    seen: list[tuple[int, int]] = []
    while queue:
        if chance.random() < 0.5:
            seen += queue.take(budget)
        elif (found := queue.take_small(small)) is not None:
            assert lanes[found[0]][1][found[1]] <= small
            seen.append(found)
    for number, (_, work) in enumerate(lanes):
        assert [index for lane, index in seen if lane == number] == list(range(len(work)))


@settings(deadline=None)
@given(CLIENTS)
def test_clients_that_wait_are_served_alike_however_many_lanes_they_have(lanes: list[tuple[str, list[int]]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    left = dict.fromkeys("abc", 0)
    for client, work in lanes:
        queue.push(Lane(client), [((client, cost), cost) for cost in work])
        left[client] += len(work)
    served = dict.fromkeys("abc", 0)
    while queue:
        for client, cost in queue.take(1):
            served[client] += cost
            left[client] -= 1
            waiting = [served[other] for other in left if left[other]]
            if left[client] and len(waiting) > 1:
                assert max(waiting) - min(waiting) <= 100


def test_a_thousand_requests_of_one_client_do_not_crowd_out_the_one_of_another() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(1000):
        queue.push(Lane("flood"), [("flood", 10)] * 3)
    queue.take(500)
    queue.push(Lane("other"), [("other", 10)] * 3)
    assert queue.take(70).count("other") == 3


def test_a_client_that_sends_one_request_after_the_other_saves_up_nothing_and_owes_what_it_had() -> None:
    """A new lane does not make a new client of it."""
    queue: FairQueue[str] = FairQueue()
    queue.push(Lane("steady"), [("steady", 10)] * 100)
    given_to_quick = 0
    for _ in range(20):
        queue.push(Lane("quick"), [("quick", 10)])
        given_to_quick += queue.take(20).count("quick")
    assert given_to_quick == 20
    queue.push(Lane("quick"), [("quick", 100)])
    while queue.take(0) != ["quick"]:
        pass
    queue.push(Lane("quick"), [("quick", 10)])
    assert [queue.take(0) for _ in range(9)] == [["steady"]] * 9


def test_work_that_goes_on_is_charged_to_its_client() -> None:
    queue: FairQueue[str] = FairQueue()
    long: Lane[str] = Lane("long")
    queue.push(long, [("long", 10)])
    queue.push(Lane("other"), [("other", 10)] * 10)
    dealt = []
    for _ in range(8):
        [piece] = queue.take(0)
        dealt.append(piece)
        if piece == "long":
            queue.push_back(long, "long", 10)
    assert dealt == ["long", "other"] * 4


def test_clients_take_turns_in_order() -> None:
    turns: ClientTurns[str] = ClientTurns()
    for waiting in ("a1", "a2", "a3", "b1", "c1", "b2"):
        turns.push(waiting[0], waiting)
    assert turns.first() == "a1"
    assert [turns.pop() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert not turns
