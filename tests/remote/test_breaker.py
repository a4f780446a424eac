"""The breaker: pure policy with a clock of our own."""

from hypothesis import given
from hypothesis import strategies as st

from decided.engines.remote.breaker import Admission, Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def breaker(clock: Clock) -> Breaker:
    return Breaker(threshold=3, pause_s=1.0, clock=clock)


def open_backend(clock: Clock) -> Breaker:
    made = breaker(clock)
    assert [made.failed(clock.now) for _ in range(3)] == [False, False, True]
    return made


def test_it_lets_everyone_through_while_calls_succeed() -> None:
    clock = Clock()
    made = breaker(clock)
    for _ in range(100):
        assert made.admit() is Admission.FREE
        assert not made.succeeded()


def test_it_opens_after_failures_in_a_row_and_refuses() -> None:
    clock = Clock()
    made = open_backend(clock)
    assert made.is_open
    assert made.admit() is Admission.REFUSED


def test_a_success_between_failures_keeps_it_closed() -> None:
    clock = Clock()
    made = breaker(clock)
    for _ in range(50):
        clock.now += 1
        made.failed(clock.now)
        made.failed(clock.now)
        made.succeeded()
    assert made.admit() is Admission.FREE


def test_calls_that_others_overtook_do_not_open_it() -> None:
    clock = Clock()
    made = breaker(clock)
    began = clock.now
    clock.now += 5
    made.succeeded()
    assert not any(made.failed(began) for _ in range(50))
    assert not made.is_open


def test_after_the_pause_one_trial_goes_and_the_rest_wait() -> None:
    clock = Clock()
    made = open_backend(clock)
    clock.now += 1.0
    assert made.admit() is Admission.TRIAL
    assert made.admit() is Admission.REFUSED
    assert made.succeeded()
    made.leave(Admission.TRIAL)
    assert made.admit() is Admission.FREE


def test_a_failed_trial_starts_the_pause_anew() -> None:
    clock = Clock()
    made = open_backend(clock)
    clock.now += 1.0
    assert made.admit() is Admission.TRIAL
    clock.now += 0.5
    made.failed(clock.now)
    made.leave(Admission.TRIAL)
    clock.now += 0.9
    assert made.admit() is Admission.REFUSED
    clock.now += 0.1
    assert made.admit() is Admission.TRIAL


def test_a_trial_that_was_cancelled_makes_room() -> None:
    clock = Clock()
    made = open_backend(clock)
    clock.now += 1.0
    assert made.admit() is Admission.TRIAL
    made.leave(Admission.TRIAL)
    assert made.admit() is Admission.TRIAL


def test_word_that_the_engine_is_back_ends_the_pause() -> None:
    clock = Clock()
    made = open_backend(clock)
    made.try_now()
    assert made.admit() is Admission.TRIAL


@given(st.lists(st.sampled_from(["admit", "leave", "ok", "fail", "wait", "look"]), max_size=60))
def test_it_never_stays_shut_for_ever_nor_lets_two_trials_out(events: list[str]) -> None:
    clock = Clock()
    made = breaker(clock)
    out: list[Admission] = []
    for event in events:
        if event == "admit" and (given := made.admit()) is not Admission.REFUSED:
            out.append(given)
        elif event == "leave" and out:
            made.leave(out.pop())
        elif event == "ok":
            made.succeeded()
        elif event == "fail":
            made.failed(clock.now)
        elif event == "wait":
            clock.now += 1.0
        elif event == "look":
            made.try_now()
        if made.is_open:
            assert out.count(Admission.TRIAL) <= 1
    for left in out:
        made.leave(left)
    clock.now += 1.0
    assert made.admit() is not Admission.REFUSED
