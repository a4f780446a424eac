"""Workers whose device begins a batch before the last one is done, and those of several runners: what may overlap."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from decided.contract.types import Question
from decided.engines.api import Encoded, Item, More
from decided.errors import InferenceFailed
from decided.serving.worker import Worker
from tests.support.gated_model import THREE, GatedModel, busy, run, until


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
