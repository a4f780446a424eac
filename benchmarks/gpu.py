"""How fast are models in process on a GPU, served, and against the peer's own batching loop on the same weights?

    python benchmarks/gpu.py --json results.json

Random weights of real shapes (nothing is downloaded): an encoder of 400M parameters, decoders of 0.6B and 4B. For each
model it prints served requests per second for 1 to 256 clients, 1 to 12 questions and states of 100 to 2,000 tokens;
the utilisation of the device's matrix units; the share of time in which the device is busy; and what the peer
`opendecider` reaches with its own batching loop, in process, without HTTP, which flatters it.

On a machine without network: `python benchmarks/gpu.py --pack FOLDER` here, once, for Python 3.12 on x86-64 (36 MB);
then there, from the root of this repository, `python benchmarks/gpu.py --wheels FOLDER`.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_wheels import find_in, pack, unpack

HERE = Path(__file__).parent
ROOT = HERE.parent
CLIENTS, QUESTIONS, TOKENS = (1, 16, 64, 256), (1, 3, 12), (100, 500, 2000)
QUICK = [(1, 1, 2000), (1, 12, 2000), (1, 3, 500), (64, 3, 100), (64, 3, 500), (64, 12, 500), (256, 3, 500)]
PEER = [(64, 3, 500), (64, 3, 100), (1, 3, 500)]
STATES = 64
NUMBER = "@@@@@@@@"
"""Stands in each request where the clients write its number."""
TAIL_S = 0.8
"""How long the load goes on for the profiler, when the measured seconds are over."""


@dataclass
class Cell:
    """One load, and what it gave."""

    model: str
    clients: int
    questions: int
    tokens: int
    requests_per_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    tokens_per_s: float = 0.0
    utilisation: float = 0.0
    busy: float = 0.0
    peer_requests_per_s: float | None = None
    note: str = ""


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


class Meter:
    """What a model has run: when each batch was done, its tokens, and its FLOPs by their formula."""

    def __init__(self, built: Any) -> None:
        self.built = built
        self.done: list[tuple[float, int, float]] = []
        self.seconds = 0.0
        real = built.model.forward

        def forward(items: Any) -> Any:
            began = time.perf_counter()
            collect = real(items)
            self.seconds += time.perf_counter() - began

            def collected() -> Any:
                found = collect()
                self.done.append((time.perf_counter(), *self._cost(items)))
                return found

            return collected

        built.model.forward = forward

    def _cost(self, items: Any) -> tuple[int, float]:
        built, tokens, flops = self.built, 0, 0.0
        for item in items:
            tokens += item.cost
            sees = item.cost if built.window else item.cost / 2  # causal: half of the pairs
            attention = sees * built.flops_per_pair + built.window * built.flops_per_near_pair
            flops += item.cost * (built.flops_per_token + attention)
        return tokens, flops

    def rates(self, since: float) -> tuple[float, float]:
        """Tokens and FLOPs a second, from the end of the first batch since then to the end of the last."""
        done = [batch for batch in self.done if batch[0] >= since]
        if len(done) < 2:
            return 0.0, 0.0
        span = done[-1][0] - done[0][0]
        return sum(batch[1] for batch in done[1:]) / span, sum(batch[2] for batch in done[1:]) / span


def busy_share(placement: Any, seconds: float, meter: Meter) -> float:
    """The share of a stretch of time in which at least one kernel runs, from the profiler; blocks its thread."""
    if not placement.on_gpu:
        before = meter.seconds
        time.sleep(seconds)
        return (meter.seconds - before) / seconds
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as record:
        time.sleep(seconds)
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in record.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    if not spans:
        return 0.0
    covered, until = 0.0, spans[0][0]
    for start, end in spans:
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return float(covered / (until - spans[0][0]))


class Bench:
    """One model: served over HTTP in this process, loaded by another one; then the peer's loop."""

    def __init__(self, name: str, placement: Any, rate: float, options: argparse.Namespace) -> None:
        import gpu_models

        self.models = gpu_models
        self.name, self.placement, self.rate, self.options = name, placement, rate, options
        self.until = time.monotonic() + options.limit
        self.built = gpu_models.build(name, placement, options.compile)
        self.states: dict[int, list[str]] = {}
        self.meter = Meter(self.built)

    async def run(self, cells: Sequence[tuple[int, int, int]]) -> list[Cell]:
        from decided.engine import KINDS
        from decided.server import serve
        from decided.settings import Settings

        KINDS["bench"] = "gpu_models"
        self.models.READY[self.name] = self.built.model
        port = _free_port()
        settings = Settings(
            model=f"bench:{self.name}", host="127.0.0.1", port=port, request_timeout_s=600, log_level="warning"
        )
        serving = asyncio.ensure_future(serve(settings))
        await _listening(port, serving)
        found = []
        for clients, questions, tokens in cells:
            cell = Cell(self.name, clients, questions, tokens)
            if time.monotonic() > self.until:
                cell.note = "not run: out of time"
            else:
                await self._measure(cell, port)
            _show(cell)
            found.append(cell)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError, SystemExit):
            await serving
        if self.built.peer is not None and not self.options.no_peer:
            for cell in found:
                if (cell.clients, cell.questions, cell.tokens) in PEER and time.monotonic() < self.until:
                    cell.peer_requests_per_s = await self._peer(cell)
                    _show(cell)
        return found

    async def _measure(self, cell: Cell, port: int) -> None:
        seconds, warm = self.options.seconds, self.options.seconds / 2
        with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as file:
            file.write(b"\n".join(self._bodies(cell)))
            file.flush()
            loader = await asyncio.create_subprocess_exec(
                sys.executable, str(HERE / "gpu_load.py"), str(port), str(cell.clients), str(warm), str(seconds),
                str(TAIL_S), file.name, stdout=subprocess.PIPE, cwd=ROOT,
            )  # fmt: skip
            await asyncio.sleep(warm + 0.5)  # it starts, connects and warms up
            began = time.perf_counter()
            await asyncio.sleep(seconds)
            tokens, flops = self.meter.rates(began)
            cell.busy = await asyncio.to_thread(busy_share, self.placement, TAIL_S / 2, self.meter)
            out, _ = await loader.communicate()
        for name, value in json.loads(out).items():
            if name == "failures":
                cell.note = f"{value} failures" if value else ""
            else:
                setattr(cell, name, value)
        cell.tokens_per_s = tokens
        cell.utilisation = flops / self.rate

    def _bodies(self, cell: Cell) -> list[bytes]:
        """Requests, each with a place for a number that makes its state unlike all others."""
        asked = self.models.questions(cell.questions)
        if cell.tokens not in self.states:
            vocabulary = self.built.model.vocabulary
            self.states[cell.tokens] = [self.models.text_of(cell.tokens, n, vocabulary) for n in range(STATES)]
        return [
            json.dumps({"state": f"{NUMBER} {state}", "questions": asked}).encode()
            for state in self.states[cell.tokens]
        ]

    async def _peer(self, cell: Cell) -> float:
        """The peer's batcher with its default settings, asked in process by as many clients."""
        from opendecider.serve import Batcher

        states = [json.loads(body)["state"] for body in self._bodies(cell)]
        done, until = 0, 0.0
        manager = self.built.peer if hasattr(self.built.peer, "__enter__") else contextlib.nullcontext(self.built.peer)
        with manager as peer:
            batcher = Batcher(peer)
            asked = peer.prepare(self.models.questions(cell.questions))

            async def client(number: int) -> None:
                nonlocal done
                while time.perf_counter() < until:
                    items = peer.items(states[number % len(states)], asked)
                    await asyncio.wrap_future(batcher.submit(items))
                    done += time.perf_counter() < until
                    number += cell.clients

            for seconds in (self.options.seconds / 2, self.options.seconds):  # to warm up, then to measure
                done, until = 0, time.perf_counter() + seconds
                await asyncio.gather(*(client(number) for number in range(cell.clients)))
            return float(done / self.options.seconds)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def _listening(port: int, serving: "asyncio.Future[None]") -> None:
    while not serving.done():
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    serving.result()


def _show(cell: Cell) -> None:
    peer = "" if cell.peer_requests_per_s is None else f"{cell.peer_requests_per_s:9.1f}"
    print(
        f"{cell.model:14}{cell.clients:8}{cell.questions:10}{cell.tokens:7}{cell.requests_per_s:11.1f}{cell.p50_ms:10.1f}"
        f"{cell.p99_ms:10.1f}{cell.tokens_per_s:12.0f}{cell.utilisation:7.2f}{cell.busy:7.2f}{peer:>10}  {cell.note}",
        flush=True,
    )


def verdicts(cells: list[Cell]) -> list[str]:
    """The targets, and what was reached."""
    by = {(cell.model, cell.clients, cell.questions, cell.tokens): cell for cell in cells if cell.requests_per_s}
    lines = []
    for model in dict.fromkeys(cell.model for cell in cells):
        middle = by.get((model, 64, 3, 500))
        if middle is not None:
            lines.append(f"{model}: device busy {middle.busy:.2f} at 64 clients (target 0.90)")
            if model.startswith("encoder"):
                lines.append(f"{model}: utilisation {middle.utilisation:.2f} at 500 tokens (target 0.40)")
            if middle.peer_requests_per_s:
                times = middle.requests_per_s / middle.peer_requests_per_s
                lines.append(f"{model}: {times:.1f} times the peer at 64 clients x 3 questions (target 5)")
        one, twelve = (by.get((model, 1, count, 2000)) for count in (1, 12))
        if one is not None and twelve is not None and model.startswith("decoder"):
            lines.append(f"{model}: 12 questions cost {twelve.p50_ms / one.p50_ms:.2f} times one (target 2.0)")
    return lines


def main(options: argparse.Namespace) -> int:
    import torch

    from decided.engines.torch.placement import place
    from decided.settings import Settings

    logging.basicConfig(level=logging.INFO if options.verbose else logging.ERROR)
    placement = place(Settings(device=options.device))
    device = torch.cuda.get_device_name() if placement.on_gpu else f"CPU, {torch.get_num_threads()} threads"
    rate = matrix_rate(placement)
    print(f"{device}, torch {torch.__version__}, {placement.precision}, matrix product {rate / 1e12:.2f} TFLOP/s")
    print("model          clients questions tokens requests/s    p50 ms    p99 ms    tokens/s   util   busy    peer/s")
    if options.tiny:
        loads = [(clients, 3, 100) for clients in (1, 16)] + [(1, 1, 2000), (1, 12, 2000), (64, 3, 500)]
    elif options.quick:
        loads = QUICK
    else:
        every = [(clients, questions, tokens) for tokens in TOKENS for questions in QUESTIONS for clients in CLIENTS]
        loads = list(dict.fromkeys([*QUICK, *every]))  # what the targets speak of comes first
    cells: list[Cell] = []
    for name in options.models.split(","):
        try:
            bench = Bench(name, placement, rate, options)
        except ImportError as error:
            print(f"{name}: not run, {error.name} is not installed (see --pack and --wheels)")
            continue
        model = bench.built.model
        kernel = getattr(model, "attention", None) or model.decoder._attention
        print(f"{name}: batches of {model.token_budget} tokens, {'flash' if kernel.flash else 'plain'} attention")
        if bench.built.no_peer:
            print(f"{name}: the peer is not run, {bench.built.no_peer}")
        cells += asyncio.run(bench.run(loads))
        del bench
        if placement.on_gpu:
            torch.cuda.empty_cache()
    print("\n".join(verdicts(cells)))
    if options.json:
        result = {
            "device": device,
            "torch": torch.__version__,
            "matrix_flops": rate,
            "cells": [asdict(c) for c in cells],
        }
        options.json.write_text(json.dumps(result, indent=1))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="encoder-400m, decoder-0.6b, decoder-4b, encoder-tiny, decoder-tiny")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "mps"])
    parser.add_argument("--quick", action="store_true", help="the loads that the targets speak of, alone")
    parser.add_argument("--tiny", action="store_true", help="tiny models and few loads: does it run at all?")
    parser.add_argument("--seconds", type=float, default=1.5, help="measured for each load")
    parser.add_argument("--limit", type=float, default=160.0, help="seconds for each model; loads left over are named")
    parser.add_argument("--compile", action="store_true", help="the encoder's layers with torch.compile: does it pay?")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="fetch wheels for a machine without network")
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="that machine's Python")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="use wheels that were carried here")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.models = options.models or (
        "encoder-tiny,decoder-tiny" if options.tiny else "encoder-400m,decoder-0.6b,decoder-4b"
    )
    return options


if __name__ == "__main__":
    chosen = arguments()
    if chosen.pack:
        pack(chosen.pack, chosen.python)
        sys.exit(0)
    find_in(str(HERE), str(ROOT / "src"))
    with tempfile.TemporaryDirectory() as scratch:
        if chosen.wheels:
            unpack(chosen.wheels, Path(scratch))
        try:
            sys.exit(main(chosen))
        except ModuleNotFoundError as error:
            sys.exit(f"{error.name} is not installed here: see --pack and --wheels")
