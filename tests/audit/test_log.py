"""The log of a server, in process: who waits for the disk, what is written together, and what is lost."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from decided.audit import files
from decided.audit.log import AuditLog
from decided.audit.verify import verify
from decided.errors import Unavailable
from tests.audit.logs import SCRIBE, decision, entries


class Disk:
    """Syncs that can be held up, and are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.begun = 0

        def sync(number: int) -> None:
            self.begun += 1
            assert self.free.wait(60)
            files.sync(number)

        monkeypatch.setattr("decided.audit.appender.sync", sync)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def run(path: Path, scenario: Callable[[AuditLog], Awaitable[None]], required: bool, timeout_s: float = 60.0) -> None:
    async def main() -> None:
        log = AuditLog(path, SCRIBE, required, 2**30, timeout_s)
        try:
            await asyncio.wait_for(scenario(log), 60)
        finally:
            await log.close()

    asyncio.run(main())
    assert not verify([path]).findings


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def test_what_comes_while_the_disk_works_is_written_together(tmp_path: Path, disk: Disk) -> None:
    async def scenario(log: AuditLog) -> None:
        disk.free.clear()
        first = asyncio.ensure_future(log.record([decision(0)]))
        await until(lambda: disk.begun == 2)  # the first sync was of the line that tells of the opening
        others = [asyncio.ensure_future(log.record([decision(number)])) for number in range(1, 100)]
        await asyncio.sleep(0)
        assert not first.done()
        disk.free.set()
        await asyncio.gather(first, *others)

    run(tmp_path / "audit.jsonl", scenario, required=True)
    assert disk.begun == 3
    assert len(entries(tmp_path / "audit.jsonl")) == 201


def test_a_disk_that_does_not_answer_is_not_waited_for_without_end(tmp_path: Path, disk: Disk) -> None:
    async def scenario(log: AuditLog) -> None:
        disk.free.clear()
        with pytest.raises(Unavailable, match="does not answer"):
            await log.record([decision(0)])
        disk.free.set()

    run(tmp_path / "audit.jsonl", scenario, required=True, timeout_s=0.05)
    assert len(entries(tmp_path / "audit.jsonl")) == 3, "it was written in the end"


def test_best_effort_waits_for_no_disk_and_keeps_no_more_than_it_has_room_for(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decided.audit.log.MOST_WAITING_BYTES", 10_000)  # some four decisions

    async def scenario(log: AuditLog) -> None:
        disk.free.clear()
        for number in range(100):
            await log.record([decision(number)])
        assert 0 < log.lost < 200
        lost = log.lost
        disk.free.set()
        await until(lambda: log.written + lost == 200)
        await log.record([decision(0)])
        await until(lambda: log.written + lost == 202)
        assert log.lines() == (202 - lost, lost)

    path = tmp_path / "audit.jsonl"
    run(path, scenario, required=False)
    found = entries(path)
    told = sum(entry["lost"] for entry in found if entry.get("event") == "lost")
    assert told + sum("question" in entry for entry in found) == 202


def test_what_waits_at_the_end_is_still_written(tmp_path: Path) -> None:
    async def scenario(log: AuditLog) -> None:
        for number in range(50):
            await log.record([decision(number)])

    run(tmp_path / "audit.jsonl", scenario, required=False)
    assert len(entries(tmp_path / "audit.jsonl")) == 101
