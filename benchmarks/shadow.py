"""What does a client feel of a second model that is asked too?

Two servers have the same model, one of them with `--shadow` and a share of all answers. Small requests go to each in
turn, at a steady rate that leaves room, a few stretches long; of each server's stretches the one with the lower p99
counts. How many of the answers the second model got to is shown beside it: with none, the ratio would say nothing.

  ratio   p99 with the second model / p99 without it. Target: at most 1.1
"""

import argparse
import os
import sys
import urllib.request
from pathlib import Path

import uvloop
from contenders import Cores, Server, StartError, decided_command, start
from fairness import Latency
from loadgen import closed_loop, steady
from report import milliseconds, progress, table, write_json
from workload import SINGLE, http_request, small_body

TARGET = 1.1


async def measure(servers: dict[str, Server], given: argparse.Namespace) -> dict[str, Latency]:
    request = http_request(SINGLE, small_body())
    rate = given.share_of_rate * (await closed_loop(servers["alone"].port, request, 8, 3.0)).rate
    found: dict[str, list[Latency]] = {name: [] for name in servers}
    for number in range(given.rounds):
        for name, server in servers.items():
            progress(f"round {number + 1}: {name}, {rate:.1f} requests a second")
            found[name].append(Latency.of(await steady(server.port, request, 2, rate, given.stretch)))
    progress("")
    return {name: min(stretches, key=lambda each: each.p99_s) for name, stretches in found.items()}


def results(port: int) -> dict[str, int]:
    """What came of asking the second model: agree, disagree, failed, dropped."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        lines = [line for line in reply.read().decode().splitlines() if line.startswith("service_shadow_answers_total")]
    return {line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in lines}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:small", help="the model that answers (embedded:small)")
    parser.add_argument("--shadow", default="embedded", help="the second model (embedded)")
    parser.add_argument(
        "--share-of-rate", type=float, default=0.1, help="requests sent, of what the server can do (0.1)"
    )
    parser.add_argument("--stretch", type=float, default=20.0, help="seconds of each stretch (20)")
    parser.add_argument("--rounds", type=int, default=3, help="stretches of each server (3)")
    parser.add_argument("--quick", action="store_true", help="one round of short stretches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    given = parser.parse_args()
    if given.quick:
        given.stretch, given.rounds = 6.0, 1
    return given


def main() -> int:
    given = parse()
    cores = Cores(*[frozenset(os.sched_getaffinity(0))] * 2)
    flags = {"alone": [], "beside": ["--shadow", given.shadow, "--shadow-share", "1"]}
    servers: dict[str, Server] = {}
    try:
        for name, more in flags.items():
            command = decided_command(given.model, "--log-level", "warning", *more)
            servers[name] = start(name, command, cores, model_s=60)
        found = uvloop.run(measure(servers, given))
        second = results(servers["beside"].port)
    except StartError as error:
        sys.exit(str(error))
    finally:
        for server in servers.values():
            server.stop()
    rows = [
        [name, str(each.requests), milliseconds(each.p50_s), milliseconds(each.p99_s)] for name, each in found.items()
    ]
    print(table(["server", "requests", "p50 ms", "p99 ms"], rows))
    ratio = found["beside"].p99_s / found["alone"].p99_s
    print(f"\np99 ratio: {ratio:.2f} (target: at most {TARGET:g}); the second model's answers: {second or 'none'}")
    if given.json:
        write_json(given.json, "shadow", {"model": given.model, "shadow": given.shadow}, {"ratio": ratio, **second})
    return 1 if given.check and (ratio > TARGET or not second) else 0


if __name__ == "__main__":
    sys.exit(main())
