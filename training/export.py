"""Writes the network's graphs, its weights, its tokenizer and its card: all that a server needs."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from decided.engines.embedded.layout import INSTRUCTION_TOKENS, MAX_STATE_TOKENS, OPTION_TOKENS, WINDOW
from training.architecture import Architecture
from training.calibrate import EDGES
from training.graph import LINE, Array, Weights, build
from training.weights import load

FILE_BYTES = 90_000_000  # in one file of weights: hosts of repositories refuse files above 100 MB
GRAPHS = ("model.onnx", "exact.onnx")


def rounded(a: Architecture, weights: Weights, ranges: Weights) -> Weights:
    """The weights as the graphs multiply them: a network with these must answer as the exact graphs do."""
    out = dict(weights)
    _, arrays = build(a, weights, ranges, exact=True)
    for key in [key for key in arrays if key.endswith(".bytes")]:
        name = key.removesuffix(".bytes")
        if name == "word":
            out[name] = arrays[key].astype(np.float32) * arrays["word.scale"][: len(arrays[key])]
            continue
        values = (arrays[key].astype(np.float32) * arrays[f"{name}.scale"]).T * arrays.get(f"{name}.factor", 1)
        if name.endswith(".qkv"):
            values[: a.hidden] *= math.sqrt(a.width)
        out[f"{name}.weight"] = values
    return out


def write(folder: Path, a: Architecture, weights: Weights, ranges: Weights) -> None:
    """The weights once, and two small graphs that point to them. Small tensors stay in the graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytearray] = {}
    places: dict[str, tuple[str, int]] = {}
    for name in GRAPHS:
        model, arrays = build(a, weights, ranges, name.startswith("exact"))
        for key, array in arrays.items():
            tensor = onnx.numpy_helper.from_array(array, key)
            if array.nbytes >= 1024:
                if key not in places:
                    places[key] = _place(files, array)
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                file, at = places[key]
                for k, v in {"location": file, "offset": str(at), "length": str(array.nbytes)}.items():
                    tensor.external_data.add(key=k, value=v)
            model.graph.initializer.append(tensor)
        (folder / name).write_bytes(model.SerializeToString())
    for file, blob in files.items():
        (folder / file).write_bytes(bytes(blob))


def _place(files: dict[str, bytearray], array: Array) -> tuple[str, int]:
    """Puts the array at the end of the last file, or begins another one."""
    if not files or len(files[list(files)[-1]]) + array.nbytes > FILE_BYTES:
        files[f"weights-{len(files) + 1}.bin" if files else "weights.bin"] = bytearray()
    file, blob = list(files.items())[-1]
    blob.extend(bytes(-len(blob) % LINE))
    at = len(blob)
    blob.extend(array.tobytes())
    return file, at


def card(folder: Path, temperatures: dict[str, Any], parameters: int, about: dict[str, Any]) -> dict[str, Any]:
    files = (*GRAPHS, *sorted(path.name for path in folder.glob("*.bin")), "tokenizer.json")
    return {
        **about,
        "parameters": parameters,
        "window": WINDOW,
        "max_state_tokens": MAX_STATE_TOKENS,
        "instruction_tokens": INSTRUCTION_TOKENS,
        "option_tokens": OPTION_TOKENS,
        "temperatures": {"option_count_edges": list(EDGES), **temperatures},
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="made by training.train")
    parser.add_argument("--ranges", type=Path, required=True, help="made by training.activation_ranges")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--temperatures", type=Path, required=True, help="made by training.calibrate --out")
    parser.add_argument("--about", type=Path, required=True, help="JSON with name, description, licences, quality, ...")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    architecture, weights = load(args.weights)
    write(args.out, architecture, weights, load(args.ranges)[1])
    shutil.copyfile(args.tokenizer, args.out / "tokenizer.json")
    temperatures = json.loads(args.temperatures.read_text())
    about = json.loads(args.about.read_text())
    made = card(args.out, temperatures, sum(a.size for a in weights.values()), about)
    (args.out / "card.json").write_text(json.dumps(made, indent=1) + "\n")
    print(f"{sum(f.stat().st_size for f in args.out.iterdir()) / 1e6:.1f} MB in {args.out}")


if __name__ == "__main__":
    main()
