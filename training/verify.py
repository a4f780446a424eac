"""Compares the exported graphs with the network: the exact ones must agree, the 8-bit ones come close."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from decided.contract.types import compact
from decided.engines.embedded.model import Embedded
from training.archive import DEV
from training.batches import Packer, Shape
from training.data import build, read_rows
from training.evaluate import answer
from training.export import rounded
from training.metrics import Floats, probabilities
from training.network import Kernels, Network
from training.served import Row, right, served
from training.weights import load

EQUAL = 1e-4


def trained(net: Network, tokenizer: Path, rows: Sequence[Row], tokens: int) -> list[Floats]:
    archive, shape = build(tokenizer, ((row, DEV) for row in rows)), Shape.of(tokens)
    found = answer(net.eval(), Kernels(torch.device("cpu"), shape), Packer(archive, shape), list(range(len(rows))))
    return [probabilities(a.logits) for a in found]


def difference(ours: Sequence[Floats], theirs: Sequence[Floats]) -> Floats:
    return np.array([np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="made by training.export")
    parser.add_argument("--weights", type=Path, required=True, help="what was exported")
    parser.add_argument("--ranges", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="a folder of .jsonl(.gz) files")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--network-rows", type=int, default=40, help="of these the network answers too: it is slow")
    parser.add_argument("--characters", type=int, default=1500, help="of a state, at most")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    files, rows = sorted(args.data.glob("*.jsonl*")), list[Row]()
    for path in files:
        short = [row for row in read_rows(path) if len(compact(row["state"])) <= args.characters]
        rows += random.Random(1).sample(short, min(len(short), -(-args.rows // len(files))))
    random.Random(2).shuffle(rows)
    exact, eight = (list(served(Embedded(args.folder, way, args.threads), rows)) for way in (True, False))
    gold = [right(row) for row in rows]
    for name, found in (("exact", exact), ("8 bits", eight)):
        hits = np.mean([p.argmax() == g for p, g in zip(found, gold, strict=True)])
        print(f"{name}: {len(rows)} rows, accuracy {hits:.4f}", flush=True)
    apart = difference(exact, eight)
    parts = " ".join(f"{q}% {np.quantile(apart, q / 100):.4f}" for q in (50, 90, 99, 100))
    turned = sum(a.argmax() != b.argmax() for a, b in zip(exact, eight, strict=True))
    print(f"8 bits against exact: mean {apart.mean():.4f} {parts}; {turned} answers differ", flush=True)
    architecture, weights = load(args.weights)
    some = rows[: args.network_rows]
    for name, arrays in (("rounded", rounded(architecture, weights, load(args.ranges)[1])), ("as trained", weights)):
        net = Network(architecture)
        net.load_arrays(arrays)
        apart = difference(exact[: len(some)], trained(net, args.folder / "tokenizer.json", some, 1024))
        print(f"exact graph against the network, weights {name}: mean {apart.mean():.6f}, most {apart.max():.6f}")
        if name == "rounded" and apart.max() > EQUAL:
            raise SystemExit("the exact graph is not the network")


if __name__ == "__main__":
    main()
