"""What a device does while `gpu.py` loads it: how fast it could be, what it has run, how much of the time it works."""

import asyncio
import logging
import time
from typing import Any, NamedTuple

SETTLE_S, PROFILED_S = 0.5, 0.6
"""To start the profiler holds up everyone: the share is taken when the load has recovered."""


def matrix_rate(placement: Any) -> float:
    """FLOP/s of a large matrix product, the most that dense layers could reach."""
    import torch

    size = 8192 if placement.on_gpu else 512
    left, right = (torch.randn(size, size, device=placement.device, dtype=placement.dtype) for _ in range(2))
    times = []
    for _ in range(12):
        _wait(placement)
        began = time.perf_counter()
        torch.mm(left, right)
        _wait(placement)
        times.append(time.perf_counter() - began)
    return 2.0 * size**3 / sorted(times)[len(times) // 2]


def _wait(placement: Any) -> None:
    import torch

    if placement.on_gpu:
        torch.cuda.synchronize()


class Done(NamedTuple):
    """A batch that was run: when it was done, its questions, its tokens, and its FLOPs by their formula."""

    when: float
    questions: int
    tokens: int
    flops: float


class Meter:
    """What a model has run."""

    def __init__(self, built: Any) -> None:
        self.built = built
        self.done: list[Done] = []
        self.seconds = 0.0
        real = built.model.forward

        def forward(items: Any) -> Any:
            began = time.perf_counter()
            collect = real(items)
            self.seconds += time.perf_counter() - began

            def collected() -> Any:
                found = collect()
                self.done.append(self._cost(items))
                return found

            return collected

        built.model.forward = forward

    def _cost(self, items: Any) -> Done:
        built, tokens, flops = self.built, 0, 0.0
        for item in items:
            tokens += item.cost
            sees = item.cost if built.window else item.cost / 2  # causal: half of the pairs
            attention = sees * built.flops_per_pair + built.window * built.flops_per_near_pair
            flops += item.cost * (built.flops_per_token + attention)
        return Done(time.perf_counter(), sum(len(item.questions) for item in items), tokens, flops)

    def rates(self, since: float) -> tuple[float, float, float]:
        """Questions, tokens and FLOPs a second, from the end of the first batch since then to the end of the last."""
        done = [batch for batch in self.done if batch.when >= since]
        if len(done) < 2:
            return 0.0, 0.0, 0.0
        span = done[-1].when - done[0].when
        questions, tokens, flops = (sum(batch[field] for batch in done[1:]) / span for field in (1, 2, 3))
        return questions, tokens, flops


async def busy_share(placement: Any, meter: Meter) -> float:
    """The share of a stretch of time in which at least one kernel runs, from the profiler."""
    if not placement.on_gpu:
        before = meter.seconds
        await asyncio.sleep(PROFILED_S)
        return (meter.seconds - before) / PROFILED_S
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as record:
        await asyncio.sleep(SETTLE_S + PROFILED_S)
    events = [event for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    spans = sorted((event.time_range.start, event.time_range.end) for event in events)
    if not spans:
        return float("nan")
    covered, until = 0.0, spans[0][0] + SETTLE_S * 1e6
    began = until
    for start, end in spans:
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    logging.info("profiled %d kernels over %.2f s", len(spans), (spans[-1][1] - spans[0][0]) / 1e6)
    return float(covered / max(1.0, until - began))
