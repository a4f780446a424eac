"""How good the served model is on labelled questions: accuracy by task, calibration, order of options, 8 bits.

A server is started as `make serve` starts it (or `--url` names one), and every row of the data is asked over HTTP. Rows
are lines of JSON, plain or gzip: {"task", "state", "question", "answer"}; the tasks must not have been trained on.

  make eval-model DATA=folder-of-jsonl                    accuracy, calibration error, log-loss, by task and by type
  ... ARGS="--model embedded:small"                       of another model
  ... ARGS="--reorder 200"                                also asks choices with their options turned round
  ... ARGS="--float32 40"                                 also asks 40 rows of a task of a server with --dtype float32

Macro accuracy is the mean over tasks. The calibration error is over ten bins of the top probability, all rows together.
Decided is the share of the rows that can be acted on, the surest first, with 95 % of them right; high is the share of
the right answers that have a probability of 0.9 or more.
"""

import argparse
import contextlib
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from math import log
from pathlib import Path
from statistics import mean
from threading import local
from typing import Any
from urllib.parse import urlsplit

from contenders import Cores, start
from loadgen import HOST
from report import progress, table, write_json

BINS = 10
FEW_OPTIONS = 10
CONNECTIONS = 4
SURE_ENOUGH = 0.95
HIGH = 0.9
TIMEOUT_S = 300

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """One row's answer: the probabilities in the order of the options, and which of them is right."""

    row: Row
    shares: list[float]
    right: int

    @property
    def chosen(self) -> int:
        return self.shares.index(max(self.shares))

    @property
    def hit(self) -> bool:
        return self.chosen == self.right


class Asker:
    """Asks one server, over a connection per thread."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self._own = local()

    def shares(self, row: Row, turned: bool = False) -> dict[str, float]:
        question = row["question"]
        if turned:
            question = {**question, "criteria": dict(reversed(question["criteria"].items()))}
        body = json.dumps({"state": row["state"], "questions": {"q": question}})
        if not hasattr(self._own, "connection"):
            self._own.connection = HTTPConnection(self._address, timeout=TIMEOUT_S)
        self._own.connection.request("POST", "/v1/systemone", body, {"content-type": "application/json"})
        reply = self._own.connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise SystemExit(f"the server answered {reply.status}: {text[:300]!r}")
        found: dict[str, float] = json.loads(text)["answers"]["q"]["probabilities"]
        return found

    def judge(self, row: Row) -> Judged:
        found = self.shares(row)
        answer = row["answer"]
        name = str(answer).lower() if isinstance(answer, bool) else str(answer)
        return Judged(row, list(found.values()), list(found).index(name))


@contextlib.contextmanager
def served(*flags: str) -> Iterator[str]:
    """The address of a server on all cores, as `make serve` starts it."""
    command = [sys.executable, "-m", "decided", "serve", "--host", HOST, "--log-level", "warning", *flags]
    server = start("decided", command, Cores(frozenset(), frozenset()))
    try:
        yield f"http://{HOST}:{server.port}"
    finally:
        server.stop()


def read(paths: Sequence[Path], limit: int) -> Iterator[Row]:
    for path in paths:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            for _, line in zip(range(limit), lines, strict=False):
                row: Row = {"task": path.name.split(".")[0], **json.loads(line)}
                yield row


def asked(asker: Asker, rows: Sequence[Row], what: str) -> list[Judged]:
    out: list[Judged] = []
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for judged in pool.map(asker.judge, rows):
            out.append(judged)
            progress(f"{what}: {len(out)} of {len(rows)}")
    progress("")
    return out


def calibration_error(judged: Sequence[Judged]) -> float:
    bins: dict[int, list[float]] = defaultdict(list)
    for j in judged:
        top = max(j.shares)
        bins[min(int(top * BINS), BINS - 1)].append(j.hit - top)
    return sum(abs(sum(gaps)) for gaps in bins.values()) / len(judged)


def decided(judged: Sequence[Judged]) -> float:
    """The largest share of the rows, the surest first, of which `SURE_ENOUGH` are right."""
    found = hits = 0
    for count, j in enumerate(sorted(judged, key=lambda j: -max(j.shares)), 1):
        hits += j.hit
        if hits >= SURE_ENOUGH * count:
            found = count
    return found / len(judged)


def figures(judged: Sequence[Judged]) -> dict[str, float]:
    return {
        "rows": len(judged),
        "accuracy": mean(j.hit for j in judged),
        "log_loss": mean(-log(max(j.shares[j.right], 1e-9)) for j in judged),
        "calibration_error": calibration_error(judged),
        "guessing": mean(1 / len(j.shares) for j in judged),
        "decided": decided(judged),
        "high": mean(max(j.shares) >= HIGH for j in judged if j.hit) if any(j.hit for j in judged) else 0.0,
    }


def grouped(judged: Sequence[Judged], key: str) -> dict[str, list[Judged]]:
    out: dict[str, list[Judged]] = defaultdict(list)
    for j in judged:
        out[j.row["task"] if key == "task" else j.row["question"]["type"]].append(j)
    return dict(sorted(out.items()))


def macro(judged: Sequence[Judged]) -> float:
    return mean(mean(j.hit for j in own) for own in grouped(judged, "task").values())


def turned_round(asker: Asker, judged: Sequence[Judged], count: int) -> dict[str, float]:
    """Choices asked again with their options in reverse: how many change, and by how much at most."""
    rows = [j for j in judged if j.row["question"]["type"] == "choice" and len(j.shares) <= FEW_OPTIONS]
    rows = rows[:: max(1, len(rows) // count)]
    flips, largest = 0, 0.0
    for j in rows:
        again = list(asker.shares(j.row, turned=True).values())[::-1]
        flips += again.index(max(again)) != j.chosen
        largest = max(largest, *(abs(a - b) for a, b in zip(again, j.shares, strict=True)))
    return {"rows": len(rows), "changed": flips / len(rows), "largest_difference": largest}


def rounding(judged: Sequence[Judged], exact: Sequence[Judged]) -> dict[str, float]:
    """What 8 bits cost: accuracy of both on the same rows."""
    return {
        "rows": len(exact),
        "macro_8_bit": macro(judged),
        "macro_float32": macro(exact),
        "changed": mean(a.chosen != b.chosen for a, b in zip(judged, exact, strict=True)),
    }


def show(judged: Sequence[Judged]) -> dict[str, Any]:
    parts = {**grouped(judged, "task"), **{f"all {k}": v for k, v in grouped(judged, "type").items()}, "all": judged}
    found = {name: figures(own) for name, own in parts.items()}
    shown = {"accuracy": "accuracy", "guessing": "guessing", "log-loss": "log_loss",
             "calibration error": "calibration_error", "decided": "decided", "high": "high"}  # fmt: skip
    rows = [[name, f"{f['rows']:.0f}", *(f"{f[key]:.3f}" for key in shown.values())] for name, f in found.items()]
    print(table(["task", "rows", *shown], rows))
    print(f"\nmacro accuracy over {len(grouped(judged, 'task'))} tasks: {macro(judged):.4f}")
    return {"parts": found, "macro": macro(judged), "tops": [[round(max(j.shares), 4), int(j.hit)] for j in judged]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="files of labelled rows, or folders of them")
    parser.add_argument("--model", default="embedded", help="serve this model, as in `decided serve --model`")
    parser.add_argument("--url", help="a server that runs already, in place of one started here")
    parser.add_argument("--rows", type=int, default=sys.maxsize, help="rows of a file, the first ones (default: all)")
    parser.add_argument("--reorder", type=int, default=0, metavar="N", help="choices to ask again, options reversed")
    parser.add_argument("--float32", type=int, default=0, metavar="N", help="rows of a file to ask in float32 as well")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    paths = [p for given in args.data for p in (sorted(given.glob("*.jsonl*")) if given.is_dir() else [given])]
    with contextlib.ExitStack() as stack:
        asker = Asker(args.url or stack.enter_context(served("--model", args.model)))
        judged = asked(asker, list(read(paths, args.rows)), "asking")
        results = show(judged)
        if args.reorder:
            results["reordered"] = turned_round(asker, judged, args.reorder)
            print("options reversed: {changed:.2%} of {rows} answers change".format(**results["reordered"]))
            print("largest difference of a probability: {largest_difference:.1e}".format(**results["reordered"]))
    if args.float32:
        with served("--model", args.model, "--dtype", "float32") as url:
            few = list(read(paths, min(args.rows, args.float32)))
            exact = asked(Asker(url), few, "asking in float32")
        results["rounding"] = rounding(first_of_each(judged, args.float32), exact)
        print("macro accuracy of {rows} rows: {macro_8_bit:.4f} with 8 bits, {macro_float32:.4f} in float32; "
              "{changed:.2%} of the answers differ".format(**results["rounding"]))  # fmt: skip
    if args.json:
        write_json(args.json, "quality", {"data": [p.name for p in paths]}, results)


def first_of_each(judged: Sequence[Judged], count: int) -> list[Judged]:
    """The rows that `read` gives with this limit: the first ones of every file."""
    seen: dict[str, int] = defaultdict(int)
    out = []
    for j in judged:
        seen[j.row["task"]] += 1
        if seen[j.row["task"]] <= count:
            out.append(j)
    return out


if __name__ == "__main__":
    main()
