"""What serving costs when the model costs nothing: requests a second on one core, against a floor and a peer.

Three servers answer the same 800-byte request with three questions, one after the other in short rounds:

  decided      this project's real command line around a model that answers at once
  bare         uvicorn and one ASGI function with the same JSON work and nothing else: the floor
  opendecider  the nearest open peer, its own application around a fake model, in an environment of its own
  earlier      with --against CHECKOUT: another version of this project, after `make install` there

Each server runs on one core, the load generator on another, and all are started several times: one start of the same
program differs from the next by up to a tenth, for as long as it runs. The load generator keeps N connections busy:
every connection sends its next request when the last is answered. Ratios are of rates in the same round, so that a
noisy neighbour hurts both sides alike; printed are the median ratio and the range of the middle half. CPU is the
server's own, all its threads, per request, and its ratio stands beside the other.

Targets: decided reaches at least 0.8 of bare, 4 times opendecider and 0.95 of an earlier version, at every N. The
verdict goes by the rates. Where other processes kept bare waiting for its core for more than a tenth of the time it
goes by CPU instead, and says so: a server of several threads gets more of a contended core, which says nothing about
the server.
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
from workload import BODIES, SINGLE, http_request, small_body

OURS, BARE, RIVAL, EARLIER = "decided", "bare", "opendecider", "earlier"
CONTENDED = 0.1
TARGETS = {BARE: 0.8, RIVAL: 4.0, EARLIER: 0.95}
WARM_UP_S = 0.5


@dataclass(slots=True)
class Column:
    """The rounds of one server at one number of connections."""

    rate: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    load_busy: list[float] = field(default_factory=list)


def one_round(server: Server, request: bytes, connections: int, seconds: float, into: Column) -> None:
    (ran, waited), load = server.cpu_times(), process_time()
    sample = uvloop.run(closed_loop(server.port, request, connections, seconds))
    (ran_then, waited_then), load_then = server.cpu_times(), process_time()
    if sample.refused:
        raise StartError(f"{server.name} refused requests: {sample.refused}")
    into.rate.append(sample.rate)
    into.p50.append(percentile(sample.latencies, 0.50))
    into.p99.append(percentile(sample.latencies, 0.99))
    into.cpu.append((ran_then - ran) / len(sample.latencies))
    into.waited.append((waited_then - waited) / sample.seconds)
    into.load_busy.append((load_then - load) / sample.seconds)


Columns = dict[int, dict[str, Column]]


def measure(servers: list[Server], request: bytes, given: argparse.Namespace, into: Columns) -> None:
    for server in servers:
        progress(f"warming up {server.name}")
        one_round(server, request, 16, WARM_UP_S, Column())
    for connections in given.connections:
        columns = into.setdefault(connections, {server.name: Column() for server in servers})
        for number in range(given.rounds):
            turn = number % len(servers)
            for server in servers[turn:] + servers[:turn]:
                progress(f"{connections} connections, round {number + 1} of {given.rounds}: {server.name}")
                one_round(server, request, connections, given.seconds, columns[server.name])
    progress("")


def summarise(columns: Columns) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for connections, by_name in columns.items():
        ours = by_name[OURS]
        contended = median(by_name[BARE].waited) > CONTENDED
        servers, ratios = {}, {}
        for name, column in by_name.items():
            servers[name] = {
                "requests_per_second": spread(column.rate),
                "p50_s": median(column.p50),
                "p99_s": median(column.p99),
                "cpu_s_per_request": median(column.cpu),
                "load_generator_busy": median(column.load_busy),
            }
            if name != OURS:
                by_rate = spread([mine / its for mine, its in zip(ours.rate, column.rate, strict=True)])
                by_cpu = spread([its / mine for mine, its in zip(ours.cpu, column.cpu, strict=True)])
                judged = (by_cpu if contended else by_rate)["median"]
                ratios[name] = {
                    "by_rate": by_rate,
                    "by_cpu": by_cpu,
                    "judged_by": "CPU" if contended else "rate",
                    "target": TARGETS[name],
                    "reached": judged >= TARGETS[name],
                }
        results[str(connections)] = {"servers": servers, "ratios": ratios}
    return results


def show(results: dict[str, Any]) -> None:
    rows, ratios = [], []
    for connections, found in results.items():
        for name, server in found["servers"].items():
            rate = server["requests_per_second"]
            rows.append(
                [
                    f"{name} ({connections})",
                    f"{rate['median']:.0f}",
                    f"{rate['low']:.0f}..{rate['high']:.0f}",
                    milliseconds(server["p50_s"]),
                    milliseconds(server["p99_s"]),
                    f"{server['cpu_s_per_request'] * 1e6:.0f}",
                    f"{server['load_generator_busy']:.0%}",
                ]
            )
        for name, ratio in found["ratios"].items():
            cells = [
                f"{by['median']:.2f} ({by['low']:.2f}..{by['high']:.2f})" for by in (ratio["by_rate"], ratio["by_cpu"])
            ]
            verdict = f"{'reached' if ratio['reached'] else 'MISSED'} by {ratio['judged_by']}"
            ratios.append([f"{OURS} / {name} ({connections})", *cells, f"{ratio['target']:g}", verdict])
    print(table(["server (connections)", "req/s", "middle half", "p50 ms", "p99 ms", "CPU us/req", "load busy"], rows))
    print()
    print(table(["ratio (connections)", "by rate", "by CPU", "target", "verdict"], ratios))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64], metavar="N", help="1 16 64")
    parser.add_argument("--starts", type=int, default=3, help="how often all servers are started (3)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each server at each N, after each start (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round (1.0)")
    parser.add_argument("--quick", action="store_true", help="one start, three rounds of 0.4 s: about 15 s")
    parser.add_argument("--peer-python", type=Path, help=f"a Python that has {PEER}; else one is made in --scratch")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version, installed in its folder")
    parser.add_argument("--scratch", type=Path, default=HERE.parent / ".bench", help="ignored folder for the peer")
    parser.add_argument(
        "--log-level",
        choices=("info", "warning"),
        default="info",
        help="of decided and of the peer; info, the default of both, has each write a line per request",
    )
    parser.add_argument(
        "--body", choices=BODIES, default="json", help="the state as JSON, as text, or JSON with blanks"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when a target is missed")
    given = parser.parse_args()
    if given.quick:
        given.starts, given.rounds, given.seconds = 1, 3, 0.4
    if min(given.connections) < 1 or given.starts < 1 or given.rounds < 1 or not 0 < given.seconds <= 60:
        parser.error("connections, starts and rounds must be at least 1, seconds above 0 and at most 60")
    return given


def main() -> int:
    given = parse()
    cores = Cores.pick()
    commands = {OURS: decided_command("noop", "--log-level", given.log_level), BARE: bare_command()}
    if given.against:
        earlier = given.against.resolve()
        commands[EARLIER] = decided_command("noop", "--log-level", given.log_level, checkout=earlier)
    absent = ""
    if not given.no_peer:
        try:
            if given.peer_python is None:
                progress(f"looking for {PEER} in {given.scratch}; the first time installs it there")
            commands[RIVAL] = peer_command(given.peer_python or peer_python(given.scratch), given.log_level)
        except StartError as error:
            absent = str(error)
    columns: Columns = {}
    for number in range(given.starts):
        with ExitStack() as children:
            servers = []
            for name, command in list(commands.items()):
                progress(f"starting {name}, {number + 1} of {given.starts}")
                try:
                    server = start(name, command, cores)
                except StartError as error:
                    if name != RIVAL:
                        progress("")
                        sys.exit(str(error))
                    absent = str(error)
                    del commands[name]
                    continue
                children.callback(server.stop)
                servers.append(server)
            measure(servers, http_request(SINGLE, small_body(given.body)), given, columns)
    results = summarise(columns)
    print(f"One request: {len(small_body(given.body))} bytes, three questions. {cores.note.capitalize()}.")
    print(f"{given.starts} starts, {given.rounds} rounds of {given.seconds:g} s each; log level {given.log_level}.\n")
    show(results)
    if absent:
        print(f"\n{RIVAL}: not measured. {absent}")
    if given.json:
        settings = {
            name: getattr(given, name) for name in ("connections", "starts", "rounds", "seconds", "log_level", "body")
        }
        write_json(given.json, "overhead", {**settings, "cores": cores.note}, results)
    reached = all(ratio["reached"] for found in results.values() for ratio in found["ratios"].values())
    return 1 if given.check and not reached else 0


if __name__ == "__main__":
    sys.exit(main())
