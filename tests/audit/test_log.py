"""The log of a server, in process: who waits for the disk, what is written together, and what is lost."""

import asyncio
import errno
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


class Full:
    """Syncs that fail while there is no room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = True
        self.tried = 0

        def sync(number: int) -> None:
            self.tried += 1
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            files.sync(number)

        monkeypatch.setattr("decided.audit.appender.sync", sync)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(monkeypatch)


async def is_ready(log: AuditLog) -> bool:
    try:
        await log.check()
    except Unavailable:
        return False
    return True


def test_a_log_that_failed_is_tried_again_by_whoever_asks_whether_it_can_be_written(tmp_path: Path, full: Full) -> None:
    path = tmp_path / "audit.jsonl"

    async def scenario(log: AuditLog) -> None:
        await log.record([decision(0)])
        before, tried = path.read_bytes(), full.tried
        assert await is_ready(log)
        assert full.tried == tried, "a log that works is not tried"
        full.room = False
        with pytest.raises(Unavailable):
            await log.record([decision(1)])
        for _ in range(3):
            assert not await is_ready(log)
        assert path.read_bytes() == before, "what was tried was taken back"
        full.room = True
        assert await is_ready(log), "though nothing was decided since"
        assert path.read_bytes() == before
        await log.record([decision(2)])

    run(path, scenario, required=True)
    assert [entry.get("request_id") for entry in entries(path)] == [None, *["request-0"] * 2, *["request-2"] * 2]


def test_many_who_ask_at_once_try_it_together(tmp_path: Path, full: Full) -> None:
    async def scenario(log: AuditLog) -> None:
        full.room = False
        with pytest.raises(Unavailable):
            await log.record([decision(0)])
        tried = full.tried
        assert not any(await asyncio.gather(*(is_ready(log) for _ in range(500))))
        assert full.tried <= tried + 2
        full.room = True
        assert all(await asyncio.gather(*(is_ready(log) for _ in range(500))))

    run(tmp_path / "audit.jsonl", scenario, required=True)


def test_who_asks_does_not_wait_for_a_disk_that_does_not_answer(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decided.audit.log._TRIAL_WAIT_S", 0.01)

    async def scenario(log: AuditLog) -> None:
        disk.free.clear()
        stuck = asyncio.ensure_future(log.record([decision(0)]))
        with pytest.raises(Unavailable, match="does not answer"):
            await stuck
        for _ in range(3):
            assert not await is_ready(log)
        disk.free.set()
        async with asyncio.timeout(60):
            while not await is_ready(log):
                pass

    run(tmp_path / "audit.jsonl", scenario, required=True, timeout_s=0.5)


def test_a_full_file_that_cannot_be_put_aside_is_found_out_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def scenario() -> None:
        log = AuditLog(path, SCRIBE, True, 4096, 60.0)
        try:
            await log.record([decision(0)])
            await log.record([decision(1)])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("decided.audit.appender.next_aside", lambda _: tmp_path / "nowhere" / "aside")
                with pytest.raises(Unavailable):
                    await log.record([decision(2)])
                assert not await is_ready(log)
            assert await is_ready(log)
            await log.record([decision(3)])
        finally:
            await log.close()

    asyncio.run(scenario())
    assert not verify([path]).findings


def test_best_effort_is_ready_whatever_the_disk_does(tmp_path: Path, full: Full) -> None:
    async def scenario(log: AuditLog) -> None:
        full.room = False
        await log.record([decision(0)])
        await until(lambda: log.lost == 2)
        assert await is_ready(log)
        full.room = True

    run(tmp_path / "audit.jsonl", scenario, required=False)


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
