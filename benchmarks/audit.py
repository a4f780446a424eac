"""What the audit log costs: the same server without it, with it, and where every answer waits for the disk.

Servers with a model that answers at once take turns, one short round each, on one core; the load generator has another.
A request has three questions, so three lines.

  off          no audit log
  best-effort  lines are written and synced by a thread, and no answer waits
  required     an answer is sent when its lines are on the disk
  before       with --before FOLDER: the server of another checkout, without an audit log

Ratios are of rates in the same round; printed are the median ratio and the range of the middle half. How fast
`required` is depends on the disk: --folder says where the logs are (default: the folder for temporary files). How
long one sync of a line takes there is printed too.

Target, with --before: `off` reaches 0.97 of it. The verdict goes by rates; where other processes kept `off` waiting for
its core for more than a tenth of the time, by CPU per request.
"""

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from contenders import Cores, StartError, decided_command, start
from overhead import CONTENDED, Columns, measure
from report import milliseconds, progress, spread, table, write_json
from workload import SINGLE, http_request, small_body

OFF, BEFORE = "off", "before"
TARGET = 0.97
LINE = b"x" * 700 + b"\n"


def commands(given: argparse.Namespace, folder: Path) -> dict[str, list[str]]:
    key = folder / "audit.key"
    key.write_text("0123456789abcdef" * 4)
    found = {OFF: decided_command("noop")}
    for mode in ("best-effort", "required"):
        flags = "--audit-log", str(folder / f"{mode}.jsonl"), "--audit-key-file", str(key), "--audit", mode
        found[mode] = decided_command("noop", *flags)
    if given.before:
        _, _, *rest = decided_command("noop")
        home: Path = given.before.resolve()
        found[BEFORE] = [str(home / ".venv/bin/python"), str(home / "benchmarks/noop.py"), *rest]
    return found


def sync_seconds(folder: Path) -> float:
    """The median time that one line takes to the disk and back."""
    seconds = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(200):
            began = perf_counter()
            file.write(LINE)
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            seconds.append(perf_counter() - began)
    return median(seconds)


def measured(given: argparse.Namespace, folder: Path, cores: Cores) -> Columns:
    columns: Columns = {}
    with ExitStack() as children:
        servers = []
        for name, command in commands(given, folder).items():
            progress(f"starting {name}")
            servers.append(start(name, command, cores))
            children.callback(servers[-1].stop)
        measure(servers, http_request(SINGLE, small_body()), given, columns)
    return columns


def summarise(columns: Columns) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for connections, by_name in columns.items():
        off = by_name[OFF]
        results[str(connections)] = {
            name: {
                "requests_per_second": median(column.rate),
                "p50_s": median(column.p50),
                "p99_s": median(column.p99),
                "cpu_s_per_request": median(column.cpu),
                "waited": median(column.waited),
                "of_off": spread([its / base for its, base in zip(column.rate, off.rate, strict=True)]),
                "cpu_of_off": spread([its / base for its, base in zip(column.cpu, off.cpu, strict=True)]),
            }
            for name, column in by_name.items()
        }
    return results


def against_before(found: dict[str, Any]) -> float:
    """How much of the rate before is left without an audit log."""
    if found[OFF]["waited"] > CONTENDED:
        return float(found[BEFORE]["cpu_of_off"]["median"])
    return 1 / float(found[BEFORE]["of_off"]["median"])


def show(results: dict[str, Any]) -> None:
    rows = [
        [
            f"{name} ({connections})",
            f"{found['requests_per_second']:.0f}",
            *(f"{found[by]['median']:.2f} ({found[by]['low']:.2f}..{found[by]['high']:.2f})" for by in RATIOS),
            milliseconds(found["p50_s"]),
            milliseconds(found["p99_s"]),
        ]
        for connections, by_name in results.items()
        for name, found in by_name.items()
    ]
    print(table(["audit log (connections)", "requests/s", "rate / off", "CPU / off", "p50 ms", "p99 ms"], rows))


RATIOS = ("of_off", "cpu_of_off")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64], metavar="N", help="1 16 64")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each server at each N (9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round (1.0)")
    parser.add_argument("--folder", type=Path, help="where the logs are written")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout, installed, to compare with")
    parser.add_argument("--quick", action="store_true", help="three rounds of 0.4 s: about 15 s, for a first look")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds = 3, 0.4
    if min(given.connections) < 1 or given.rounds < 1 or not 0 < given.seconds <= 60:
        parser.error("connections and rounds must be at least 1, seconds above 0 and at most 60")
    return given


def main() -> int:
    given = parse()
    cores = Cores.pick()
    with TemporaryDirectory(prefix="decided-audit-", dir=given.folder) as name:
        folder = Path(name)
        sync_s = sync_seconds(folder)
        try:
            results = summarise(measured(given, folder, cores))
        except StartError as error:
            progress("")
            sys.exit(str(error))
    print(f"One request: three questions, three lines. {cores.note.capitalize()}. One sync: {milliseconds(sync_s)} ms.")
    print(f"{given.rounds} rounds of {given.seconds:g} s.\n")
    show(results)
    worst = 1.0
    if given.before:
        worst = min(map(against_before, results.values()))
        verdict = "reached" if worst >= TARGET else "MISSED"
        print(f"\noff / before, the lowest: {worst:.2f} (target: at least {TARGET:g}; {verdict})")
    if given.json:
        settings = {name: getattr(given, name) for name in ("connections", "rounds", "seconds")}
        write_json(given.json, "audit", {**settings, "cores": cores.note, "sync_s": sync_s}, results)
    return 1 if given.check and worst < TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
