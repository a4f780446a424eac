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

from gpu_meter import Meter, busy_share, matrix_rate
from gpu_wheels import find_in, pack, unpack

HERE = Path(__file__).parent
ROOT = HERE.parent
CLIENTS, QUESTIONS, TOKENS = (1, 16, 64, 256), (1, 3, 12), (100, 500, 2000)
QUICK = [(64, 3, 500), (64, 3, 100), (1, 1, 2000), (1, 12, 2000), (1, 3, 500), (64, 12, 500), (256, 3, 500)]
PEER = [(64, 3, 500), (64, 3, 100)]
STATES = 64
NUMBER = "@@@@@@@@"
"""Stands in each request where the clients write its number."""
TAIL_S = 2.5
"""How long the load goes on for the profiler, when the measured seconds are over."""
PEER_S = 4.0
"""The peer takes its questions 32 at a time, which may take a second: a short look would see one batch or none."""


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
    busy: float | None = None
    peer_requests_per_s: float | None = None
    peer_float32_requests_per_s: float | None = None
    """The peer in the precision in which it comes, where that is another one than ours."""
    note: str = ""


class Bench:
    """One model: served over HTTP in this process, loaded by another one; then the peer's loop."""

    def __init__(self, name: str, placement: Any, rate: float, options: argparse.Namespace) -> None:
        import gpu_models

        self.models = gpu_models
        self.name, self.placement, self.rate, self.options = name, placement, rate, options
        self.until = time.monotonic() + options.limit
        self.built = gpu_models.build(name, placement, options.plain)
        self.states: dict[int, list[str]] = {}
        self.meter = Meter(self.built)

    async def run(self, cells: Sequence[tuple[int, int, int]]) -> list[Cell]:
        from decided.engines.api import KINDS
        from decided.settings import Settings
        from decided.web.server import serve

        KINDS["bench"] = "gpu_models"
        self.models.READY[self.name] = self.built.model
        port = _free_port()
        settings = Settings(
            model=f"bench:{self.name}", host="127.0.0.1", port=port, request_timeout_s=600, log_level="warning"
        )
        serving = asyncio.ensure_future(serve(settings))
        await _listening(port, serving)
        await self._measure(Cell(self.name, 64, 3, 100), port)  # the device's clock goes up with its first work
        found = []
        for clients, questions, tokens in cells:
            cell = Cell(self.name, clients, questions, tokens)
            if time.monotonic() > self.until:
                cell.note = "not run: out of time"
            else:
                await self._measure(cell, port)
                if (clients, questions, tokens) in PEER and not self.options.no_peer:  # while nobody asks the server
                    cell.peer_requests_per_s = await self._peer(cell, self.built.peer)
                    cell.peer_float32_requests_per_s = await self._peer(cell, self.built.peer_float32)
            _show(cell)
            found.append(cell)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError, SystemExit):
            await serving
        return found

    async def _measure(self, cell: Cell, port: int) -> None:
        seconds, warm = self.options.seconds, self.options.seconds / 2
        profiled = cell.clients == 64 and (cell.clients, cell.questions, cell.tokens) in QUICK
        with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as file:
            file.write(b"\n".join(self._bodies(cell)))
            file.flush()
            loader = await asyncio.create_subprocess_exec(
                sys.executable, str(HERE / "gpu_load.py"), str(port), str(cell.clients), str(warm), str(seconds),
                str(TAIL_S if profiled else 0.0), file.name, stdout=subprocess.PIPE, cwd=ROOT,
            )  # fmt: skip
            await asyncio.sleep(warm + 0.5)  # it starts, connects and warms up
            began = time.perf_counter()
            await asyncio.sleep(seconds)
            questions, cell.tokens_per_s, flops = self.meter.rates(began)
            if profiled:
                cell.busy = await busy_share(self.placement, self.meter)
            out, _ = await loader.communicate()
        found = json.loads(out)
        cell.p50_ms, cell.p99_ms, cell.requests_per_s = found["p50_ms"], found["p99_ms"], found["requests_per_s"]
        cell.note = f"{found['failures']} failures" if found["failures"] else ""
        if cell.requests_per_s * seconds < cell.clients:  # the clock stopped before everyone had an answer
            cell.requests_per_s, cell.note = questions / cell.questions, f"{cell.note} by batches".strip()
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

    async def _peer(self, cell: Cell, model: Any) -> float | None:
        """The peer's batcher with its default settings, asked in process by as many clients."""
        if model is None:
            return None
        from opendecider.serve import Batcher

        states = [json.loads(body)["state"] for body in self._bodies(cell)]
        done: list[float] = []
        with model if hasattr(model, "__enter__") else contextlib.nullcontext(model) as peer:
            batcher = Batcher(peer)
            asked = peer.prepare(self.models.questions(cell.questions))
            until = time.perf_counter() + PEER_S

            async def client(number: int) -> None:
                while time.perf_counter() < until:
                    items = peer.items(states[number % len(states)], asked)
                    await asyncio.wrap_future(batcher.submit(items))
                    done.append(time.perf_counter())
                    number += cell.clients

            await asyncio.gather(*(client(number) for number in range(cell.clients)))
        within = [when for when in done if when < until]
        warm = done[0] + self.options.seconds / 2 if done[0] + self.options.seconds < until else done[0]
        counted = [when for when in within if when > warm] or done[1:] or done
        return len(counted) / (counted[-1] - warm) if counted[-1] > warm else 0.0


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
    peers = (cell.peer_requests_per_s, cell.peer_float32_requests_per_s)
    peer = "".join(" " * 10 if rate is None else f"{rate:10.1f}" for rate in peers)
    busy = " " * 7 if cell.busy is None else f"{cell.busy:7.2f}"
    print(
        f"{cell.model:14}{cell.clients:8}{cell.questions:10}{cell.tokens:7}{cell.requests_per_s:11.1f}{cell.p50_ms:10.1f}"
        f"{cell.p99_ms:10.1f}{cell.tokens_per_s:12.0f}{cell.utilisation:7.2f}{busy}{peer}  {cell.note}",
        flush=True,
    )


def verdicts(cells: list[Cell]) -> list[str]:
    """The targets, and what was reached."""
    by = {(cell.model, cell.clients, cell.questions, cell.tokens): cell for cell in cells if cell.requests_per_s}
    lines = []
    for model in dict.fromkeys(cell.model for cell in cells):
        middle = by.get((model, 64, 3, 500))
        if middle is not None:
            lines.append(f"{model}: device busy {middle.busy or 0:.2f} at 64 clients (target 0.90)")
            if model.startswith("encoder"):
                lines.append(f"{model}: utilisation {middle.utilisation:.2f} at 500 tokens (target 0.40)")
            if middle.peer_requests_per_s:
                times = middle.requests_per_s / middle.peer_requests_per_s
                lines.append(f"{model}: {times:.1f} times the peer at 64 clients x 3 questions (target 5)")
            if middle.peer_float32_requests_per_s:
                times = middle.requests_per_s / middle.peer_float32_requests_per_s
                lines.append(f"{model}: {times:.1f} times the peer as it comes, in float32 (target 5)")
        one, twelve = (by.get((model, 1, count, 2000)) for count in (1, 12))
        if one is not None and twelve is not None and model.startswith("decoder"):
            lines.append(f"{model}: 12 questions cost {twelve.p50_ms / one.p50_ms:.2f} times one (target 2.0)")
    return lines


def main(options: argparse.Namespace) -> int:
    import gpu_models
    import torch

    from decided.engines.torch.placement import place
    from decided.settings import Settings

    logging.basicConfig(level=logging.INFO if options.verbose else logging.ERROR)
    placement = place(Settings(device=options.device))
    device = torch.cuda.get_device_name() if placement.on_gpu else f"CPU, {torch.get_num_threads()} threads"
    rate = matrix_rate(placement)
    print(f"{device}, torch {torch.__version__}, {placement.precision}, matrix product {rate / 1e12:.2f} TFLOP/s")
    print(
        "model          clients questions tokens requests/s    p50 ms    p99 ms    tokens/s   util   busy"
        "    peer/s  its fp32"
    )
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
        if options.json:  # after each model: what was measured stays, whatever happens to the next
            found = {"device": device, "torch": torch.__version__, "matrix_flops": rate}
            options.json.write_text(json.dumps(found | {"cells": [asdict(cell) for cell in cells]}, indent=1))
        del bench
        gpu_models.READY.clear()
        if placement.on_gpu:
            torch.cuda.empty_cache()
    print("\n".join(verdicts(cells)))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="encoder-400m, decoder-0.6b, decoder-4b, encoder-tiny, decoder-tiny")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "mps"])
    parser.add_argument("--quick", action="store_true", help="the loads that the targets speak of, alone")
    parser.add_argument("--tiny", action="store_true", help="tiny models and few loads: does it run at all?")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured for each load")
    parser.add_argument("--limit", type=float, default=160.0, help="seconds for each model; loads left over are named")
    parser.add_argument("--plain", action="store_true", help="no compiled steps, no recorded launches: do they pay?")
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
