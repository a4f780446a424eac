"""Runs a network, or means of two, over splits of the archive and reports the answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from training.archive import BENCH, DEV, HELD_OUT, KEPT, Archive
from training.batches import Draw, Packer, Shape
from training.calibrate import save_answers
from training.metrics import Answer, report
from training.network import Kernels, Network, restored
from training.weights import load, mix

SPLITS = {"dev": DEV, "bench": BENCH, "kept": KEPT, "held_out": HELD_OUT}
HELD_OUT_ROWS = 400  # per task


def chosen_rows(archive: Archive, split: int, most: int = 0) -> list[int]:
    rows = archive.rows(split)
    if split == HELD_OUT and len(rows):
        rows = np.concatenate([rows[archive.task[rows] == t][:HELD_OUT_ROWS] for t in np.unique(archive.task[rows])])
    if most and len(rows) > most:
        rows = rows[:: -(-len(rows) // most)]
    return [int(r) for r in rows]


def answer(network: Network, kernels: Kernels, packer: Packer, rows: list[int]) -> list[Answer]:
    """The network's logits for these rows."""
    archive, out = packer.archive, []
    was = network.training
    network.eval()
    for draws in packer.groups(Draw(r, None) for r in rows):
        batch = packer.pack(draws)
        with (
            torch.no_grad(),
            torch.autocast(kernels.device.type, torch.bfloat16, enabled=kernels.device.type == "cuda"),
        ):
            logits = network(kernels.load(batch), kernels).cpu().numpy().astype(np.float64)
        first = batch["row_first"].numpy()
        for i, draw in enumerate(draws):
            r = draw.row
            own = logits[first[i] : first[i] + archive.options[r]]
            out.append(Answer(archive.tasks[archive.task[r]], int(archive.kind[r]), own, int(archive.gold[r])))
    network.train(was)
    return out


def means(start: Path | None, weights: Path, shares: list[float]) -> Iterator[tuple[str, Network]]:
    """The networks to judge: that of `weights`, or means of it with where its run started, so much of it each."""
    if start is None:
        yield "", restored(weights)
        return
    (architecture, first), (_, second) = load(start), load(weights)
    for share in shares:
        network = Network(architecture)
        network.load_arrays(mix(first, second, share))
        yield f"-{share:g}", network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="judge means of these weights and --weights (see --shares)")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.6, 0.8, 1.0], help="of --weights in the means")
    parser.add_argument("--splits", choices=SPLITS, nargs="+", default=list(SPLITS))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=0, help="at most so many rows of a split (0: all)")
    parser.add_argument("--out", type=Path, help="keep the answers in this folder, as NAME[-SHARE].SPLIT.npz")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    archive, shape = Archive.load(args.archive), Shape.of(args.tokens)
    kernels, packer = Kernels(device, shape), Packer(archive, shape)
    for share, network in means(args.start, args.weights, args.shares):
        network.to(device)
        for split in args.splits:
            rows = chosen_rows(archive, SPLITS[split], args.rows)
            if not rows:
                continue
            answers = answer(network, kernels, packer, rows)
            found = report(answers)
            print(f"{args.weights.stem}{share} {split}: {found.line()}")
            print(" ".join(f"{t}={v:.3f}" for t, v in found.tasks.items()), flush=True)
            if args.out:
                args.out.mkdir(parents=True, exist_ok=True)
                save_answers(args.out / f"{args.weights.stem}{share}.{split}.npz", answers)


if __name__ == "__main__":
    main()
