"""The reader: whose turn it is, how far ahead it reads, and that one thread reads at a time."""

import asyncio
from collections.abc import Sequence

from decided.contract.types import Noul
from decided.serving.job import Job, State
from decided.serving.reader import Illegible, Reader
from tests.support.fake_model import TOKENS, FakeModel

QUESTION = Noul("Is it so?")
FAR = 10**6


def job(*states: str, client: str = "") -> Job:
    return Job(states, [QUESTION], asyncio.Future(loop=LOOP), client)


LOOP = asyncio.new_event_loop()


def reader(ahead: int = FAR, jobs: Sequence[Job] = ()) -> Reader:
    made = Reader(FakeModel(), ahead)
    made.put(jobs)
    return made


def read_all(of: Reader) -> list[str]:
    """What comes out, in order."""
    found = []
    while of.has_more:
        state = of.turn()
        if isinstance(state, State):
            found.append(state.job.states[state.index])
    return found


def test_requests_and_clients_take_turns() -> None:
    ours = [job("a1", "a2", "a3", client="a"), job("b1", "b2", client="a"), job("c1", "c2", client="c")]
    assert read_all(reader(jobs=ours)) == ["a1", "c1", "b1", "c2", "a2", "b2", "a3"]


def test_one_thread_reads_at_a_time() -> None:
    ours = reader()
    assert not ours.take(), "there is nothing to read"
    ours.put([job("one")])
    assert ours.is_wanted
    assert ours.take()
    assert not ours.is_wanted
    assert not ours.take(), "another does"
    ours.turn()
    ours.leave()
    assert not ours.is_wanted


def test_it_reads_no_further_ahead_than_it_may_and_goes_on_when_told() -> None:
    long = job(*"abcde")
    ours = reader(ahead=2 * TOKENS, jobs=[long])
    assert read_all(ours) == ["a", "b"]
    long.cost_begun += TOKENS
    ours.put([long, long])
    assert read_all(ours) == ["c"]


def test_a_request_that_was_given_up_is_not_read() -> None:
    left = job("one", "two")
    ours = reader(jobs=[left])
    ours.turn()
    left.abandon()
    assert read_all(ours) == []


def test_what_cannot_be_read_is_named_and_the_next_is_read() -> None:
    ours = reader(jobs=[job("one", "FAIL-READ", "three")])
    ours.turn()
    found = ours.turn()
    assert isinstance(found, Illegible)
    assert (found.number, str(found.cause)) == (1, "told to fail while reading")
    assert read_all(ours) == ["three"]
