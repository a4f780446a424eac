"""What the small embedded model costs: tokens per CPU second, raw and served, against PyTorch float32 and pairs.

Four ways to answer the same questions, one after the other in every round, one thread each:

  raw     the engine in this process: tokenise, read the state once, answer
  served  `decided serve` over HTTP, the CPU time of the whole server
  once    a network of the same shape in PyTorch float32, the state read once as well
  pairs   the same in PyTorch, every question joined to the whole state and padded: what servers of pairs do

The two PyTorch ways need `--torch PYTHON`, a Python that has it; without it they are left out. Tokens count once, the
state's and the questions', in every way alike. Ratios are of CPU time in the same round; printed are medians.

Targets: raw at least 2.0 times once; 12 questions on a 384-token state at most 2.0 times one; served 0.95 of raw.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from contenders import HERE, Cores, Server, start
from loadgen import HOST
from report import progress, table, write_json

from decided.contract.types import Noul, Question
from decided.engines.api import run_to_end
from decided.engines.embedded.model import Embedded, load
from decided.settings import Settings

SHAPES = [(32, 1), (128, 1), (384, 1), (384, 3), (384, 12), (1500, 1), (1500, 12)]
"""(state tokens, questions)"""
ONE, TWELVE = (384, 1), (384, 12)
NAME = "small"  # torch_ways.py has the shape of this one
ASKED = "Is the parcel late and does the customer want the money back?"

Way = Callable[[str, int], float]
"""Answers so many questions about a state, and tells the CPU seconds it took."""


def state_of(tokens: int) -> str:
    return "word " * tokens


def questions(count: int) -> dict[str, Question]:
    return {f"q{number}": Noul(ASKED) for number in range(count)}


def raw(model: Embedded) -> Way:
    def ask(state: str, count: int) -> float:
        began = process_time()
        run_to_end(model, model.encode(model.prepare(list(questions(count).values())), state).items)
        return process_time() - began

    return ask


def served(server: Server) -> Way:
    connection = HTTPConnection(HOST, server.port, timeout=300)

    def ask(state: str, count: int) -> float:
        asked = {name: {"type": "noul", "instructions": ASKED} for name in questions(count)}
        began = server.cpu_times()[0]
        connection.request("POST", "/v1/systemone", json.dumps({"state": state, "questions": asked}))
        reply = connection.getresponse()
        if reply.status != 200:
            raise SystemExit(f"the server answered {reply.status}: {reply.read()!r}")
        reply.read()
        return server.cpu_times()[0] - began

    return ask


def torch_way(child: "subprocess.Popen[str]", way: str, model: Embedded) -> Way:
    def ask(state: str, count: int) -> float:
        prepared = model.prepare(list(questions(count).values()))
        own = [len(asked.ids) for asked in prepared]
        size = model.encode(prepared, state).input_tokens - sum(own)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"way": way, "state": size, "questions": own}) + "\n")
        child.stdin.flush()
        return float(child.stdout.readline())

    return ask


def measure(ways: dict[str, Way], rounds: int, model: Embedded) -> dict[tuple[int, int], dict[str, list[float]]]:
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for shape in SHAPES:
        tokens, count = shape
        found[shape] = {name: [] for name in ways}
        for number in range(rounds + 1):
            progress(f"{tokens} tokens, {count} questions: round {number} of {rounds}")
            for name, ask in ways.items():
                seconds = ask(state_of(tokens), count)
                if number:  # the first round warms up
                    found[shape][name].append(seconds)
    progress("")
    return found


def ratio(found: dict[str, list[float]], above: str, below: str) -> float:
    return median(a / b for a, b in zip(found[above], found[below], strict=True))


def show(found: dict[tuple[int, int], dict[str, list[float]]], model: Embedded) -> dict[str, Any]:
    names = list(next(iter(found.values())))
    head = ["state x questions", "tokens", *(f"{n} tok/cpu-s" for n in names), *(f"raw/{n}" for n in names[1:])]
    rows, results = [], {}
    for (state, count), times in found.items():
        prepared = model.prepare(list(questions(count).values()))
        tokens = model.encode(prepared, state_of(state)).input_tokens
        rates = {name: tokens / median(times[name]) for name in names}
        ratios = {name: ratio(times, name, "raw") for name in names[1:]}
        results[f"{state}x{count}"] = {"tokens": tokens, "rates": rates, "raw_over": ratios}
        cells = [f"{rates[n]:.0f}" for n in names] + [f"{ratios[n]:.2f}" for n in names[1:]]
        rows.append([f"{state} x {count}", str(tokens), *cells])
    print(table(head, rows))
    twelve = {name: median(found[TWELVE][name]) / median(found[ONE][name]) for name in names}
    print("\n12 questions on a 384-token state against 1: " + ", ".join(f"{n} {r:.2f}" for n, r in twelve.items()))
    return {**results, "twelve_over_one": twelve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with PyTorch, for the two ways in it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32"], help="of raw and served")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    model = load(NAME, Settings(dtype=args.dtype, threads=1))
    flags = ["--model", f"embedded:{NAME}", "--dtype", args.dtype, "--threads", "1", "--host", HOST]
    flags += ["--log-level", "warning"]
    server = start("decided", [sys.executable, "-m", "decided", "serve", *flags], Cores(frozenset(), frozenset()))
    child = None
    try:
        ways = {"raw": raw(model), "served": served(server)}
        if args.torch:
            command = [args.torch, str(HERE / "torch_ways.py")]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            ways |= {way: torch_way(child, way, model) for way in ("once", "pairs")}
        results = show(measure(ways, args.rounds, model), model)
    finally:
        server.stop()
        if child is not None:
            child.terminate()
            child.wait()
    if args.json:
        write_json(args.json, "engine", {"rounds": args.rounds, "dtype": args.dtype}, results)


if __name__ == "__main__":
    main()
