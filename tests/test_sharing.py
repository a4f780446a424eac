"""Clients share the service: places, the reading of texts, the model and the calls to an engine."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from decided.contract.types import Noul
from decided.engines.api import Caller
from decided.engines.remote.turns import Turn, Turns
from decided.errors import AtCapacity
from decided.fair_queue import Lane
from decided.serving.admission import Places
from decided.serving.worker import Worker
from tests.spec.checks import bytes_for, eventually, in_flight, refused, served
from tests.spec.wire import Wire, message
from tests.support.gate import Gate
from tests.support.gated_model import THREE, GatedModel, busy, run, until
from tests.support.server import Server, running_server

FLOOD, OTHER = Caller("flood"), Caller("other")


@pytest.mark.parametrize("limit", range(1, 9))
def test_a_client_alone_may_have_nearly_all_places(limit: int) -> None:
    places = Places(limit)
    places.shared = True
    for _ in range(max(1, limit - 1)):
        places.enter("flood")
    with pytest.raises(AtCapacity):
        places.enter("flood")
    if limit > 1:
        places.enter("other")
    with pytest.raises(AtCapacity):
        places.enter("other")


@pytest.mark.parametrize("limit", range(2, 40))
def test_whoever_has_no_place_finds_one_however_many_the_others_want(limit: int) -> None:
    places = Places(limit)
    places.shared = True
    chance = random.Random(limit)
    held: list[str] = []
    for _ in range(1000):
        client = chance.choice(["flood", "flood", "flood", "other"])
        try:
            places.enter(client)
            held.append(client)
        except AtCapacity:
            assert client in held
        if chance.random() < 0.2 and held:
            places.leave(held.pop(chance.randrange(len(held))))
        assert held.count("flood") <= max(1, limit - 1)


def test_clients_that_want_all_places_end_up_with_about_the_same_number() -> None:
    places = Places(256)
    places.shared = True
    held = dict.fromkeys("abc", 0)
    while True:  # the first takes what it can get, then the others do
        try:
            places.enter("a")
        except AtCapacity:
            break
        held["a"] += 1
    assert held["a"] == 224
    for _ in range(1000):  # a request of each ends, and each wants more than one place
        for client in held:
            if held[client]:
                places.leave(client)
                held[client] -= 1
        for client in (*held, *held):
            try:
                places.enter(client)
                held[client] += 1
            except AtCapacity:
                pass
    assert min(held.values()) >= 0.75 * 256 / 3
    places.enter("new")


def test_without_several_clients_all_places_are_everybodys() -> None:
    places = Places(256)
    for _ in range(256):
        places.enter("")
    with pytest.raises(AtCapacity):
        places.enter("")
    places.leave("")
    places.enter("")
    assert places.taken == 256


def test_one_request_is_read_and_run_before_the_flood_of_another_client() -> None:
    """What has begun ends; behind it clients take turns, however many requests one has."""
    model = GatedModel()
    model.token_budget = 10  # one question at a time

    async def scenario(worker: Worker) -> None:
        first = busy(model, worker)
        await until(lambda: len(model.ran) == 1)
        flood = [asyncio.ensure_future(worker.decide(["flood"], THREE, caller=FLOOD)) for _ in range(100)]
        await until(lambda: model.reads == 1 + 1 + 100)
        other = asyncio.ensure_future(worker.decide(["other"], THREE, caller=OTHER))
        await until(lambda: model.reads == 1 + 1 + 101)
        model.gate.set()
        await asyncio.gather(first, other, *flood)

    run(model, scenario)
    order = [state for [state] in model.ran[1:]]
    assert len(order) == 303
    assert order[:7].count("other") == 3


def test_the_texts_of_clients_are_read_by_turns() -> None:
    model = GatedModel()
    read: list[str] = []
    encode = model.encode

    def encode_slowly(prepared: object, state: str) -> object:
        if state == "first":
            model.gate.wait(20)
        read.append(state)
        return encode(prepared, state)  # type: ignore[arg-type]

    model.encode = encode_slowly  # type: ignore[assignment, method-assign]

    async def scenario(worker: Worker) -> None:
        read.clear()
        model.gate.clear()
        jobs = [asyncio.ensure_future(worker.decide(["first"], [Noul("Is it first?")]))]
        jobs += [asyncio.ensure_future(worker.decide(["flood"], THREE, caller=FLOOD)) for _ in range(100)]
        await until(lambda: len(worker._jobs) == 101)
        jobs += [asyncio.ensure_future(worker.decide(["other"], THREE, caller=OTHER))]
        await until(lambda: len(worker._jobs) == 102 and not worker._arrived)
        model.gate.set()
        await asyncio.gather(*jobs)

    run(model, scenario)
    assert len(read) == 102
    assert read.index("other") <= 3


def test_places_at_a_remote_engine_are_dealt_by_client() -> None:
    async def main() -> list[str]:
        turns, begun = Turns(1), list[str]()
        opened = asyncio.Event()

        async def call(client: str) -> None:
            lane: Lane[Turn] = Lane(client)
            async with turns.turn(lane):
                begun.append(client)
                await opened.wait()

        calls = [asyncio.create_task(call("flood")) for _ in range(100)]
        while turns.waiting < 99:
            await asyncio.sleep(0)
        calls += [asyncio.create_task(call("other"))]
        while turns.waiting < 100:
            await asyncio.sleep(0)
        opened.set()
        await asyncio.gather(*calls)
        return begun

    assert asyncio.run(main()).index("other") <= 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path: Path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("flood=first\nother=second\n")
    with running_server("--max-in-flight", "8", env={"SERVICE_API_KEY_FILE": str(path)}) as server:
        yield server


def test_a_client_that_floods_leaves_a_place_to_another(shared: Server) -> None:
    with Gate() as gate, ExitStack() as stack:
        held = message(bytes_for(state=gate.state), "Authorization: Bearer first")
        flood = [stack.enter_context(Wire(shared)) for _ in range(7)]
        for wire in flood:
            wire.send(held)
        assert eventually(lambda: in_flight(shared) == 7)
        reply = shared.ask("one more", headers={"Authorization": "Bearer first"})
        kept = "your key has 7 requests under way, and the other places are kept for other keys"
        assert refused(reply, 503) == f"{kept}: try again in a second"
        assert reply.headers["retry-after"] == "1"
        other = stack.enter_context(Wire(shared))
        other.send(message(bytes_for(state="other"), "Authorization: Bearer second"))
        assert eventually(lambda: in_flight(shared) == 8)
        for key in ("first", "second"):
            reply = shared.ask("one more", headers={"Authorization": f"Bearer {key}"})
            assert refused(reply, 503) == "the server is over capacity: try again in a second"
        gate.open()
        served(other.reply())
        for wire in flood:
            served(wire.reply())
