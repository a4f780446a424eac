"""What profiles add to a request: the embedded model with a head, a threshold and sets for every question, and without.

    python benchmarks/profiles.py [--model embedded:small] [--rounds 7] [--seconds 3] [--connections 4]

Both servers answer the same request with three questions in short rounds, one after the other. Printed is the ratio of
their CPU per request in the same round, over all threads: the median, and the range of the middle half. Target: 1.05.
"""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import uvloop
from contenders import HERE, Cores, Server, decided_command, start
from loadgen import closed_loop
from report import progress, spread
from workload import QUESTIONS, SINGLE, http_request, small_body

from decided.contract.types import Noul, Question
from decided.engines.embedded.model import Embedded
from decided.engines.embedded.weights import locate
from decided.profiles.fingerprint import canonical_keys, fingerprint
from decided.profiles.profile import FORMAT, Figures, Head, Profile, Sets, Threshold

TARGET = 1.05
START_S = 120.0


def write_profiles(folder: Path, model: str) -> None:
    """One for each question that the benchmarks ask: what was learnt is of no matter, only its size."""
    loaded = Embedded(locate(model.partition(":")[2]), exact=False, threads=1)
    (item,) = loaded.encode(loaded.prepare([Noul("Is it late?")]), "The parcel is late.").items
    item.wants_features = True
    loaded.run([item])
    figures = Figures(0.5, 0.7, 0.1)
    for name, asked in QUESTIONS.items():
        question: Question = msgspec.convert(asked, Question)
        options = len(canonical_keys(question))
        head = np.random.default_rng(0).normal(0, 0.01, (options, len(item.features)))
        profile = Profile(
            format=FORMAT, name=name, question=question, fingerprint=fingerprint(question), model=loaded.card.name,
            weights=loaded.card.weights, recipe="head", labels=60, before=figures, after=figures, scale=1.0,
            bias=[0.0] * options, head=Head.of(head.tolist()), threshold=Threshold(0.8, 0.9, (0.9, 0.8, 1.0), 0.5),
            sets=Sets(0.9, 0.05, 1.5),
        )  # fmt: skip
        (folder / f"{name}.json").write_bytes(profile.encoded())


def cpu_per_request(server: Server, request: bytes, connections: int, seconds: float) -> float:
    began, _ = server.cpu_times()
    sample = uvloop.run(closed_loop(server.port, request, connections, seconds))
    ended, _ = server.cpu_times()
    return (ended - began) / len(sample.latencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:small")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cores, request = Cores.pick(), http_request(SINGLE, small_body())
    ratios: list[float] = []
    with TemporaryDirectory(dir=HERE) as folder, ExitStack() as stack:
        write_profiles(Path(folder), given.model)
        servers = []
        for name, flags in (("bare", ()), ("profiled", ("--profiles", folder))):
            progress(f"starting {name}")
            servers.append(start(name, decided_command(given.model, *flags), cores, START_S))
            stack.callback(servers[-1].stop)
        for server in servers:
            cpu_per_request(server, request, given.connections, given.seconds)  # to warm up
        for number in range(given.rounds):
            progress(f"round {number + 1} of {given.rounds}")
            # In turn first: what comes second may find the machine in another mood.
            pair = servers if number % 2 else servers[::-1]
            cost = {one.name: cpu_per_request(one, request, given.connections, given.seconds) for one in pair}
            ratios.append(cost["profiled"] / cost["bare"])
    found = spread(ratios)
    print(
        f"{given.model}: CPU per request with profiles over that without: {found['median']:.3f} "
        f"({found['low']:.3f} to {found['high']:.3f}), target {TARGET}"
    )
    if given.json is not None:
        given.json.write_text(json.dumps({"model": given.model, "ratios": ratios}) + "\n")


if __name__ == "__main__":
    main()
