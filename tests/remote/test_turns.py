"""Places at the engine are dealt in turn, and never lost."""

import asyncio
import random

from decided.engines.remote.turns import Turn, Turns
from decided.fair_queue import Lane


def test_a_small_request_does_not_wait_for_a_big_one() -> None:
    async def main() -> list[str]:
        turns, ended = Turns(4), list[str]()

        async def call(name: str, lane: Lane[Turn]) -> None:
            async with turns.turn(lane):
                await asyncio.sleep(0.001)
                ended.append(name)

        big: Lane[Turn] = Lane()
        crowd = [asyncio.create_task(call("big", big)) for _ in range(200)]
        await asyncio.sleep(0.005)
        small: Lane[Turn] = Lane()
        before = len(ended)
        await asyncio.gather(*(call("small", small) for _ in range(3)))
        between = ended[before:]
        await asyncio.gather(*crowd)
        return between

    assert asyncio.run(main()).count("big") < 30


def test_no_more_than_the_places_and_none_lost_whoever_is_cancelled() -> None:
    async def main() -> None:
        turns, inside, most = Turns(3), 0, 0
        chance = random.Random(1)

        async def call(lane: Lane[Turn]) -> None:
            nonlocal inside, most
            async with turns.turn(lane):
                inside += 1
                most = max(most, inside)
                try:
                    await asyncio.sleep(chance.random() / 1000)
                finally:
                    inside -= 1

        for _ in range(20):
            lanes: list[Lane[Turn]] = [Lane() for _ in range(5)]
            tasks = [asyncio.create_task(call(chance.choice(lanes))) for _ in range(40)]
            await asyncio.sleep(0.002)
            for task in chance.sample(tasks, 20):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (inside, turns.waiting) == (0, 0)
        assert most == 3
        lane: Lane[Turn] = Lane()
        await asyncio.wait_for(asyncio.gather(*(call(lane) for _ in range(9))), 5)

    asyncio.run(main())
