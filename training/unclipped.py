"""A copy of an exported model that any x86 runs as one with VNNI does.

Without VNNI, sums of products of unsigned and signed bytes are added up in 16 bits, and clipped. Products of unsigned
bytes are not: so weights are moved by 128, and the graph is told that 128 is their zero. The sums are the same, but no
faster than float32; it is for measuring what other machines serve, not for serving.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

ZERO = "weights.zero"
PLACE = 5  # of the weights' zero among the inputs of a product


def products(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The products of bytes, also of graphs inside the graph."""
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from products(attribute.g)


def moved(tensor: TensorProto, files: dict[str, bytearray], folder: Path) -> None:
    """Makes the tensor unsigned; its bytes lie in one of the files."""
    at = {entry.key: entry.value for entry in tensor.external_data}
    content = files.setdefault(at["location"], bytearray((folder / at["location"]).read_bytes()))
    part = slice(int(at["offset"]), int(at["offset"]) + int(at["length"]))
    content[part] = (np.frombuffer(content[part], np.uint8) ^ 0x80).tobytes()
    tensor.data_type = TensorProto.UINT8


def unclipped(folder: Path, out: Path) -> Path:
    """Writes the copy into `out`, which must not exist."""
    shutil.copytree(folder, out)
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    nodes = list(products(model.graph))
    weights, files = {node.input[1] for node in nodes}, dict[str, bytearray]()
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            moved(tensor, files, folder)
    model.graph.initializer.append(helper.make_tensor(ZERO, TensorProto.UINT8, [], [128]))
    for node in nodes:
        node.input.extend([""] * (PLACE + 1 - len(node.input)))
        node.input[PLACE] = ZERO
    for name, content in files.items():
        (out / name).write_bytes(content)
    (out / "model.onnx").write_bytes(model.SerializeToString())
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    card["sha256"] = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in card["sha256"]}
    (out / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return out
