"""Does every core work? The embedded model served with N threads, against N engines of one thread side by side.

    python benchmarks/cores.py

For each number of cores (those of the machine, and half of them, and so on) and two texts, one of a sentence and one of
some 400 tokens, with three questions each:

  side by side  N engines of one thread, a thread each, in one process, without HTTP: what the cores can give
  served        `decided serve --threads N` on the same N cores, over HTTP, asked by 2 N + 16 connections
  ratio         served / side by side. Target: at least 0.85
  alone         median latency of one connection that asks one thing after the other
  one engine    what one engine of N threads takes for the same in process, without HTTP

Every state is new. The load generator has a core of its own where one is left over; else it shares the server's, which
costs the server something. On a machine without network: `--pack FOLDER` here, once; then there `--wheels FOLDER`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from gpu_wheels import find_in, pack, unpack

HERE = Path(__file__).resolve().parent
TARGET = 0.85
PACKED = (
    "anyio certifi h11 httpcore2 httptools httpx2 idna msgspec prometheus-client pyyaml truststore typing-extensions "
    "uvloop zstandard"
)
NUMBER = "@@@@@@@@"
"""Stands in a state where its number goes."""
SHORT = f"Ticket {NUMBER}: my parcel is two days late and nobody answers the phone!"
SENTENCE = "The parcel was handed in on Monday, it was promised for Tuesday, and nobody has seen it since. "
TEXTS = {"short": SHORT, "400 tokens": f"{SHORT} {SENTENCE * 17}"}


def questions() -> dict[str, Any]:
    return {
        "topic": {
            "type": "choice",
            "instructions": "What is it about?",
            "criteria": {"delivery": None, "billing": None},
        },
        "urgency": {"type": "score", "instructions": "How urgent is it?", "criteria": ["it can wait", "today"]},
        "late": {"type": "noul", "instructions": "Is the parcel late?"},
    }


def numbered(text: str, number: int) -> str:
    return text.replace(NUMBER, f"{number:08}")


# --- in process: a child of its own for each measurement ---


def side_by_side(engines: int, threads: int, text: str, seconds: float) -> dict[str, float]:
    """Answers a second of so many engines of so many threads each, and the median seconds of an answer."""
    from decided.contract.types import Choice, Noul, Question, Score
    from decided.engines.api import run_to_end
    from decided.engines.embedded.model import load
    from decided.settings import Settings

    asked: list[Question] = [
        Choice({"delivery": None, "billing": None}, "What is it?"),
        Score(["it can wait", "today"], "How urgent is it?"),
        Noul("Is the parcel late?"),
    ]
    models = [load("", Settings(threads=threads)) for _ in range(engines)]
    took: list[list[float]] = [[] for _ in models]
    gate = threading.Barrier(engines)
    ends: list[float] = []

    def work(number: int) -> None:
        model = models[number]
        prepared = model.prepare(asked)
        run_to_end(model, model.encode(prepared, numbered(text, number)).items)
        gate.wait()
        began = last = perf_counter()
        while last < began + seconds:
            state = numbered(text, number * 1_000_000 + len(took[number]))
            run_to_end(model, model.encode(prepared, state).items)
            took[number].append((now := perf_counter()) - last)
            last = now
        ends.append(last - began)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(engines)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rate = sum(len(times) / sum(times) for times in took)
    return {"rate": rate, "median_s": median(seconds for times in took for seconds in times)}


def in_child(cores: frozenset[int], engines: int, threads: int, text: str, seconds: float) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--child", f"{engines},{threads},{seconds},{text}"]
    found: dict[str, float] = json.loads(_on(cores, lambda: subprocess.check_output(command)))
    return found


def _on(cores: frozenset[int], start: Any) -> Any:
    """Start something on these cores: a child inherits the affinity."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return start()
    finally:
        os.sched_setaffinity(0, before)


# --- served ---


def served(cores: frozenset[int], load: frozenset[int], threads: int, seconds: float) -> dict[str, dict[str, float]]:
    """For each text, requests a second with many connections and the median latency with one."""
    import uvloop
    from contenders import Cores, start

    flags = ["--host", "127.0.0.1", "--threads", str(threads), "--log-level", "warning", "--request-timeout-s", "120"]
    server = start("decided", [sys.executable, "-m", "decided", "serve", *flags], Cores(cores, load))
    try:
        found: dict[str, dict[str, float]] = {}
        for name, text in TEXTS.items():
            many = uvloop.run(_load(server.port, text, 2 * threads + 16, seconds))
            one = uvloop.run(_load(server.port, text, 1, seconds / 2))
            found[name] = {"rate": many["rate"], "alone_s": one["median_s"]}
        return found
    finally:
        server.stop()


async def _load(port: int, text: str, connections: int, seconds: float) -> dict[str, float]:
    """New states from each connection, the next when the last was answered; the first third is not counted."""
    import asyncio

    from loadgen import Client, _connect
    from workload import SINGLE, http_request

    sent = 0
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done: list[tuple[float, float]] = []

    def request() -> bytes:
        nonlocal sent
        sent += 1
        return http_request(SINGLE, json.dumps({"state": numbered(text, sent), "questions": questions()}).encode())

    def replied(client: Client, status: int) -> None:
        now = perf_counter()
        if status != 200:
            over.set_exception(ConnectionError(f"the server answered {status}"))
            return
        done.append((now, now - client.due))
        client.send(request(), perf_counter())

    clients = await _connect(port, connections, replied, over)
    begun = perf_counter()
    for client in clients:
        client.send(request(), begun)
    await asyncio.wait([over], timeout=1.5 * seconds)
    for client in clients:
        client.close()
    if over.done():
        over.result()
    counted = [(when, took) for when, took in done if when > begun + 0.5 * seconds]
    if not counted:
        return {"rate": 0.0, "median_s": float("nan")}
    return {"rate": len(counted) / seconds, "median_s": median(took for _, took in counted)}


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    from report import progress

    usable = sorted(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    for count in given.cores:
        cores = frozenset(usable[:count])
        load = frozenset(usable[count : count + 2] or usable)
        progress(f"{count} cores: served")
        of_server = served(cores, load, count, given.seconds)
        for name, text in TEXTS.items():
            progress(f"{count} cores, {name}: side by side")
            side = in_child(cores, count, 1, text, given.seconds)
            progress(f"{count} cores, {name}: one engine")
            one = in_child(cores, 1, count, text, given.seconds / 2)
            rows.append({"cores": count, "text": name, "side": side["rate"], "served": of_server[name]["rate"],
                         "alone_s": of_server[name]["alone_s"], "one_engine_s": one["median_s"],
                         "shares": len(usable) < count + 1})  # fmt: skip
    progress("")
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    from report import milliseconds, table

    head = ["cores", "text", "side by side /s", "served /s", "ratio", "alone ms", "one engine ms"]
    lines = [
        [f"{row['cores']}{' *' if row['shares'] else ''}", row["text"], f"{row['side']:.1f}", f"{row['served']:.1f}",
         f"{row['served'] / row['side']:.2f}", milliseconds(row["alone_s"]), milliseconds(row["one_engine_s"])]
        for row in rows
    ]  # fmt: skip
    print(table(head, lines))
    if any(row["shares"] for row in rows):
        print("* the load generator shares these cores")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", help="numbers of cores, such as 1,4,16 (default: 1, 2, 4, ... as there are)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured for each rate (3)")
    parser.add_argument("--quick", action="store_true", help="one core and all of them, a second and a half each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the target is missed")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="fetch wheels for a machine without network")
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="that machine's Python")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="use wheels that were carried here")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    there = len(os.sched_getaffinity(0))
    if given.cores:
        given.cores = [int(count) for count in given.cores.split(",")]
    elif given.quick:
        given.cores = sorted({1, there})
    else:
        given.cores = sorted({there, *(2**power for power in range(12) if 2**power < there)})
    if given.quick:
        given.seconds = min(given.seconds, 1.5)
    if not given.cores or min(given.cores) < 1 or max(given.cores) > there:
        parser.error(f"this process may use {there} cores")
    return given


def main(given: argparse.Namespace) -> int:
    from report import write_json

    rows = measure(given)
    show(rows)
    if given.json:
        write_json(given.json, "cores", {"seconds": given.seconds, "target": TARGET}, {"rows": rows})
    return int(given.check and any(row["served"] < TARGET * row["side"] for row in rows))


if __name__ == "__main__":
    chosen = parse()
    if chosen.pack:
        pack(chosen.pack, chosen.python, PACKED)
        sys.exit(0)
    find_in(str(HERE), str(HERE.parent / "src"))
    if chosen.child:
        engines, threads, seconds, text = chosen.child.split(",", 3)
        print(json.dumps(side_by_side(int(engines), int(threads), text, float(seconds))))
        sys.exit(0)
    with tempfile.TemporaryDirectory() as scratch:
        if chosen.wheels:
            unpack(chosen.wheels, Path(scratch))
        sys.exit(main(chosen))
