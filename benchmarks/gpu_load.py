"""Clients in a process of their own: each sends its next request, unlike all others, when the last one is answered.

`python gpu_load.py PORT CLIENTS WARM_S SECONDS TAIL_S FILE` reads one JSON body a line from FILE, sends them
in turn with a number of its own in each, and prints what came back within the measured seconds.
"""

import asyncio
import json
import sys
from itertools import count, cycle
from pathlib import Path
from time import perf_counter, time_ns

from loadgen import Client, _connect
from workload import SINGLE, http_request

NUMBER = b"@@@@@@@@"


async def load(
    port: int, clients: int, warm: float, seconds: float, tail: float, bodies: list[bytes]
) -> dict[str, float]:
    numbers = count(time_ns() // 1_000_000 % 90_000_000)  # never those of an earlier load: states are remembered
    turns = cycle([http_request(SINGLE, body).split(NUMBER) for body in bodies])

    def request() -> bytes:
        return (b"%08d" % next(numbers)).join(next(turns))

    latencies: list[float] = []
    failures = 0
    begin = perf_counter() + warm
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def replied(client: Client, status: int) -> None:
        nonlocal failures
        now = perf_counter()
        if begin <= now < begin + seconds:
            if status == 200:
                latencies.append(now - client.due)
            else:
                failures += 1
        client.send(request(), now)

    connected = await _connect(port, clients, replied, over)
    for client in connected:
        client.send(request(), perf_counter())
    await asyncio.sleep(warm + seconds + tail)
    within = sorted(latencies)
    for client in connected:
        client.close()
    if over.done():
        over.result()
    return {
        "requests_per_s": len(within) / seconds,
        "p50_ms": 1000 * within[len(within) // 2] if within else float("nan"),
        "p99_ms": 1000 * within[int(len(within) * 0.99)] if within else float("nan"),
        "failures": failures,
    }


if __name__ == "__main__":
    port, clients, warm, seconds, tail, file = sys.argv[1:]
    lines = Path(file).read_bytes().splitlines()
    print(json.dumps(asyncio.run(load(int(port), int(clients), float(warm), float(seconds), float(tail), lines))))
