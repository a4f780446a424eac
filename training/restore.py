"""Reads the weights of exported graphs back, to go on training from a release or to learn from it.

What comes back is what the graphs multiply with: eight bits of each weight, and floats where the graphs have floats.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import external_data_helper, numpy_helper

from training.architecture import ARCHITECTURES, Architecture
from training.weights import save

TABLES = {"position.table": "position", "segment.table": "segment", "relative.table": "relative"}


def arrays_of(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """All constants of the graph in float32."""
    model = onnx.load(str(folder / "exact.onnx"), load_external_data=False)
    external_data_helper.load_external_data_for_model(model, str(folder))
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def read(a: Architecture, folder: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The network's weights by their names in training."""
    found, out = arrays_of(folder), dict[str, Any]()
    for name, array in found.items():
        if name == "word.bytes":
            out["word"] = array.astype(np.float32) * found["word.scale"][: len(array)]
        elif name.endswith(".bytes"):
            dense = name.removesuffix(".bytes")
            values = (array.astype(np.float32) * found[f"{dense}.scale"]).T
            out[f"{dense}.weight"] = values * found.get(f"{dense}.factor", np.float32(1))
        elif name in TABLES:
            out[TABLES[name]] = array
        elif name.startswith("head."):
            out[name] = array.T
        elif name.endswith((".weight", ".bias")):
            out[name] = array.copy()
    for i in range(a.layers):  # the graphs' queries carry the scale of the scores
        for kind in ("weight", "bias"):
            out[f"layers.{i}.qkv.{kind}"][: a.hidden] *= math.sqrt(a.width)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture", choices=ARCHITECTURES)
    parser.add_argument("folder", type=Path, help="made by training.export")
    parser.add_argument("out", type=Path, help="an .npz file, as training.train writes them")
    args = parser.parse_args()
    save(args.out, args.architecture, read(ARCHITECTURES[args.architecture], args.folder))


if __name__ == "__main__":
    main()
