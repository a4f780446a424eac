"""What a small request feels when somebody else sends the largest batch there is.

A model of known speed is served by the real command line (or, with --model, a real one is). Eight connections send
small requests (one state, three questions) at a steady rate: alone, then beside ONE batch of 256 states x 64 questions
for as long as that runs, and both once more. Of the two stretches of a kind the one with the lower p99 counts, so that
one hiccup of the machine does not decide. The batch is also sent once with nobody beside it.

  ratio        p99 of the small requests beside the batch / p99 without it. Target: at most 5
  batch longer what the small requests cost the batch; their own share of the model is part of it

The latency of a small request counts from the moment at which it was due, so one that could not be sent because the
last was still unanswered counts its whole wait. The server runs on one core, the load generator on another. The speed
of the simulated model sets how long all this takes: by default the batch alone runs for some 15 s.
"""

import argparse
import asyncio
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from contenders import Cores, Server, StartError, decided_command, start
from loadgen import Sample, once, steady
from report import milliseconds, percentile, progress, table, write_json
from workload import BATCH, SINGLE, big_body, http_request, small_body

TARGET = 5.0
STATES, QUESTIONS = 256, 64


@dataclass(slots=True)
class Latency:
    """The small requests of one stretch."""

    requests: int
    refused: int
    p50_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, sample: Sample) -> "Latency":
        seconds = sample.latencies
        p50, p99, longest = percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds, default=0.0)
        return cls(len(seconds), sum(sample.refused.values()), p50, p99, longest)


@dataclass(slots=True)
class Batch:
    status: int
    seconds: float


@dataclass(slots=True)
class Finding:
    alone: Latency
    beside: Latency
    batch_alone: Batch
    batch_beside: Batch

    @property
    def ratio(self) -> float:
        return self.beside.p99_s / self.alone.p99_s if self.alone.p99_s else 0.0

    @property
    def longer(self) -> float:
        return self.batch_beside.seconds / self.batch_alone.seconds

    @property
    def problem(self) -> str:
        """Why the numbers say nothing, or an empty string."""
        if (self.batch_alone.status, self.batch_beside.status) != (200, 200):
            return (
                f"the batch was answered {self.batch_alone.status} alone and {self.batch_beside.status} beside others"
            )
        if self.alone.refused or self.beside.refused:
            return f"small requests were refused: {self.alone.refused} alone, {self.beside.refused} beside the batch"
        if self.beside.requests < 100:
            return f"only {self.beside.requests} small requests ran beside the batch: too few for a p99"
        return ""


async def measure(server: Server, given: argparse.Namespace) -> Finding:
    small = http_request(SINGLE, small_body())
    big = http_request(BATCH, big_body(STATES, QUESTIONS))

    async def batch() -> Batch:
        return Batch(*await once(server.port, big, given.limit))

    async def alone() -> Latency:
        progress(f"small requests alone: {given.seconds:g} s")
        return Latency.of(await steady(server.port, small, given.connections, given.rate, given.seconds))

    async def beside() -> tuple[Latency, Batch]:
        progress("small requests beside the batch")
        over = asyncio.Event()
        running = asyncio.ensure_future(batch())
        running.add_done_callback(lambda done: over.set())
        sample = await steady(server.port, small, given.connections, given.rate, given.limit, over)
        return Latency.of(sample), await running

    await steady(server.port, small, given.connections, given.rate, 1.0)
    progress("the batch alone")
    batch_alone = await batch()
    quiet, crowded = [], []
    for _ in range(2):
        quiet.append(await alone())
        crowded.append(await beside())
    progress("")
    calmest, batch_beside = min(crowded, key=lambda pair: pair[0].p99_s)
    return Finding(min(quiet, key=lambda found: found.p99_s), calmest, batch_alone, batch_beside)


def show(finding: Finding) -> None:
    rows = [
        [
            name,
            str(found.requests),
            milliseconds(found.p50_s),
            milliseconds(found.p99_s),
            milliseconds(found.max_s),
            f"{batch.seconds:.2f}",
        ]
        for name, found, batch in (
            ("alone", finding.alone, finding.batch_alone),
            ("beside each other", finding.beside, finding.batch_beside),
        )
    ]
    print(table(["", "small requests", "p50 ms", "p99 ms", "max ms", f"{STATES} x {QUESTIONS} batch s"], rows))
    verdict = "reached" if finding.ratio <= TARGET else "MISSED"
    print(f"\np99 of small requests, beside / alone: {finding.ratio:.2f} (target: at most {TARGET:g}; {verdict})")
    print(f"batch longer by {finding.longer - 1:.0%}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="serve this model, as in `decided serve --model`, instead of the simulated one")
    parser.add_argument("--speed", type=float, default=40_000, help="tokens a second of the simulated model (40000)")
    parser.add_argument("--budget", type=int, default=256, help="token budget of one batch of that model (256)")
    parser.add_argument("--connections", type=int, default=8, help="connections of small requests (8)")
    parser.add_argument("--rate", type=float, default=80.0, help="small requests a second, all together (80)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each of the two stretches alone (10)")
    parser.add_argument("--limit", type=float, default=60.0, help="give up on a batch after this many seconds (60)")
    parser.add_argument("--quick", action="store_true", help="a model four times as fast, short stretches: about 15 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    given = parser.parse_args()
    if given.quick:
        given.speed, given.rate, given.seconds, given.limit = 4 * given.speed, 2 * given.rate, 1.5, 20.0
    if min(given.speed, given.budget, given.connections, given.rate, given.seconds, given.limit) <= 0:
        parser.error("every number must be above 0")
    return given


def main() -> int:
    given = parse()
    cores = Cores.pick()
    model = given.model or f"paced:{given.speed:g}:{given.budget}"
    command = decided_command(model, "--request-timeout-s", f"{given.limit:g}", "--log-level", "warning")
    progress(f"starting decided with the model {model}")
    try:
        server = start("decided", command, cores, model_s=60)
    except StartError as error:
        progress("")
        sys.exit(str(error))
    try:
        finding = uvloop.run(measure(server, given))
    except (ConnectionError, TimeoutError) as error:
        progress("")
        sys.exit(f"no result: {error or 'the batch took longer than --limit'}")
    finally:
        server.stop()
    print(
        f"Model {model}; {given.rate:g} small requests a second from {given.connections} connections. {cores.note}.\n"
    )
    show(finding)
    if finding.problem:
        print(f"\nNo result: {finding.problem}")
    if given.json:
        results: dict[str, Any] = {
            **asdict(finding),
            "ratio": finding.ratio,
            "target": TARGET,
            "problem": finding.problem,
        }
        settings = {"model": model, "rate": given.rate, "connections": given.connections, "seconds": given.seconds}
        write_json(given.json, "fairness", {**settings, "cores": cores.note}, results)
    return 1 if finding.problem or (given.check and finding.ratio > TARGET) else 0


if __name__ == "__main__":
    sys.exit(main())
