"""What one client feels when another floods the server.

Two clients have a key each. The first sends small requests (one state, three questions) at a steady rate, a fifth of
what the server can do: alone, then while the other keeps hundreds of connections busy, and all of it once more. Of two
stretches of a kind the one with the lower p99 counts, so that one hiccup of the machine does not decide.

  alone       nobody else asks
  other key   the flood comes with a key of another name
  same key    the flood comes with a key of the same name: what it would be without names

  ratio       p99 of the first client beside the flood / p99 alone. Target: at most 5, with another key

The model is a simulated one of known speed, `paced:SPEED:BUDGET`, unless --model names another. Latency counts from the
moment at which a request was due. Of the flood, what is refused (503) asks again after a second, as it is told to.
"""

import argparse
import asyncio
import os
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from contenders import Cores, StartError, decided_command, start
from fairness import Latency
from loadgen import Sample, closed_loop, steady
from report import milliseconds, progress, table, write_json
from workload import SINGLE, http_request, small_body

TARGET = 5.0
SHARE = 0.2
RETRY_AFTER_S = 1.0
KEYS = {"alone": "", "other key": "flood-key", "same key": "second-key"}
"""What a stretch is called, and the key with which the flood comes."""
FIRST = "first-key"
KEY_FILE = f"first={FIRST}\nfirst={KEYS['same key']}\nflood={KEYS['other key']}\n"


class Stretch:
    """One client, and what the flood beside it got."""

    def __init__(self, sample: Sample, flood: Sample | None) -> None:
        self.latency = Latency.of(sample)
        self.flood_rate = flood.rate if flood else 0.0


async def measure(port: int, given: argparse.Namespace) -> tuple[float, dict[str, Stretch]]:
    small = http_request(SINGLE, small_body(), FIRST)
    rate = given.rate
    if not rate:
        progress("how many requests there can be")
        rate = SHARE * (await closed_loop(port, small, 32, 3.0)).rate
    found: dict[str, list[Stretch]] = {kind: [] for kind in KEYS}
    for number in range(given.rounds):
        for kind, key in KEYS.items():
            progress(f"round {number + 1}: {kind}")
            found[kind].append(await stretch(port, small, key, rate, given))
    progress("")
    return rate, {kind: min(each, key=lambda one: one.latency.p99_s) for kind, each in found.items()}


async def stretch(port: int, small: bytes, key: str, rate: float, given: argparse.Namespace) -> Stretch:
    flood = None
    if key:
        request = http_request(SINGLE, small_body(), key)
        flood = asyncio.ensure_future(closed_loop(port, request, given.flood, given.stretch + 2, RETRY_AFTER_S))
        await asyncio.sleep(1)  # it has filled what it can
    sample = await steady(port, small, given.connections, rate, given.stretch)
    return Stretch(sample, await flood if flood else None)


def show(found: dict[str, Stretch]) -> None:
    alone = found["alone"].latency.p99_s
    rows = [
        [
            kind,
            str(each.latency.requests),
            str(each.latency.refused),
            milliseconds(each.latency.p50_s),
            milliseconds(each.latency.p99_s),
            f"{each.latency.p99_s / alone:.2f}",
            f"{each.flood_rate:.0f}",
        ]
        for kind, each in found.items()
    ]
    print(table(["the flood has", "answered", "refused", "p50 ms", "p99 ms", "p99 ratio", "flood/s"], rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="paced:40000:256", help="serve this model (paced:40000:256)")
    parser.add_argument("--flood", type=int, default=200, help="connections of the flood (200)")
    parser.add_argument("--connections", type=int, default=8, help="connections of the first client (8)")
    parser.add_argument("--rate", type=float, default=0.0, help="its requests a second (a fifth of the capacity)")
    parser.add_argument("--stretch", type=float, default=15.0, help="seconds of each stretch (15)")
    parser.add_argument("--rounds", type=int, default=2, help="how often all of it is done (2)")
    parser.add_argument("--quick", action="store_true", help="one round of short stretches: about 20 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    given = parser.parse_args()
    if given.quick:
        given.stretch, given.rounds = 4.0, 1
    if min(given.connections, given.flood, given.stretch, given.rounds) <= 0:
        parser.error("every number must be above 0")
    return given


def main() -> int:
    given = parse()
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
    with TemporaryDirectory(prefix="decided-clients-") as folder:
        keys = Path(folder) / "keys"
        keys.write_text(KEY_FILE)
        os.environ["SERVICE_API_KEY_FILE"] = str(keys)
        progress(f"starting decided with the model {given.model}")
        try:
            command = decided_command(given.model, "--log-level", "warning")
            server = start("decided", command, Cores(cores, cores), model_s=60, key=FIRST)
        except StartError as error:
            progress("")
            sys.exit(str(error))
        try:
            rate, found = uvloop.run(measure(server.port, given))
        except ConnectionError as error:
            progress("")
            sys.exit(f"no result: {error}")
        finally:
            server.stop()
    print(
        f"Model {given.model}; the first client asks {rate:.0f} times a second, the flood on {given.flood} connections."
    )
    print(f"Server and load share {len(cores)} cores.\n")
    show(found)
    ratio = found["other key"].latency.p99_s / found["alone"].latency.p99_s
    refused = found["other key"].latency.refused
    reached = ratio <= TARGET and not refused
    verdict = "reached" if reached else "MISSED"
    print(f"\np99 ratio with another key: {ratio:.2f} (target: at most {TARGET:g}, and none refused; {verdict})")
    if given.json:
        results = {kind: {**asdict(each.latency), "flood_rate": each.flood_rate} for kind, each in found.items()}
        write_json(given.json, "clients", {"model": given.model, "rate": rate, "flood": given.flood}, results)
    return 1 if given.check and not reached else 0


if __name__ == "__main__":
    sys.exit(main())
