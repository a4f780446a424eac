"""Tasks that stand or fall together: each item once, so many at a time, and failures as they are."""

import asyncio

import pytest

from decided.together import together, work_off


def test_each_item_is_worked_off_once_and_so_many_at_a_time() -> None:
    under_way, most, done = 0, 0, []

    async def work(item: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done.append(item)

    asyncio.run(work_off(range(10), 3, work))
    assert (sorted(done), most) == (list(range(10)), 3)
    asyncio.run(work_off([1], 3, work))
    asyncio.run(work_off([], 3, work))
    assert done[10:] == [1]


def test_the_first_failure_comes_out_as_it_is_and_ends_the_others() -> None:
    began, ended = [], []

    async def work(item: int) -> None:
        began.append(item)
        if item == 2:
            raise KeyError(item)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item)

    with pytest.raises(KeyError):
        asyncio.run(work_off(range(10), 3, work))
    assert (began, sorted(ended)) == ([0, 1, 2], [0, 1])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_what_its_own_block_raises_comes_out_too(error: type[BaseException]) -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main() -> None:
        async with together() as group:
            group.create_task(wait())
            await asyncio.sleep(0)
            raise error

    with pytest.raises(error):
        asyncio.run(main())
    assert cancelled == [True]
