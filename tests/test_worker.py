"""The worker, in process: what runs together, what is never run, and what a failure may touch."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest

from decided.contract.types import Noul, Question
from decided.engines.api import Item
from decided.errors import DeviceLost, InferenceFailed, ModelError, Unavailable
from decided.serving.worker import Worker
from tests.support.fake_model import FakeModel
from tests.support.gated_model import THREE, GatedModel, busy, run, until


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


def test_a_stream_goes_on_after_a_state_that_filled_what_is_read_ahead_and_failed() -> None:
    told: dict[int, str] = {}

    async def scenario(worker: Worker) -> None:
        questions = [Noul(f"{number}?") for number in range(60)]
        states = ["FAIL", "good", "FAIL", "good"]
        await worker.decide_each(states, questions, lambda index, found: told.update({index: type(found).__name__}))

    run(GatedModel(), scenario)
    assert told == {0: "InferenceFailed", 1: "Verdict", 2: "InferenceFailed", 3: "Verdict"}


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
