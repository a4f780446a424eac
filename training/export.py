"""Writes the network as an ONNX graph with 8-bit weights, its tokenizer and its card.

`state.onnx` reads one window of a state and yields the keys and values of every layer; `question.onnx` reads
questions with those at hand and yields the logits of their markers. Dense layers work on packed `[tokens, hidden]`;
only attention is laid out in rows: `grid` (row, place) -> token that asks, `seen` (row, key) -> token that may be seen,
`cell` token -> place. A question is one row; one with many options is several, each of a few whole options, so that the
cost of attention grows with the number of options and not with its square.

Weights are bytes with a scale per output, activations are rounded to bytes with a scale per token, and their integer
products are exact: no token's result can depend on what else is in the batch. (ONNX Runtime's own dynamic quantisation
has one scale per batch; its MatMulNBits is batch-independent but no faster than float32 on x86.) The `exact-` graphs
multiply the same weights in float32. All four graphs share the weight files.

Where the network has a bias by distance, the state's positions are an input of the question graph, and the bias is
looked up per step: it costs little beside the products and needs no memory that grows with the whole request.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from decided.engines.embedded.layout import INSTRUCTION_TOKENS, MAX_STATE_TOKENS, OPTION_TOKENS, WINDOW
from training.architecture import POSITIONS, Architecture
from training.calibrate import EDGES
from training.weights import load

CONTRIB = "com.microsoft"
ZERO = 128

FILE_BYTES = 90_000_000  # in one file of weights: hosts of repositories refuse files above 100 MB
GRAPHS = ("state.onnx", "question.onnx", "exact-state.onnx", "exact-question.onnx")

Array = npt.NDArray[Any]
Weights = dict[str, npt.NDArray[np.float32]]


def quantise(weight: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Signed bytes (unsigned ones multiply three times more slowly on x86), and one scale per row."""
    scale = np.abs(weight).max(-1, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale[:, 0]


class Graph:
    """Nodes and weights of the graph under construction; weights go to one external file."""

    def __init__(self, a: Architecture, exact: bool, ranges: Weights) -> None:
        self.a, self.exact, self.ranges = a, exact, ranges
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def op(self, kind: str, inputs: list[str], name: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        names = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, domain=domain, **attributes))
        return name

    def constant(self, name: str, value: Array) -> str:
        self.weights[name] = np.ascontiguousarray(value)
        return name

    def _evened(self, x: str, name: str, weight: npt.NDArray[np.float32]) -> tuple[str, npt.NDArray[np.float32]]:
        """The input with its large channels made smaller, and the weights that make up for it."""
        if name not in self.ranges:
            return x, weight
        span = np.maximum(self.ranges[name], 1e-3)
        factor = np.sqrt(span / np.maximum(np.abs(weight).max(0), 1e-3))
        factor = np.clip(factor / np.median(factor), 0.05, 20).astype(np.float32)
        self.constant(f"{name}.factor", 1 / factor)
        return self.op("Mul", [x, f"{name}.factor"], f"{name}.input"), weight * factor

    def dense(self, x: str, name: str, weight: npt.NDArray[np.float32]) -> str:
        """x @ weight.T. Rows of x become bytes with their own scale; the exact graph stays in float32."""
        x, weight = self._evened(x, name, weight)
        levels, scale = quantise(weight)
        self.constant(f"{name}.bytes", levels.T)
        self.constant(f"{name}.scale", scale)
        if self.exact:
            self.op("Cast", [f"{name}.bytes"], f"{name}.float", to=TensorProto.FLOAT)
            self.op("Mul", [f"{name}.float", f"{name}.scale"], f"{name}.weight")
            return self.op("MatMul", [x, f"{name}.weight"], name)
        self.op("Abs", [x], f"{name}.abs")
        self.op("ReduceMax", [f"{name}.abs", "axis.1"], f"{name}.top", keepdims=1)
        self.op("Mul", [f"{name}.top", "step"], f"{name}.raw")
        self.op("Max", [f"{name}.raw", "tiny"], f"{name}.size")
        self.op("Squeeze", [f"{name}.size", "axis.1"], f"{name}.rowscale")
        self.op("QuantizeLinear", [x, f"{name}.rowscale", "middle"], f"{name}.rows", axis=0)
        self.op("MatMulIntegerToFloat", [f"{name}.rows", f"{name}.bytes", "one", f"{name}.scale", "offset"],
                f"{name}.sum", CONTRIB)  # fmt: skip
        return self.op("Mul", [f"{name}.sum", f"{name}.size"], name)


def embed(g: Graph, w: Weights) -> str:
    levels, scale = quantise(w["word"])
    g.constant("word.bytes", levels)
    g.constant("word.scale", scale[:, None])
    for name in ("position", "segment"):
        g.constant(f"{name}.table", w[name])
    g.op("Gather", ["word.bytes", "ids"], "word.row")
    g.op("Cast", ["word.row"], "word.float", to=TensorProto.FLOAT)
    g.op("Gather", ["word.scale", "ids"], "word.size")
    g.op("Mul", ["word.float", "word.size"], "word.vector")
    g.op("Gather", ["position.table", "position"], "position.vector")
    g.op("Gather", ["segment.table", "segment"], "segment.vector")
    g.op("Add", ["position.vector", "segment.vector"], "place.vector")
    g.op("Add", ["word.vector", "place.vector"], "embedded")
    for kind in ("weight", "bias"):
        g.constant(f"norm.{kind}", w[f"norm.{kind}"])
    return g.op("LayerNormalization", ["embedded", "norm.weight", "norm.bias"], "x0", axis=-1, epsilon=g.a.epsilon)


def by_distance(g: Graph, w: Weights, state: bool) -> None:
    """The bias of the scores: of a window's tokens, or of a question's positions and the state's tokens."""
    g.constant("relative.table", w["relative"])
    g.constant("middle.distance", np.array(POSITIONS - 1, np.int64))
    if state:
        columns = "position"
        g.op("Unsqueeze", ["position", "axis.1"], "relative.rows")
    else:
        columns = "state_position"
        for name, value in (("zero", 0), ("after", 1)):
            g.constant(f"position.{name}", np.array(value, np.int64))
        g.op("ReduceMax", ["position"], "position.last", keepdims=0)
        g.op("Add", ["position.last", "position.after"], "position.end")
        g.op("Range", ["position.zero", "position.end", "position.after"], "position.all")
        g.op("Unsqueeze", ["position.all", "axis.1"], "relative.rows")
        g.op("Gather", ["position", "grid"], "position.asks")
        g.op("Gather", ["position", "seen"], "position.sees")
    g.op("Unsqueeze", [columns, "axis.0"], "relative.columns")
    g.op("Sub", ["relative.rows", "relative.columns"], "relative.apart")
    g.op("Add", ["relative.apart", "middle.distance"], "relative.index")
    g.op("Gather", ["relative.table", "relative.index"], "relative.heads", axis=1)
    if state:
        g.op("Unsqueeze", ["relative.heads", "axis.0"], "relative.bias")


def projected(g: Graph, x: str, i: int, w: Weights) -> str:
    """Queries, keys and values, packed."""
    n = f"layers.{i}"
    weight, bias = w[f"{n}.qkv.weight"].copy(), w[f"{n}.qkv.bias"].copy()
    weight[: g.a.hidden] /= math.sqrt(g.a.width)  # the usual scale of the scores, folded into the queries
    bias[: g.a.hidden] /= math.sqrt(g.a.width)
    g.dense(x, f"{n}.qkv", weight)
    return g.op("Add", [f"{n}.qkv", g.constant(f"{n}.qkv.bias", bias)], f"{n}.projected")


def state_attention(g: Graph, x: str, i: int, w: Weights) -> str:
    """One window, which sees itself. Its keys and values come out, laid out as the questions want them."""
    n = f"layers.{i}"
    g.op("Unsqueeze", [projected(g, x, i, w), "axis.0"], f"{n}.one")
    g.op("Split", [f"{n}.one"], f"{n}.part", axis=2, num_outputs=3, outputs=3)
    for part, name, order in ((1, f"key_{i}", [0, 2, 3, 1]), (2, f"value_{i}", [0, 2, 1, 3])):
        g.op("Reshape", [f"{n}.part.{part}", "shape.split"], f"{name}.heads")
        g.op("Transpose", [f"{name}.heads"], name, perm=order)
    parts = [f"{n}.part.{part}" for part in range(3)]
    if g.a.relative:
        parts += ["", "", "relative.bias"]
    g.op("MultiHeadAttention", parts, f"{n}.mixed", CONTRIB, num_heads=g.a.heads, scale=1.0)
    return g.op("Squeeze", [f"{n}.mixed", "axis.0"], f"{n}.attended")


def question_attention(g: Graph, x: str, i: int, w: Weights) -> str:
    """Packed tokens of several questions. A row of `grid` sees the state and, where `bias` is 0, its row of `seen`."""
    n = f"layers.{i}"
    g.op("Split", [projected(g, x, i, w), "shape.parts"], f"{n}.part", axis=1, outputs=2)
    g.op("Gather", [f"{n}.part.0", "grid"], f"{n}.q.laid")
    g.op("Reshape", [f"{n}.q.laid", "shape.split"], f"{n}.q.heads")
    g.op("Transpose", [f"{n}.q.heads"], f"{n}.q", perm=[0, 2, 1, 3])
    g.op("Gather", [f"{n}.part.1", "seen"], f"{n}.kv.laid")
    g.op("Reshape", [f"{n}.kv.laid", "shape.heads"], f"{n}.kv.heads")
    g.op("Split", [f"{n}.kv.heads"], f"{n}.kv", axis=2, num_outputs=2, outputs=2)
    for part, name, order in ((0, f"{n}.k", [0, 2, 3, 1]), (1, f"{n}.v", [0, 2, 1, 3])):
        g.op("Squeeze", [f"{n}.kv.{part}", "axis.2"], f"{name}.flat")
        g.op("Transpose", [f"{name}.flat"], name, perm=order)
    g.nodes.append(_by_steps(g.a, n, i))
    g.op("Reshape", [f"{n}.steps", "shape.tokens"], f"{n}.flat")
    return g.op("Gather", [f"{n}.flat", "cell"], f"{n}.attended")


def _by_steps(a: Architecture, n: str, i: int) -> onnx.NodeProto:
    """Attention over `each` rows at a time: a long state and many options would not fit into memory at once."""
    body = Graph(a, exact=True, ranges={})
    body.op("Mul", ["turn", "each"], f"{n}.begin")
    body.op("Add", [f"{n}.begin", "each"], f"{n}.end")
    for name in (f"{n}.q", f"{n}.k", f"{n}.v", "bias", *(("position.asks", "position.sees") if a.relative else ())):
        body.op("Slice", [name, f"{n}.begin", f"{n}.end", "axis.0"], f"{name}.now")
    body.op("MatMul", [f"{n}.q.now", f"key_{i}"], f"{n}.state.raw" if a.relative else f"{n}.state.score")
    body.op("MatMul", [f"{n}.q.now", f"{n}.k.now"], f"{n}.own.raw")
    if a.relative:
        body.op("Gather", ["relative.heads", "position.asks.now"], f"{n}.state.far", axis=1)
        body.op("Unsqueeze", ["position.asks.now", "axis.2"], f"{n}.rows")
        body.op("Unsqueeze", ["position.sees.now", "axis.1"], f"{n}.columns")
        body.op("Sub", [f"{n}.rows", f"{n}.columns"], f"{n}.apart")
        body.op("Add", [f"{n}.apart", "middle.distance"], f"{n}.index")
        body.op("Gather", ["relative.table", f"{n}.index"], f"{n}.own.far", axis=1)
        for part in ("state", "own"):
            body.op("Transpose", [f"{n}.{part}.far"], f"{n}.{part}.bias", perm=[1, 0, 2, 3])
        body.op("Add", [f"{n}.state.raw", f"{n}.state.bias"], f"{n}.state.score")
        body.op("Add", [f"{n}.own.raw", f"{n}.own.bias"], f"{n}.own.moved")
        body.op("Add", [f"{n}.own.moved", "bias.now"], f"{n}.own.score")
    else:
        body.op("Add", [f"{n}.own.raw", "bias.now"], f"{n}.own.score")
    body.op("Concat", [f"{n}.state.score", f"{n}.own.score"], f"{n}.score", axis=-1)
    body.op("Softmax", [f"{n}.score"], f"{n}.weight", axis=-1)
    body.op("Split", [f"{n}.weight", "lengths"], f"{n}.share", axis=-1, outputs=2)
    body.op("MatMul", [f"{n}.share.0", f"value_{i}"], f"{n}.state.mix")
    body.op("MatMul", [f"{n}.share.1", f"{n}.v.now"], f"{n}.own.mix")
    body.op("Add", [f"{n}.state.mix", f"{n}.own.mix"], f"{n}.mix")
    body.op("Transpose", [f"{n}.mix"], f"{n}.mixed", perm=[0, 2, 1, 3])
    body.op("Reshape", [f"{n}.mixed", "shape.tokens"], f"{n}.mixed.flat")
    body.op("Identity", ["more"], "go.on")
    integer, truth, real = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
    graph = helper.make_graph(
        body.nodes, f"{n}.body",
        [helper.make_tensor_value_info("turn", integer, []), helper.make_tensor_value_info("more", truth, [])],
        [helper.make_tensor_value_info("go.on", truth, []),
         helper.make_tensor_value_info(f"{n}.mixed.flat", real, ["some", a.hidden])],
    )  # fmt: skip
    return helper.make_node("Loop", ["turns", ""], [f"{n}.steps"], name=f"{n}.loop", body=graph)


def after(g: Graph, x: str, y: str, i: int, w: Weights) -> str:
    n = f"layers.{i}"
    for name in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "out.bias", "up.bias", "down.bias"):
        g.constant(f"{n}.{name}", w[f"{n}.{name}"])
    g.dense(y, f"{n}.out", w[f"{n}.out.weight"])
    norm1 = [f"{n}.norm1.weight", f"{n}.norm1.bias", f"{n}.out.bias"]
    g.op("SkipLayerNormalization", [x, f"{n}.out", *norm1], f"{n}.middle", CONTRIB, epsilon=g.a.epsilon)
    g.dense(f"{n}.middle", f"{n}.up", w[f"{n}.up.weight"])
    g.op("BiasGelu", [f"{n}.up", f"{n}.up.bias"], f"{n}.inner", CONTRIB)
    g.dense(f"{n}.inner", f"{n}.down", w[f"{n}.down.weight"])
    norm2 = [f"{n}.norm2.weight", f"{n}.norm2.bias", f"{n}.down.bias"]
    return g.op("SkipLayerNormalization", [f"{n}.middle", f"{n}.down", *norm2], f"{n}.x", CONTRIB, epsilon=g.a.epsilon)


def head(g: Graph, x: str, w: Weights) -> None:
    for name in ("0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"):
        value = w[f"head.{name}"]
        g.constant(f"head.{name}", value.T if value.ndim == 2 else value)
    g.op("Gather", [x, "markers"], "head.x")
    g.op("MatMul", ["head.x", "head.0.weight"], "head.product")
    g.op("BiasGelu", ["head.product", "head.0.bias"], "head.inner", CONTRIB)
    norm = ["head.inner", "head.2.weight", "head.2.bias"]
    g.op("LayerNormalization", norm, "head.normed", axis=-1, epsilon=1e-5)
    g.op("MatMul", ["head.normed", "head.3.weight"], "head.score")
    g.op("Add", ["head.score", "head.3.bias"], "head.logit")
    g.op("Squeeze", ["head.logit", "axis.1"], "logits")


def _build(
    a: Architecture, w: Weights, ranges: Weights, exact: bool, state: bool
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One graph, with every weight still to be written to the external file."""
    g = Graph(a, exact, ranges)
    lists = {"shape.heads": [0, 0, 2, a.heads, a.width], "shape.split": [0, 0, a.heads, a.width],
             "shape.tokens": [-1, a.hidden], "shape.parts": [a.hidden, 2 * a.hidden],
             "axis.0": [0], "axis.1": [1], "axis.2": [2]}  # fmt: skip
    for name, value in lists.items():
        g.constant(name, np.array(value, np.int64))
    for name, number in (("step", 1 / 127), ("tiny", 1e-12), ("one", 1.0)):
        g.constant(name, np.array(number, np.float32))
    g.constant("offset", np.array(ZERO, np.uint8))
    if not exact:
        g.op("Shape", ["ids"], "count")
        g.op("Expand", ["offset", "count"], "middle")
    x = embed(g, w)
    if a.relative:
        by_distance(g, w, state)
    for i in range(a.layers):
        last = state and i == a.layers - 1  # of a state's last layer only the keys and values are ever read
        y = (state_attention if state else question_attention)(g, x, i, w)
        x = y if last else after(g, x, y, i, w)
    if not state:
        head(g, x, w)
    integer, real = TensorProto.INT64, TensorProto.FLOAT
    inputs: dict[str, tuple[int, list[int | str]]] = {n: (integer, ["tokens"]) for n in ("ids", "position", "segment")}
    cached: dict[str, tuple[int, list[int | str]]] = {}
    for i in range(a.layers):
        cached[f"key_{i}"] = (real, [1, a.heads, a.width, "tokens" if state else "state"])
        cached[f"value_{i}"] = (real, [1, a.heads, "tokens" if state else "state", a.width])
    outputs = cached if state else {"logits": (real, ["options"])}
    if not state:
        inputs |= {"grid": (integer, ["rows", "places"]), "seen": (integer, ["rows", "keys"]),
                   "cell": (integer, ["tokens"]), "markers": (integer, ["options"]), "lengths": (integer, [2]),
                   "each": (integer, [1]), "turns": (integer, []),
                   "bias": (real, ["rows", 1, "places", "keys"]), **cached}  # fmt: skip
        if a.relative:
            inputs["state_position"] = (integer, ["state"])
    graph = helper.make_graph(
        g.nodes, "decided",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in outputs.items()],
    )  # fmt: skip
    used = {name for node in g.nodes for name in node.input} | {"axis.0", "axis.1", "axis.2"}
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model, {name: array for name, array in g.weights.items() if name in used}


def rounded(a: Architecture, weights: Weights, ranges: Weights) -> Weights:
    """The weights as the graphs multiply them: a network with these must answer as the exact graphs do."""
    out = dict(weights)
    for state in (False, True):
        _, arrays = _build(a, weights, ranges, exact=True, state=state)
        for key in [key for key in arrays if key.endswith(".bytes")]:
            name = key.removesuffix(".bytes")
            if name == "word":
                out[name] = arrays[key].astype(np.float32) * arrays["word.scale"]
                continue
            values = (arrays[key].astype(np.float32) * arrays[f"{name}.scale"]).T * arrays.get(f"{name}.factor", 1)
            if name.endswith(".qkv"):
                values[: a.hidden] *= math.sqrt(a.width)
            out[f"{name}.weight"] = values
    return out


def write(folder: Path, a: Architecture, weights: Weights, ranges: Weights) -> None:
    """The weights once, and four small graphs that point to them. Small tensors stay in the graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytearray] = {}
    places: dict[str, tuple[str, int]] = {}
    for name in GRAPHS:
        model, arrays = _build(a, weights, ranges, name.startswith("exact"), "state" in name)
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
    blob.extend(bytes(-len(blob) % 64))
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
