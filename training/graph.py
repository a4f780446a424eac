"""The network as an ONNX graph with 8-bit weights.

One graph does two things, so that a session holds the weights once. Told that it reads a window of a state (`alone`),
it yields the keys and values of every layer; else it reads questions with those at hand and yields the logits of their
markers. The two differ in their attention, and in that only markers go through the rest of the last layer, of which a
state has none. Dense layers work on packed `[tokens, hidden]`; only attention is laid out in rows: `grid` (row, place)
-> token that asks, `seen` (row, key) -> token that may be seen, `cell` token -> place. A question is one row; one with
many options is several, each of a few whole options, so that the cost of attention grows with the number of options and
not with its square.

Weights are bytes with a scale per output, activations are rounded to bytes with a scale per token, and their integer
products are exact: no token's result can depend on what else is in the batch. (ONNX Runtime's own dynamic quantisation
has one scale per batch; its MatMulNBits is batch-independent but no faster than float32 on x86.) `exact.onnx`
multiplies the same weights in float32, from the same files.

Where the network has a bias by distance, the state's positions are an input too, and a question's bias is looked up per
step: it costs little beside the products and needs no memory that grows with the whole request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from training.architecture import POSITIONS, Architecture

CONTRIB = "com.microsoft"
ZERO = 128
LINE = 64  # bytes

Array = npt.NDArray[Any]
Weights = dict[str, npt.NDArray[np.float32]]


def quantise(weight: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Signed bytes (unsigned ones multiply three times more slowly on x86), and one scale per row."""
    scale = np.abs(weight).max(-1, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale[:, 0]


def whole_lines(scale: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Filled up to whole cache lines. ONNX Runtime writes what it packs behind the tables, and reads it aligned."""
    return np.concatenate([scale, np.zeros(-len(scale) % (LINE // scale.itemsize), np.float32)])


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

    def dense(self, x: str, name: str, weight: npt.NDArray[np.float32], middle: str = "middle") -> str:
        """x @ weight.T. Rows of x become bytes with their own scale, around a middle for each of them; the exact graph
        stays in float32."""
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
        self.op("QuantizeLinear", [x, f"{name}.rowscale", middle], f"{name}.rows", axis=0)
        self.op("MatMulIntegerToFloat", [f"{name}.rows", f"{name}.bytes", "one", f"{name}.scale", "offset"],
                f"{name}.sum", CONTRIB)  # fmt: skip
        return self.op("Mul", [f"{name}.sum", f"{name}.size"], name)


def embed(g: Graph, w: Weights) -> str:
    levels, scale = quantise(w["word"])
    g.constant("word.bytes", levels)
    g.constant("word.scale", whole_lines(scale)[:, None])
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


def branch(g: Graph, name: str, outputs: dict[str, list[int | str]]) -> onnx.GraphProto:
    """Nodes that run or do not, and the shapes of what they yield."""
    found = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    return helper.make_graph(g.nodes, name, [], found)


def either(g: Graph, name: str, outputs: list[str], alone: onnx.GraphProto, questions: onnx.GraphProto) -> None:
    g.nodes.append(helper.make_node("If", ["alone"], outputs, name=name, then_branch=alone, else_branch=questions))


def nothing(g: Graph, name: str, shape: list[int]) -> str:
    """A tensor without elements, where only the other branch has something to yield."""
    empty = helper.make_tensor(name, TensorProto.FLOAT, shape, [])
    g.nodes.append(helper.make_node("Constant", [], [name], name=name, value=empty))
    return name


def by_distance(g: Graph, w: Weights) -> None:
    """The bias of the scores: of a window's tokens, and of a question's positions and the state's tokens."""
    g.constant("relative.table", w["relative"])
    g.constant("middle.distance", np.array(POSITIONS - 1, np.int64))
    window, questions = Graph(g.a, exact=True, ranges={}), Graph(g.a, exact=True, ranges={})
    window.op("Unsqueeze", ["position", "axis.1"], "window.rows")
    window.op("Unsqueeze", ["position", "axis.0"], "window.columns")
    window.op("Sub", ["window.rows", "window.columns"], "window.apart")
    window.op("Add", ["window.apart", "middle.distance"], "window.index")
    window.op("Gather", ["relative.table", "window.index"], "window.heads", axis=1)
    window.op("Unsqueeze", ["window.heads", "axis.0"], "window.bias")
    nothing(questions, "window.none", [1, g.a.heads, 0, 0])
    shape: list[int | str] = [1, g.a.heads, "asks", "sees"]
    either(g, "relative", ["relative.bias"], branch(window, "relative.window", {"window.bias": shape}),
           branch(questions, "relative.questions", {"window.none": shape}))  # fmt: skip
    for name, value in (("zero", 0), ("after", 1)):
        g.constant(f"position.{name}", np.array(value, np.int64))
    g.op("ReduceMax", ["position"], "position.last", keepdims=0)
    g.op("Add", ["position.last", "position.after"], "position.end")
    g.op("Range", ["position.zero", "position.end", "position.after"], "position.all")
    g.op("Unsqueeze", ["position.all", "axis.1"], "relative.rows")
    g.op("Gather", ["position", "grid"], "position.asks")
    g.op("Gather", ["position", "seen"], "position.sees")
    g.op("Unsqueeze", ["state_position", "axis.0"], "relative.columns")
    g.op("Sub", ["relative.rows", "relative.columns"], "relative.apart")
    g.op("Add", ["relative.apart", "middle.distance"], "relative.index")
    g.op("Gather", ["relative.table", "relative.index"], "relative.heads", axis=1)


def projected(g: Graph, x: str, i: int, w: Weights) -> str:
    """Queries, keys and values, packed."""
    n = f"layers.{i}"
    weight, bias = w[f"{n}.qkv.weight"].copy(), w[f"{n}.qkv.bias"].copy()
    weight[: g.a.hidden] /= math.sqrt(g.a.width)  # the usual scale of the scores, folded into the queries
    bias[: g.a.hidden] /= math.sqrt(g.a.width)
    g.dense(x, f"{n}.qkv", weight)
    return g.op("Add", [f"{n}.qkv", g.constant(f"{n}.qkv.bias", bias)], f"{n}.projected")


def attention(g: Graph, x: str, i: int, w: Weights) -> str:
    """Of a window, which sees itself, or of questions, which see the state. Keys and values of a window come out."""
    n = f"layers.{i}"
    projected(g, x, i, w)
    window, questions = Graph(g.a, exact=True, ranges={}), Graph(g.a, exact=True, ranges={})
    window_attention(window, i)
    question_attention(questions, i)
    yields: list[tuple[str, list[int | str]]] = [("attended", ["tokens", g.a.hidden])]
    for name, shape in (("key", (g.a.width, 0)), ("value", (0, g.a.width))):
        nothing(questions, f"{n}.questions.{name}", [1, g.a.heads, *shape])
        yields.append((name, [1, g.a.heads, *(size or "tokens" for size in shape)]))
    branches = [
        branch(graph, f"{n}.{kind}", {f"{n}.{kind}.{name}": shape for name, shape in yields})
        for graph, kind in ((window, "window"), (questions, "questions"))
    ]
    either(g, f"{n}.attention", [f"{n}.attended", f"new_key_{i}", f"new_value_{i}"], *branches)
    return f"{n}.attended"


def window_attention(g: Graph, i: int) -> None:
    """One window, which sees itself. Its keys and values come out, laid out as the questions want them."""
    n, w = f"layers.{i}", f"layers.{i}.window"
    g.op("Unsqueeze", [f"{n}.projected", "axis.0"], f"{w}.one")
    g.op("Split", [f"{w}.one"], f"{w}.part", axis=2, num_outputs=3, outputs=3)
    for part, name, order in ((1, f"{w}.key", [0, 2, 3, 1]), (2, f"{w}.value", [0, 2, 1, 3])):
        g.op("Reshape", [f"{w}.part.{part}", "shape.split"], f"{name}.heads")
        g.op("Transpose", [f"{name}.heads"], name, perm=order)
    parts = [f"{w}.part.{part}" for part in range(3)]
    if g.a.relative:
        parts += ["", "", "relative.bias"]
    g.op("MultiHeadAttention", parts, f"{w}.mixed", CONTRIB, num_heads=g.a.heads, scale=1.0)
    g.op("Squeeze", [f"{w}.mixed", "axis.0"], f"{w}.attended")


def question_attention(g: Graph, i: int) -> None:
    """Packed tokens of several questions. A row of `grid` sees the state and, where `bias` is 0, its row of `seen`."""
    n = f"layers.{i}"
    g.op("Split", [f"{n}.projected", "shape.parts"], f"{n}.part", axis=1, outputs=2)
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
    g.op("Gather", [f"{n}.flat", "cell"], f"{n}.questions.attended")


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


def after(g: Graph, x: str, y: str, i: int, w: Weights, middle: str = "middle") -> str:
    n = f"layers.{i}"
    for name in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "out.bias", "up.bias", "down.bias"):
        g.constant(f"{n}.{name}", w[f"{n}.{name}"])
    g.dense(y, f"{n}.out", w[f"{n}.out.weight"], middle)
    norm1 = [f"{n}.norm1.weight", f"{n}.norm1.bias", f"{n}.out.bias"]
    g.op("SkipLayerNormalization", [x, f"{n}.out", *norm1], f"{n}.middle", CONTRIB, epsilon=g.a.epsilon)
    g.dense(f"{n}.middle", f"{n}.up", w[f"{n}.up.weight"], middle)
    g.op("BiasGelu", [f"{n}.up", f"{n}.up.bias"], f"{n}.inner", CONTRIB)
    g.dense(f"{n}.inner", f"{n}.down", w[f"{n}.down.weight"], middle)
    norm2 = [f"{n}.norm2.weight", f"{n}.norm2.bias", f"{n}.down.bias"]
    return g.op("SkipLayerNormalization", [f"{n}.middle", f"{n}.down", *norm2], f"{n}.x", CONTRIB, epsilon=g.a.epsilon)


def head(g: Graph, x: str, w: Weights) -> None:
    """The logits of markers."""
    for name in ("0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"):
        value = w[f"head.{name}"]
        g.constant(f"head.{name}", value.T if value.ndim == 2 else value)
    g.op("MatMul", [x, "head.0.weight"], "head.product")
    g.op("BiasGelu", ["head.product", "head.0.bias"], "head.inner", CONTRIB)
    norm = ["head.inner", "head.2.weight", "head.2.bias"]
    g.op("LayerNormalization", norm, "head.normed", axis=-1, epsilon=1e-5)
    g.op("MatMul", ["head.normed", "head.3.weight"], "head.score")
    g.op("Add", ["head.score", "head.3.bias"], "head.logit")
    g.op("Squeeze", ["head.logit", "axis.1"], "logits")


def build(a: Architecture, w: Weights, ranges: Weights, exact: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A graph, with every weight still to be written to the external file."""
    g = Graph(a, exact, ranges)
    lists = {"shape.heads": [0, 0, 2, a.heads, a.width], "shape.split": [0, 0, a.heads, a.width],
             "shape.tokens": [-1, a.hidden], "shape.parts": [a.hidden, 2 * a.hidden],
             "axis.0": [0], "axis.1": [1], "axis.2": [2]}  # fmt: skip
    for name, value in lists.items():
        g.constant(name, np.array(value, np.int64))
    if not exact:
        for name, number in (("step", 1 / 127), ("tiny", 1e-12), ("one", 1.0)):
            g.constant(name, np.array(number, np.float32))
        g.constant("offset", np.array(ZERO, np.uint8))
        for tokens, middle in (("ids", "middle"), ("markers", "middle.markers")):
            g.op("Shape", [tokens], f"{tokens}.count")
            g.op("Expand", ["offset", f"{tokens}.count"], middle)
    x = embed(g, w)
    if a.relative:
        by_distance(g, w)
    for i in range(a.layers - 1):
        x = after(g, x, attention(g, x, i, w), i, w)
    attended = attention(g, x, a.layers - 1, w)
    for name, source in (("marked.x", x), ("marked.attended", attended)):
        g.op("Gather", [source, "markers"], name)
    head(g, after(g, "marked.x", "marked.attended", a.layers - 1, w, "middle.markers"), w)
    integer, real = TensorProto.INT64, TensorProto.FLOAT
    inputs: dict[str, tuple[int, list[int | str]]] = {n: (integer, ["tokens"]) for n in ("ids", "position", "segment")}
    inputs |= {"alone": (TensorProto.BOOL, []), "grid": (integer, ["rows", "places"]),
               "seen": (integer, ["rows", "keys"]), "cell": (integer, ["asking"]), "markers": (integer, ["options"]),
               "lengths": (integer, [2]), "each": (integer, [1]), "turns": (integer, []),
               "bias": (real, ["rows", 1, "places", "keys"])}  # fmt: skip
    if a.relative:
        inputs["state_position"] = (integer, ["state"])
    outputs: dict[str, tuple[int, list[int | str]]] = {"logits": (real, ["options"])}
    for i in range(a.layers):
        for where, tokens, prefix in ((inputs, "state", ""), (outputs, "tokens", "new_")):
            where[f"{prefix}key_{i}"] = (real, [1, a.heads, a.width, tokens])
            where[f"{prefix}value_{i}"] = (real, [1, a.heads, tokens, a.width])
    graph = helper.make_graph(
        g.nodes, "decided",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in outputs.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), g.weights
