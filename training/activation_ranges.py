"""Measures how large each input of a dense layer gets, so that export can even the inputs out before rounding them.

A few channels of this encoder are twenty times larger than the rest. Rounded with one scale per token, they would push
all others into a handful of levels; divided by a fixed factor per channel, which the weights take over, they do not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.architecture import Architecture
from training.archive import HELD_OUT, TRAIN, Archive
from training.batches import Draw, Packer, Shape
from training.network import Kernels, restored
from training.weights import save


class Recorder(Kernels):
    """Plain kernels that remember the largest magnitude of every channel they see."""

    def __init__(self, a: Architecture, shape: Shape) -> None:
        super().__init__(torch.device("cpu"), shape)
        self.a = a
        self.top: dict[str, Tensor] = {}
        self.calls = 0
        self.after = self._record

    def note(self, name: str, x: Tensor) -> None:
        used = x[: int(self.slot["used"])].abs().amax(0)
        self.top[name] = torch.maximum(self.top[name], used) if name in self.top else used

    def _record(self, x: Tensor, y: Tensor, w: list[Tensor], epsilon: float, rate: float, training: bool) -> Tensor:
        f, layer, n = torch.nn.functional, f"layers.{self.calls % self.a.layers}", (x.shape[-1],)
        self.calls += 1
        middle = f.layer_norm(x + f.linear(y, w[0], w[1]), n, w[2], w[3], epsilon)
        inner = f.gelu(f.linear(middle, w[4], w[5]))
        for part, value in (("qkv", x), ("out", y), ("up", middle), ("down", inner)):
            self.note(f"{layer}.{part}", value)
        return f.layer_norm(middle + f.linear(inner, w[6], w[7]), n, w[8], w[9], epsilon)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    archive, shape = Archive.load(args.archive), Shape.of(1024)
    network = restored(args.weights).eval()
    packer, recorder = Packer(archive, shape), Recorder(network.architecture, shape)
    rows = np.concatenate([archive.rows(TRAIN), archive.rows(HELD_OUT)])
    rows = rows[packer.cost[rows] < 512]
    chosen = np.random.default_rng(0).permutation(rows)[: args.rows]
    with torch.no_grad():
        for draws in packer.groups(Draw(int(r), None) for r in chosen):
            network(recorder.load(packer.pack(draws)), recorder)
    save(args.out, network.architecture.name, {n: t.numpy() for n, t in recorder.top.items()})


if __name__ == "__main__":
    main()
