"""What stands between a client and a remote engine costs: questions a second through `decided`, and without it.

The engine is simulated (`slow_engine.py`): it answers each call after 100 ms, any number at once, so that with C calls
at a time it gives C / 0.1 s answers a second at most. It is asked

  directly     by C connections, each sending its next call when the last is answered
  decided      by 64 clients with 8 questions each, through `decided` with --remote-concurrency C

in short rounds in turn, and a ratio is that of two rates of the same round. Target: at least 0.9 of the engine alone.
`calls per connection` shows that connections are kept: without that it would be 1.

`decided` runs on one core, the load and the engine on another.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from contenders import Cores, Server, StartError, decided_command, start
from loadgen import closed_loop
from report import milliseconds, percentile, progress, spread, table, write_json
from slow_engine import PATH, SlowEngine
from workload import QUESTIONS, SINGLE, STATE, http_request

TARGET = 0.9
ASKED = 8


@dataclass(slots=True)
class Column:
    """What the rounds gave: answers a second, and the latencies of requests."""

    rate: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Finding:
    direct: Column = field(default_factory=Column)
    through: Column = field(default_factory=Column)
    cpu_s: list[float] = field(default_factory=list)
    calls: int = 0
    connections: int = 0

    @property
    def ratios(self) -> list[float]:
        return [ours / alone for ours, alone in zip(self.through.rate, self.direct.rate, strict=True)]


def chat_call() -> bytes:
    """A call such as `decided` makes."""
    text = f"Text:\n{json.dumps(STATE)}\n\nQuestion: Which team?\nOptions:\nA. one\nB. two\nC. three\nD. four\n"
    messages = [{"role": "system", "content": "Answer with one letter."}, {"role": "user", "content": text}]
    options = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    return http_request(PATH, json.dumps({"model": "slow", "messages": messages, **options}).encode())


def request() -> bytes:
    kinds = list(QUESTIONS.values())
    asked = {f"q{number}": kinds[number % len(kinds)] for number in range(ASKED)}
    return http_request(SINGLE, json.dumps({"state": STATE, "questions": asked}).encode())


def measure(engine: SlowEngine, server: Server, given: argparse.Namespace) -> Finding:
    finding = Finding()
    call, ask = chat_call(), request()

    def stretch(port: int, what: bytes, connections: int, answers: int, seconds: float, into: Column) -> int:
        sample = uvloop.run(closed_loop(port, what, connections, seconds))
        if sample.refused:
            raise StartError(f"requests were refused: {sample.refused}")
        into.rate.append(answers * sample.rate)
        into.p50.append(percentile(sample.latencies, 0.5))
        into.p99.append(percentile(sample.latencies, 0.99))
        return answers * len(sample.latencies)

    stretch(server.port, ask, given.clients, ASKED, 1.0, Column())
    for number in range(given.rounds):
        progress(f"round {number + 1} of {given.rounds}")
        stretch(engine.port, call, given.concurrency, 1, given.seconds, finding.direct)
        calls, connections, cpu = engine.calls, engine.connections, server.cpu_times()[0]
        answers = stretch(server.port, ask, given.clients, ASKED, given.seconds, finding.through)
        finding.cpu_s.append((server.cpu_times()[0] - cpu) / answers)
        finding.calls += engine.calls - calls
        finding.connections += engine.connections - connections
    progress("")
    # Opened before the first round, and still there: at most one for each place.
    finding.connections += given.concurrency
    return finding


def show(finding: Finding) -> None:
    rows = [
        [name, f"{median(column.rate):.0f}", milliseconds(median(column.p50)), milliseconds(median(column.p99))]
        for name, column in (("engine alone", finding.direct), ("through decided", finding.through))
    ]
    print(table(["", "answers/s", "p50 ms", "p99 ms"], rows))
    ratio = spread(finding.ratios)
    verdict = "reached" if ratio["median"] >= TARGET else "MISSED"
    print(
        f"\nthrough / alone: {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f};"
        f" target: at least {TARGET:g}; {verdict})"
    )
    print(f"calls per connection: at least {finding.calls / finding.connections:.0f}")
    print(f"CPU of decided per question: {1e6 * median(finding.cpu_s):.0f} us")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64, help="clients of decided, 8 questions each (64)")
    parser.add_argument("--concurrency", type=int, default=64, help="calls to the engine at a time (64)")
    parser.add_argument("--latency", type=float, default=0.1, help="seconds the engine takes for a call (0.1)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a stretch (4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of two stretches (5)")
    parser.add_argument("--quick", action="store_true", help="two short rounds: about 15 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.rounds = 2.5, 2
    if min(given.clients, given.concurrency, given.latency, given.seconds, given.rounds) <= 0:
        parser.error("every number must be above 0")
    return given


def main() -> int:
    given = parse()
    cores = Cores.pick()
    with SlowEngine(given.latency) as engine:
        flags = ["--remote-url", f"http://127.0.0.1:{engine.port}", "--remote-concurrency", str(given.concurrency)]
        try:
            server = start("decided", decided_command("openai:slow", *flags), cores)
        except StartError as error:
            sys.exit(str(error))
        try:
            finding = measure(engine, server, given)
        except (StartError, ConnectionError, TimeoutError) as error:
            sys.exit(f"no result: {error}")
        finally:
            server.stop()
    print(
        f"{given.clients} clients x {ASKED} questions, {given.concurrency} calls at a time to an engine that takes"
        f" {1000 * given.latency:g} ms. {cores.note}.\n"
    )
    show(finding)
    if given.json:
        settings: dict[str, Any] = {key: value for key, value in vars(given).items() if key != "json"}
        results = {**asdict(finding), "ratio": spread(finding.ratios), "target": TARGET}
        write_json(given.json, "remote", {**settings, "cores": cores.note}, results)
    return 1 if given.check and median(finding.ratios) < TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
