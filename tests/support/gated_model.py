"""A fake model that holds its batches until it is told to go on, and a worker to run it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

from decided.contract.types import Noul, Question
from decided.engines.api import Item
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
