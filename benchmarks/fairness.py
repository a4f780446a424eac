"""What a small request feels when somebody else sends the largest things there are.

The embedded model (or, with --model, another one; `paced:SPEED:BUDGET` is a simulated one of known speed) is served by
the real command line. Some connections send small requests (one state, three questions) at a steady rate: alone, then
beside each adversary in turn for as long as it runs, and all of it once more. Of two stretches of a kind the one with
the lower p99 counts, so that one hiccup of the machine does not decide.

  huge    ONE request of 690 KB: 200,000 characters of state, questions with 256 long options
  batch   ONE batch of 256 states x 64 questions
  long    8 requests at a time, each with 3 questions about a state of 8,000 tokens

  ratio   p99 of the small requests beside the adversary / p99 without it. Target: at most 5

An adversary is given up after --stretch seconds, as a client that leaves; its time limit is longer. The latency of a
small request counts from the moment at which it was due, so one that could not be sent because the last was still
unanswered counts its whole wait. Without --rate the rate is a fifth of what the server can do, measured before.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from contenders import Cores, Server, StartError, decided_command, start
from loadgen import Sample, closed_loop, once, steady
from report import milliseconds, percentile, progress, table, write_json
from workload import BATCH, SINGLE, big_body, http_request, huge_body, long_body, small_body

TARGET = 5.0
ADVERSARIES = ("huge", "batch", "long")
LONG_AT_ONCE = 8
SHARE = 0.2
"""Of the rate that the server can do: small requests must not be a load themselves."""


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


class Bench:
    def __init__(self, server: Server, given: argparse.Namespace) -> None:
        self.port = server.port
        self.given = given
        self.rate = given.rate
        self.small = http_request(SINGLE, small_body())
        self.bodies = {
            "huge": [http_request(SINGLE, huge_body())],
            "batch": [http_request(BATCH, big_body(256, 64))],
            "long": [http_request(SINGLE, long_body(number)) for number in range(LONG_AT_ONCE)],
        }

    async def measure(self) -> dict[str, Latency]:
        """The small requests alone, and beside each adversary."""
        if not self.rate:
            progress("how many small requests there can be")
            self.rate = SHARE * (await closed_loop(self.port, self.small, 8, 3.0)).rate
        kinds = ("alone", *self.given.beside)
        found: dict[str, list[Latency]] = {kind: [] for kind in kinds}
        for number in range(self.given.rounds):
            for kind in kinds:
                progress(f"round {number + 1}: small requests {kind if kind == 'alone' else f'beside {kind}'}")
                found[kind].append(await self._stretch(self.bodies.get(kind, [])))
        progress("")
        return {kind: min(stretches, key=lambda each: each.p99_s) for kind, stretches in found.items()}

    async def _stretch(self, bodies: list[bytes]) -> Latency:
        over = asyncio.Event()
        adversaries = [asyncio.ensure_future(self._again_and_again(body, over)) for body in bodies]
        if bodies:
            await asyncio.sleep(self.given.stretch / 5)  # its body is read, its work has begun
        try:
            sample = await steady(self.port, self.small, self.given.connections, self.rate, self.given.stretch)
        finally:
            over.set()
            for adversary in adversaries:
                adversary.cancel()
            await asyncio.gather(*adversaries, return_exceptions=True)
        return Latency.of(sample)

    async def _again_and_again(self, body: bytes, over: asyncio.Event) -> None:
        while not over.is_set():
            status = 0
            with contextlib.suppress(TimeoutError):
                status, _ = await once(self.port, body, 10 * self.given.stretch)
            if status not in (0, 200):
                raise ConnectionError(f"an adversary was answered {status}")


def show(found: dict[str, Latency]) -> None:
    rows = [
        [
            kind if kind == "alone" else f"beside {kind}",
            str(each.requests),
            milliseconds(each.p50_s),
            milliseconds(each.p99_s),
            milliseconds(each.max_s),
            f"{each.p99_s / found['alone'].p99_s:.2f}",
        ]
        for kind, each in found.items()
    ]
    print(table(["small requests", "number", "p50 ms", "p99 ms", "max ms", "p99 ratio"], rows))


def problem_of(found: dict[str, Latency]) -> str:
    """Why the numbers say nothing, or an empty string."""
    for kind, each in found.items():
        if each.refused:
            return f"{each.refused} small requests were refused ({kind})"
        if each.requests < 30:
            return f"only {each.requests} small requests were answered ({kind}): too few for a p99"
    return ""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="serve this model, as in `decided serve --model`")
    parser.add_argument("--threads", type=int, help="of the model (default: all cores)")
    parser.add_argument("--beside", default=",".join(ADVERSARIES), help="which adversaries (huge,batch,long)")
    parser.add_argument("--connections", type=int, default=8, help="connections of small requests (8)")
    parser.add_argument("--rate", type=float, default=0.0, help="small requests a second, all together")
    parser.add_argument("--stretch", type=float, default=20.0, help="seconds of each stretch (20)")
    parser.add_argument("--rounds", type=int, default=2, help="how often all of it is done (2)")
    parser.add_argument("--quick", action="store_true", help="one round of short stretches: about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    given = parser.parse_args()
    if given.quick:
        given.stretch, given.rounds = 10.0, 1
    given.beside = given.beside.split(",")
    if set(given.beside) - set(ADVERSARIES) or min(given.connections, given.stretch, given.rounds) <= 0:
        parser.error("the adversaries are huge, batch and long; every number must be above 0")
    return given


def main() -> int:
    given = parse()
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
    flags = ["--request-timeout-s", f"{20 * given.stretch:g}", "--log-level", "warning"]
    flags += ["--threads", str(given.threads)] if given.threads else []
    progress(f"starting decided with the model {given.model}")
    try:
        server = start("decided", decided_command(given.model, *flags), Cores(cores, cores), model_s=60)
    except StartError as error:
        progress("")
        sys.exit(str(error))
    try:
        bench = Bench(server, given)
        found = uvloop.run(bench.measure())
    except ConnectionError as error:
        progress("")
        sys.exit(f"no result: {error}")
    finally:
        server.stop()
    print(f"Model {given.model}; {bench.rate:.1f} small requests a second; server and load share {len(cores)} cores.\n")
    show(found)
    ratios = {kind: found[kind].p99_s / found["alone"].p99_s for kind in given.beside}
    verdict = "reached" if max(ratios.values()) <= TARGET else "MISSED"
    print(f"\nworst p99 ratio: {max(ratios.values()):.2f} (target: at most {TARGET:g}; {verdict})")
    problem = problem_of(found)
    if problem:
        print(f"\nNo result: {problem}")
    if given.json:
        results: dict[str, Any] = {kind: asdict(each) for kind, each in found.items()}
        write_json(given.json, "fairness", {"model": given.model, "rate": bench.rate}, {**results, "ratios": ratios})
    return 1 if problem or (given.check and max(ratios.values()) > TARGET) else 0


if __name__ == "__main__":
    sys.exit(main())
