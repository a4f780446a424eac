"""Tasks that stand or fall together: the first that fails ends the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks, out of which the first failure comes as it is: who catches it knows it by its type."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def work_off(items: Iterable[T], at_a_time: int, work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for each of the items: whoever is done with one takes the next."""
    waiting = iter(items)

    async def take_turns() -> None:
        for item in waiting:
            await work(item)

    async with together() as group:
        for _ in range(at_a_time):
            group.create_task(take_turns())
