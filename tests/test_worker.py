"""The worker, in process: what runs together, what is never run, and what a failure may touch."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from decided.contract.types import Noul, Question
from decided.engines.api import Encoded, Item, More
from decided.errors import DeviceLost, InferenceFailed, ModelError, Unavailable
from decided.serving.worker import BatchReport, Worker
from tests.support.fake_model import FakeModel

THREE: list[Question] = [Noul("Is it so?"), Noul("Is it not?"), Noul("Is it late?")]


class GatedModel(FakeModel):
    """A fake that, once closed, holds every batch until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.closes_again = False
        """Whether the gate closes behind the next batch."""
        self.ran: list[list[str]] = []

    def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
        self.ran.append([item.payload[0] for item in items])
        self.gate.wait(20)
        if self.closes_again:
            self.closes_again = False
            self.gate.clear()
        return super().run(items)


def run(model: GatedModel, scenario: Callable[[Worker], Awaitable[None]], **options: float) -> list[BatchReport]:
    reports: list[BatchReport] = []

    async def main() -> None:
        worker = Worker(model, options.get("stall_after_s", 10.0), reports.append)
        await worker.start()
        model.ran.clear()
        try:
            await asyncio.wait_for(scenario(worker), 30)
        finally:
            model.gate.set()
            await worker.close()

    asyncio.run(main())
    return reports


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def busy(model: GatedModel, worker: Worker) -> "asyncio.Task[object]":
    """Close the gate and put one request behind it."""
    model.gate.clear()
    return asyncio.ensure_future(worker.decide(["first"], [Noul("Is it first?")]))


def test_requests_of_many_clients_run_together_in_full_batches() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        many = [asyncio.ensure_future(worker.decide([f"state {n}"], THREE)) for n in range(50)]
        await until(lambda: model.reads == 1 + 1 + 50)
        assert worker.queue_depth() == 150
        model.gate.set()
        await asyncio.gather(first, *many)
        assert worker.queue_depth() == 0

    reports = run(model, scenario)
    sizes = [len(batch) for batch in model.ran]
    assert sizes == [1, 25, 25, 25, 25, 25, 25]  # 256 tokens of 10 each; never 25, 1, 25, 1
    assert [report.questions for report in reports] == sizes
    assert sum(len(report.waits) for report in reports) == 51


def test_a_lone_request_is_read_and_run_by_one_thread_and_what_comes_meanwhile_is_read_by_another() -> None:
    model = GatedModel()
    read, ran = [], []
    encode, run_items = model.encode, model.run
    model.encode = lambda *given: read.append(threading.get_ident()) or encode(*given)  # type: ignore[method-assign, func-returns-value]
    model.run = lambda items: ran.append(threading.get_ident()) or run_items(items)  # type: ignore[method-assign, func-returns-value]

    async def scenario(worker: Worker) -> None:
        await until(lambda: worker._idle._number == 1)  # it has slept since the warm-up
        read.clear()
        ran.clear()
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        assert read == ran
        second = asyncio.ensure_future(worker.decide(["second"], THREE))
        await until(lambda: len(read) == 2)
        assert read[1] not in ran
        model.gate.set()
        await asyncio.gather(first, second)
        assert ran == [read[0]] * 2, "a model has one thread to run on"

    run(model, scenario)


def test_what_was_read_does_not_wait_for_the_reading_of_a_long_state() -> None:
    model = GatedModel()
    encode, held = model.encode, threading.Event()
    long = "so it went on " * 1000
    model.encode = lambda prepared, state: (state == long and held.wait(20), encode(prepared, state))[1]  # type: ignore[method-assign]

    async def scenario(worker: Worker) -> None:
        await until(lambda: worker._idle._number == 1)
        short, other = (asyncio.ensure_future(worker.decide([state], THREE)) for state in ("short", long))
        await short
        assert not other.done()
        held.set()
        await other

    run(model, scenario)


def test_a_state_is_read_once_however_many_questions() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        before = model.reads
        await worker.decide(["one", "two"], [Noul(f"Is it {n}?") for n in range(64)])
        assert model.reads == before + 2

    run(model, scenario)


def test_questions_that_were_asked_before_are_not_prepared_again() -> None:
    model = GatedModel()
    prepared: list[Question] = []
    model.prepare = lambda questions: prepared.extend(questions) or questions  # type: ignore[method-assign, func-returns-value]

    async def scenario(worker: Worker) -> None:
        prepared.clear()
        for state in "abc":
            await worker.decide([state], list(THREE))
        assert prepared == THREE
        await worker.decide(["a"], [*THREE[::-1], Noul("Is it new?")])
        assert prepared == [*THREE, Noul("Is it new?")]
        for number in range(300):  # and what is kept has a bound: THREE is forgotten over them
            await worker.decide(["a"], [Noul(f"Is it {number}?")])
        await worker.decide(["a"], THREE)
        await worker.decide(["a"], [Noul("Is it long? " * 1000)])
        await worker.decide(["a"], [Noul("Is it long? " * 1000)])
        assert len(prepared) == 4 + 300 + 3 + 2

    run(model, scenario)


def test_what_was_cancelled_before_it_began_never_begins() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        gone = asyncio.ensure_future(worker.decide(["gone"] * 200, THREE))
        kept = asyncio.ensure_future(worker.decide(["kept"], THREE))
        await until(lambda: model.reads > 3)
        gone.cancel()
        await asyncio.sleep(0)
        assert worker.queue_depth() == 3
        model.gate.set()
        await asyncio.gather(first, kept)

    run(model, scenario)
    assert [state for batch in model.ran[1:] for state in batch] == ["kept"] * 3


def test_a_large_batch_is_read_only_as_far_as_it_is_run() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        before = model.reads
        model.gate.clear()
        large = asyncio.ensure_future(worker.decide(["state"] * 256, THREE))
        await until(lambda: len(model.ran) == 1)
        await asyncio.sleep(0.05)
        assert model.reads - before < 30
        model.gate.set()
        assert len(await large) == 256
        assert model.reads - before == 256

    run(model, scenario)


def test_a_small_request_is_done_while_a_large_one_runs() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        large = asyncio.ensure_future(worker.decide(["large"] * 256, [Noul(f"Is it {n}?") for n in range(64)]))
        small = asyncio.ensure_future(worker.decide(["small"], THREE))
        await until(lambda: model.reads >= 4)
        model.gate.set()
        await asyncio.gather(first, small)
        assert not large.done()
        large.cancel()

    run(model, scenario)


def test_a_poisoned_request_fails_alone_and_costs_little() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        good = [asyncio.ensure_future(worker.decide([f"good {n}"], THREE)) for n in range(7)]
        bad = asyncio.ensure_future(worker.decide(["FAIL"], THREE))
        await until(lambda: model.reads == 1 + 1 + 8)
        model.gate.set()
        await asyncio.gather(first, *good)
        with pytest.raises(InferenceFailed, match=r"^inference failed$"):
            await bad
        await worker.check()

    run(model, scenario)
    assert len(model.ran) < 2 + 24  # halving, not one by one


def test_an_item_short_of_answers_fails_its_request() -> None:
    async def scenario(worker: Worker) -> None:
        with pytest.raises(InferenceFailed):
            await worker.decide(["SHORT"], THREE)
        with pytest.raises(InferenceFailed):
            await worker.decide(["FAIL-READ"], THREE)
        assert len(await worker.decide(["fine"], THREE)) == 1

    run(GatedModel(), scenario)


def test_a_batch_with_a_state_that_gives_no_distribution_fails_alone() -> None:
    async def scenario(worker: Worker) -> None:
        with pytest.raises(InferenceFailed):
            await worker.decide(["NAN", "fine", "fine"], THREE)
        assert len(await worker.decide(["fine"], THREE)) == 1
        await worker.check()

    run(GatedModel(), scenario)


class OverlappingModel(GatedModel):
    """A fake device: a batch is begun at once, and held at the gate when its results are waited for."""

    overlaps = True

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[int] = []

    def launch(self, items: Sequence[Item]) -> Callable[[], list[list[list[float]]]]:
        self.launched.append(len(items))
        if any("FAIL-LAUNCH" in item.payload[0] for item in items):
            raise ValueError("told to fail while launching")
        return lambda: self.run(items)

    def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
        if any("FAIL-LAUNCH" in item.payload[0] for item in items):
            raise ValueError("told to fail while launching")
        return super().run(items)


def test_a_second_batch_is_launched_while_the_first_one_runs_and_no_third() -> None:
    model = OverlappingModel()

    async def scenario(worker: Worker) -> None:
        model.launched.clear()
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)  # waited for: nothing else was there
        many = [asyncio.ensure_future(worker.decide([f"state {n}"], THREE)) for n in range(50)]
        await until(lambda: model.reads == 1 + 1 + 50)
        assert model.launched == [1]
        model.closes_again = True
        model.gate.set()
        await first
        await until(lambda: len(model.launched) == 3)  # one is held at the gate, one waits behind it
        await asyncio.sleep(0.05)
        assert model.launched == [1, 25, 25]
        model.gate.set()
        verdicts = await asyncio.gather(*many)
        assert [len(each[0].weights) for each in verdicts] == [3] * 50
        await worker.check()

    run(model, scenario)
    assert sum(model.launched) == 1 + 150


def test_a_failure_while_a_batch_is_launched_ahead_touches_its_request_alone() -> None:
    model = OverlappingModel()

    async def scenario(worker: Worker) -> None:
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        good = [asyncio.ensure_future(worker.decide([f"good {n}"] * 3, THREE)) for n in range(9)]
        bad = asyncio.ensure_future(worker.decide(["good", "FAIL-LAUNCH", "good"], THREE))
        worse = asyncio.ensure_future(worker.decide(["NAN", "good", "good"], THREE))
        await until(lambda: model.reads >= 1 + 1 + 20)
        model.gate.set()
        assert all(len(verdicts) == 3 for verdicts in await asyncio.gather(*good))
        await first
        for failing in (bad, worse):
            with pytest.raises(InferenceFailed):
                await failing
        await worker.check()

    run(model, scenario)


class PiecewiseModel(GatedModel):
    """A fake that several threads may run: a state is one item, of as many runs as it has words. The gate holds states
    of more than one word."""

    runners = 2
    room = 4000

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []

    def encode(self, prepared: Sequence[Question], state: str) -> Encoded:
        self.reads += 1
        item = Item(range(len(prepared)), 100 if " " in state else 10, [state, prepared, state.split()])
        item.stop = lambda: self.stopped.append(state)
        return Encoded([item], 1, room=100)

    def run(self, items: Sequence[Item]) -> list[Any]:
        [item] = items
        state, prepared, words = item.payload
        self.ran.append([state])
        if " " in state:
            self.gate.wait(20)
        if words.pop() == "FAIL":
            raise ValueError("told to fail")
        return [More(100)] if words else [[[1.0] * len(question.keys()) for question in prepared]]


def test_two_run_at_a_time_a_short_one_beside_them_and_each_state_gets_its_own_answers() -> None:
    model = PiecewiseModel()

    async def scenario(worker: Worker) -> None:
        model.gate.clear()
        long = [asyncio.ensure_future(worker.decide([f"a b {name}"] * 3, THREE)) for name in "xyz"]
        await until(lambda: len(model.ran) == 2)
        assert len(await worker.decide(["short"], THREE)) == 1  # while both runners are held
        assert len(model.ran) == 3
        assert not any(task.done() for task in long)
        model.gate.set()
        assert [len(verdicts) for verdicts in await asyncio.gather(*long)] == [3] * 3

    run(model, scenario)
    assert len(model.ran) == 1 + 3 * 3 * 3


def test_what_came_while_one_ran_beside_finds_the_runner_that_is_free_again() -> None:
    """Two runners, both held; a third piece beside them, held too. When one of the two is free, it takes what comes."""
    model = PiecewiseModel()
    gates = {name: threading.Event() for name in ("a b", "c d", "beside")}
    begun: list[str] = []

    def run_gated(items: Sequence[Item]) -> list[Any]:
        state = items[0].payload[0]
        begun.append(state)
        if state in gates:
            assert gates[state].wait(20)
        return [[[1.0] * len(question.keys()) for question in items[0].payload[1]]]

    async def scenario(worker: Worker) -> None:
        model.run = run_gated  # type: ignore[method-assign]
        held = {}
        for name in gates:
            held[name] = asyncio.ensure_future(worker.decide([name], THREE))
            await until(lambda name=name: name in begun)  # type: ignore[misc]
        gates["a b"].set()
        await held["a b"]
        await worker.decide(["new"], THREE)
        assert not held["c d"].done()
        assert not held["beside"].done()
        for gate in gates.values():
            gate.set()
        await asyncio.gather(*held.values())

    run(model, scenario)


def test_work_stops_between_its_pieces_and_within_one_where_the_model_can() -> None:
    model = PiecewiseModel()

    async def scenario(worker: Worker) -> None:
        model.gate.clear()
        gone = asyncio.ensure_future(worker.decide(["a b c d", "e f g h", "i j k l"], THREE))
        await until(lambda: len(model.ran) == 2)
        gone.cancel()
        await until(lambda: len(model.stopped) == 2)
        model.gate.set()
        assert len(await worker.decide(["m n"], THREE)) == 1

    run(model, scenario)
    assert sorted(model.stopped) == ["a b c d", "e f g h"]
    assert [state for [state] in model.ran[2:]] == ["m n", "m n"]


def test_an_item_that_fails_in_its_second_piece_fails_its_request_alone() -> None:
    async def scenario(worker: Worker) -> None:
        good = asyncio.ensure_future(worker.decide(["a b c"] * 5, THREE))
        with pytest.raises(InferenceFailed):
            await worker.decide(["a FAIL c"], THREE)
        assert len(await good) == 5
        told: dict[int, object] = {}
        await worker.decide_each(["a b", "a FAIL c", "a b c"], THREE, told.__setitem__)
        assert sorted(told) == [0, 1, 2]
        assert isinstance(told[1], InferenceFailed)
        await worker.check()

    run(PiecewiseModel(), scenario)


def test_a_lost_device_stops_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    class Lost(GatedModel):
        def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
            if any("LOST" in item.payload[0] for item in items):
                raise DeviceLost("an illegal memory access was encountered")
            return super().run(items)

    async def scenario(worker: Worker) -> None:
        with pytest.raises(InferenceFailed):
            await worker.decide(["LOST"], THREE)
        with pytest.raises(Unavailable):
            await worker.check()

    run(Lost(), scenario)


def test_many_long_questions_do_not_hold_up_other_requests() -> None:
    """Prepared some at a time: one that came later is read between them."""
    model = GatedModel()
    prepared: list[str] = []
    first = threading.Event()

    def prepare(questions: Sequence[Question]) -> Sequence[Question]:
        for question in questions:
            prepared.append(str(question.instructions)[:5])
            if prepared[-1] == "long ":
                first.wait(20)
        return questions

    async def scenario(worker: Worker) -> None:
        model.prepare = prepare  # type: ignore[method-assign]
        large = asyncio.ensure_future(
            worker.decide(["large"], [Noul(f"long {n} " + "word " * 1000) for n in range(64)])
        )
        await until(lambda: len(prepared) == 1)
        small = asyncio.ensure_future(worker.decide(["small"], [Noul("small?")]))
        await until(lambda: len(worker._jobs) == 2)
        await asyncio.sleep(0.01)  # it is handed over in the next turn of the loop
        first.set()
        await asyncio.gather(large, small)
        assert prepared.index("small") < 10

    run(model, scenario)


def test_a_dead_worker_fails_what_waits_and_refuses_what_comes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def scenario(worker: Worker) -> None:
        with pytest.raises(InferenceFailed):
            await worker.decide(["DIE"], THREE)
        with pytest.raises(Unavailable):
            await worker.check()
        with pytest.raises(Unavailable):
            await worker.decide(["fine"], THREE)

    run(GatedModel(), scenario)
    assert "worker has stopped" in caplog.text


def test_a_stuck_worker_is_not_ready() -> None:
    model = GatedModel()

    async def scenario(worker: Worker) -> None:
        await worker.check()
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        await asyncio.sleep(0.06)
        with pytest.raises(Unavailable, match="stuck"):
            await worker.check()
        model.gate.set()
        await first
        await worker.check()

    run(model, scenario, stall_after_s=0.05)


def test_a_model_that_fails_its_warm_up_cannot_start() -> None:
    class Broken(FakeModel):
        def run(self, items: Sequence[Item]) -> list[list[list[float]]]:
            raise RuntimeError("bad weights")

    async def main() -> None:
        with pytest.raises(ModelError, match="warm-up"):
            await Worker(Broken(), 10.0).start()

    asyncio.run(main())


def test_no_states_need_no_model() -> None:
    async def scenario(worker: Worker) -> None:
        assert await worker.decide([], THREE) == []

    run(GatedModel(), scenario)
