"""The time limit: each task has its own end, and only whoever is late is cancelled."""

import asyncio
from contextlib import suppress

import pytest

from decided.errors import TimedOut
from decided.serving.deadlines import Deadlines

LIMIT_S = 0.05


async def work(deadlines: Deadlines, seconds: float) -> str:
    task = asyncio.current_task()
    assert task is not None
    deadlines.begin(task)
    error: BaseException | None = None
    try:
        await asyncio.sleep(seconds)
    except BaseException as found:
        error = found
        raise
    finally:
        deadlines.end(task, error)
    return "done"


def test_who_is_late_is_told_so_and_others_are_not() -> None:
    async def main() -> None:
        deadlines = Deadlines(LIMIT_S)
        for _ in range(2):  # the second time the timer has run out and is set again
            found = await asyncio.gather(
                work(deadlines, 10), work(deadlines, 0), work(deadlines, 10), return_exceptions=True
            )
            assert [type(one) for one in found] == [TimedOut, str, TimedOut]
        assert await work(deadlines, LIMIT_S / 5) == "done"

    asyncio.run(main())


def test_each_has_the_whole_time_from_its_own_beginning() -> None:
    async def main() -> None:
        deadlines, loop = Deadlines(LIMIT_S), asyncio.get_running_loop()
        first = asyncio.create_task(work(deadlines, 10))
        await asyncio.sleep(LIMIT_S / 2)
        began = loop.time()
        with pytest.raises(TimedOut):
            await work(deadlines, 10)
        assert loop.time() - began >= LIMIT_S * 0.9
        with suppress(TimedOut):
            await first

    asyncio.run(main())


def test_a_cancellation_by_somebody_else_stays_one() -> None:
    async def main() -> None:
        task = asyncio.create_task(work(Deadlines(10), 10))
        await asyncio.sleep(0)
        task.cancel("the client has left")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_of_two_cancellations_at_a_time_ours_is_told() -> None:
    """An engine's own limit ends in the same turn of the loop, and its cancellation comes first."""

    async def main() -> None:
        deadlines, loop = Deadlines(LIMIT_S), asyncio.get_running_loop()
        task = asyncio.create_task(work(deadlines, 10))
        await asyncio.sleep(0)
        deadlines._ends[task] = loop.time()
        task.cancel()
        deadlines._cancel_late(loop)
        with pytest.raises(TimedOut):
            await task

    asyncio.run(main())


def test_nothing_is_kept_of_what_has_ended() -> None:
    async def main() -> None:
        deadlines = Deadlines(LIMIT_S)
        await asyncio.gather(*(work(deadlines, 0) for _ in range(100)))
        assert not deadlines._ends
        await asyncio.sleep(2 * LIMIT_S)
        assert deadlines._timer is None

    asyncio.run(main())
