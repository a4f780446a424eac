"""The exported graphs of both kinds of networks answer as the networks do."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import onnx
import torch
from onnx import numpy_helper

import decided
from decided.engines.embedded.model import Embedded
from decided.hardware import multiplies_bytes_exactly
from training import export, restore
from training.architecture import Architecture
from training.metrics import probabilities
from training.network import Network
from training.served import answers, served
from training.unclipped import ZERO, unclipped
from training.verify import difference, trained

pytestmark = pytest.mark.torch

TOKENIZER = Path(decided.__file__).parent / "weights" / "tokenizer.json"
LONG = " ".join(f"On day {i} the van was {'late' if i % 3 else 'on time'}." for i in range(90))
_ROWS: list[dict[str, Any]] = [
    {"state": "It never came.", "question": {"type": "noul", "instructions": "Did it come?"}, "answer": False},
    {"state": {"paid": True}, "question": {"type": "score", "instructions": "How late?",
     "criteria": ["not at all", "a day", "a week"]}, "answer": 0},
    {"state": LONG, "question": {"type": "choice", "instructions": "What is this about?",
     "criteria": {"van": "deliveries", "cat": None, "other": None}}, "answer": "van"},
    {"state": "One of many.", "question": {"type": "choice", "instructions": "Which?",
     "criteria": {f"option number {i} of the long list": f"the one that is called {i}" for i in range(40)}},
     "answer": "option number 3 of the long list"},
]  # fmt: skip
ROWS = [{"task": "test", **row} for row in _ROWS]


@pytest.fixture(scope="module", params=[True, False], ids=["bias by distance", "no bias"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Network]:
    """A folder of graphs and the network whose weights they round."""
    torch.manual_seed(1)
    a = Architecture("tiny", 32, 64, 4, 12, 1e-5, relative=request.param)
    net = Network(a)
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.2)
    weights = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    rng = np.random.default_rng(1)
    ranges = {f"layers.{i}.qkv": rng.uniform(0.5, 8, a.hidden).astype(np.float32) for i in range(a.layers)}
    folder = tmp_path_factory.mktemp("graphs")
    export.write(folder, a, weights, ranges)
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
    about = {"name": "tiny", "description": "", "release_date": ""}
    same = {kind: [1.0] * 4 for kind in ("choice", "score", "noul")}
    (folder / "card.json").write_text(json.dumps(export.card(folder, same, 1, about)))
    net.load_arrays(export.rounded(a, weights, ranges))
    return folder, net


def test_the_exact_graphs_are_the_network(made: tuple[Path, Network]) -> None:
    folder, net = made
    found = list(served(Embedded(folder, exact=True, threads=1), ROWS))
    assert difference(found, trained(net, TOKENIZER, ROWS, 2048)).max() < 1e-4


def test_the_graphs_in_eight_bits_come_close(made: tuple[Path, Network]) -> None:
    folder, _ = made
    exact, eight = (list(served(Embedded(folder, exact=way, threads=1), ROWS)) for way in (True, False))
    assert 0 < difference(exact, eight).max() < 0.2


def test_unsigned_weights_say_what_signed_ones_say_where_sums_are_not_clipped(
    made: tuple[Path, Network], tmp_path: Path
) -> None:
    folder, _ = made
    copy = unclipped(folder, tmp_path / "copy")
    before, after = (
        {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(str(at / "model.onnx")).graph.initializer}
        for at in (folder, copy)
    )
    moved = [name for name, array in before.items() if array.dtype != after[name].dtype]
    assert len(moved) == 48  # four products a layer
    for name in moved:
        assert np.array_equal(after[name].astype(int) - int(after[ZERO]), before[name])
    ways = ((folder, True), (folder, False), (copy, False))
    exact, signed, unsigned = (list(served(Embedded(at, exact=way, threads=1), ROWS)) for at, way in ways)
    if multiplies_bytes_exactly():
        assert difference(signed, unsigned).max() < 1e-6
    assert 0 < difference(exact, unsigned).max() < 0.2


def test_what_is_served_can_be_judged_as_the_network_is(made: tuple[Path, Network]) -> None:
    folder, _ = made
    model = Embedded(folder, exact=True, threads=1)
    found = list(answers(model, ROWS))
    assert [(a.task, a.gold) for a in found] == [("test", 0), ("test", 0), ("test", 0), ("test", 3)]
    assert difference([probabilities(a.logits) for a in found], list(served(model, ROWS))).max() < 1e-6


def test_questions_about_one_state_are_answered_together_as_they_are_alone(made: tuple[Path, Network]) -> None:
    folder, _ = made
    model = Embedded(folder, exact=True, threads=1)
    rows = [{**row, "state": "It never came."} for row in ROWS]
    alone = [next(served(model, [row])) for row in rows]
    assert difference(list(served(model, rows)), alone).max() < 1e-6


def test_weights_can_be_read_back_from_the_graphs(made: tuple[Path, Network]) -> None:
    folder, net = made
    found = restore.read(net.architecture, folder)
    wanted = net.state_dict()
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert np.allclose(found[name], tensor.numpy(), atol=1e-5), name


def test_files_stay_below_their_limit(made: tuple[Path, Network], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, net = made
    monkeypatch.setattr(export, "FILE_BYTES", 990_000)
    weights = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    export.write(folder / "split", net.architecture, weights, {})
    sizes = [path.stat().st_size for path in (folder / "split").glob("*.bin")]
    assert len(sizes) > 1
    assert max(sizes) < 1_000_000
