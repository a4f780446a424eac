"""What serving costs when the model costs nothing: requests a second on one core, against a floor and a peer.

Three servers answer the same 800-byte request with three questions, one after the other in short rounds:

  decided      this project's real command line around a model that answers at once
  bare         uvicorn and one ASGI function with the same JSON work and nothing else: the floor
  opendecider  the nearest open peer, its own application around a fake model, in an environment of its own

Each server runs on one core, the load generator on another. It keeps N connections busy: every connection sends its
next request when the last is answered. Ratios are of rates in the same round, so that a noisy neighbour hurts both
sides alike; printed are the median ratio and the range of the middle half. CPU is the server's own, per request: on a
busy machine it is the steadier measure, and its ratio stands beside the other.

Targets: decided reaches at least 0.8 of bare and 4 times opendecider, at every N.
"""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import uvloop
from contenders import (
    HERE,
    PEER,
    Cores,
    Server,
    StartError,
    bare_command,
    decided_command,
    peer_command,
    peer_python,
    start,
)
from loadgen import closed_loop
from report import milliseconds, percentile, progress, spread, table, write_json
from workload import SINGLE, http_request, small_body

OURS, BARE, RIVAL = "decided", "bare", "opendecider"
TARGETS = {BARE: 0.8, RIVAL: 4.0}
WARM_UP_S = 0.5


@dataclass(slots=True)
class Column:
    """The rounds of one server at one number of connections."""

    rate: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    load_busy: list[float] = field(default_factory=list)


def one_round(server: Server, request: bytes, connections: int, seconds: float, into: Column) -> None:
    server_before, load_before = server.cpu_seconds(), process_time()
    sample = uvloop.run(closed_loop(server.port, request, connections, seconds))
    server_after, load_after = server.cpu_seconds(), process_time()
    if sample.refused:
        raise StartError(f"{server.name} refused requests: {sample.refused}")
    into.rate.append(sample.rate)
    into.p50.append(percentile(sample.latencies, 0.50))
    into.p99.append(percentile(sample.latencies, 0.99))
    into.load_busy.append((load_after - load_before) / sample.seconds)
    if server_before is not None and server_after is not None:
        into.cpu.append((server_after - server_before) / len(sample.latencies))


def measure(servers: list[Server], given: argparse.Namespace) -> dict[int, dict[str, Column]]:
    request = http_request(SINGLE, small_body(given.spaced))
    for server in servers:
        progress(f"warming up {server.name}")
        one_round(server, request, 16, WARM_UP_S, Column())
    columns: dict[int, dict[str, Column]] = {}
    for connections in given.connections:
        columns[connections] = {server.name: Column() for server in servers}
        for number in range(given.rounds):
            turn = number % len(servers)
            for server in servers[turn:] + servers[:turn]:
                progress(f"{connections} connections, round {number + 1} of {given.rounds}: {server.name}")
                one_round(server, request, connections, given.seconds, columns[connections][server.name])
    progress("")
    return columns


def summarise(columns: dict[int, dict[str, Column]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for connections, by_name in columns.items():
        row: dict[str, Any] = {}
        for name, column in by_name.items():
            row[name] = {
                "requests_per_second": spread(column.rate),
                "p50_s": median(column.p50),
                "p99_s": median(column.p99),
                "cpu_s_per_request": median(column.cpu) if column.cpu else None,
                "load_generator_busy": median(column.load_busy),
            }
            if name != OURS:
                pairs = zip(by_name[OURS].rate, column.rate, strict=True)
                row[name]["decided_to_this"] = spread([ours / theirs for ours, theirs in pairs])
                row[name]["target"] = TARGETS[name]
                pairs = zip(by_name[OURS].cpu, column.cpu, strict=True)
                row[name]["cpu_of_this_to_decided"] = median([theirs / ours for ours, theirs in pairs] or [0.0])
        results[str(connections)] = row
    return results


def show(results: dict[str, Any]) -> bool:
    """Print both tables; say whether every target was reached."""
    rows, ratios, reached = [], [], True
    for connections, by_name in results.items():
        for name, found in by_name.items():
            rate, cpu = found["requests_per_second"], found["cpu_s_per_request"]
            rows.append(
                [
                    f"{name} ({connections})",
                    f"{rate['median']:.0f}",
                    f"{rate['low']:.0f}..{rate['high']:.0f}",
                    milliseconds(found["p50_s"]),
                    milliseconds(found["p99_s"]),
                    "-" if cpu is None else f"{cpu * 1e6:.0f}",
                    f"{found['load_generator_busy']:.0%}",
                ]
            )
            if name != OURS:
                ratio, target = found["decided_to_this"], found["target"]
                met = ratio["median"] >= target
                reached = reached and met
                ratios.append(
                    [
                        f"{OURS} / {name} ({connections})",
                        f"{ratio['median']:.2f}",
                        f"{ratio['low']:.2f}..{ratio['high']:.2f}",
                        f"{found['cpu_of_this_to_decided']:.2f}",
                        f"{target:g}",
                        "reached" if met else "MISSED",
                    ]
                )
    print(table(["server (connections)", "req/s", "middle half", "p50 ms", "p99 ms", "CPU us/req", "load busy"], rows))
    print()
    if ratios:
        print(table(["ratio of req/s (connections)", "median", "middle half", "by CPU", "target", "verdict"], ratios))
    return reached


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64], metavar="N", help="1 16 64")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each server at each N (9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round (1.0)")
    parser.add_argument("--quick", action="store_true", help="three rounds of 0.4 s: about 15 s, for a first look")
    parser.add_argument("--peer-python", type=Path, help=f"a Python that has {PEER}; else one is made in --scratch")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--scratch", type=Path, default=HERE.parent / ".bench", help="ignored folder for the peer")
    parser.add_argument(
        "--log-level",
        choices=("info", "warning"),
        default="info",
        help="of decided and of the peer; info, the default of both, has each write a line per request",
    )
    parser.add_argument(
        "--spaced", action="store_true", help="send JSON with blanks, as people and some clients write it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when a target is missed")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds = 3, 0.4
    if min(given.connections) < 1 or given.rounds < 1 or not 0 < given.seconds <= 60:
        parser.error("connections and rounds must be at least 1, seconds above 0 and at most 60")
    return given


def main() -> int:
    given = parse()
    cores = Cores.pick()
    commands = {OURS: decided_command("noop", "--log-level", given.log_level), BARE: bare_command()}
    absent = ""
    if not given.no_peer:
        try:
            if given.peer_python is None:
                progress(f"looking for {PEER} in {given.scratch}; the first time installs it there")
            commands[RIVAL] = peer_command(given.peer_python or peer_python(given.scratch), given.log_level)
        except StartError as error:
            absent = str(error)
    with ExitStack() as children:
        servers = []
        for name, command in commands.items():
            progress(f"starting {name}")
            try:
                server = start(name, command, cores)
            except StartError as error:
                if name != RIVAL:
                    progress("")
                    sys.exit(str(error))
                absent = str(error)
                continue
            children.callback(server.stop)
            servers.append(server)
        columns = measure(servers, given)
    results = summarise(columns)
    print(f"One request: {len(small_body(given.spaced))} bytes, three questions. {cores.note.capitalize()}.")
    print(f"{given.rounds} rounds of {given.seconds:g} s; log level {given.log_level}.\n")
    reached = show(results)
    if absent:
        print(f"\n{RIVAL}: not measured. {absent}")
    if given.json:
        settings = {name: getattr(given, name) for name in ("connections", "rounds", "seconds", "log_level", "spaced")}
        write_json(given.json, "overhead", {**settings, "cores": cores.note}, results)
    return 1 if given.check and not reached else 0


if __name__ == "__main__":
    sys.exit(main())
