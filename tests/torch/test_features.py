"""What the PyTorch kinds make of a state, beyond the shared conformance test; and labels taught to a tiny model."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided.engines import api as engine
from decided.engines.api import run_to_end
from decided.engines.torch.kv_cache import KvCache
from decided.settings import Settings
from tests.conformance import ALIKE
from tests.support.questions import LONG, STATES, typed
from tests.support.server import ROOT, running_server
from tests.torch import checkpoints

pytestmark = pytest.mark.torch

TOPIC = {"type": "choice", "instructions": "What is it about?", "criteria": {"parcel": None, "bill": None}}
WORDS = {"parcel": ["parcel", "box", "late", "arrived", "open"], "bill": ["charged", "money", "order", "twice", "back"]}


def loaded(folder: Path, **settings: Any) -> Any:
    return engine.load(Settings(model=str(folder), device="cpu", **settings))


def features(model: Any, state: str) -> Any:
    reading = model.encode(model.prepare(typed()), state)
    reading.items[0].wants_features = True
    run_to_end(model, reading.items)
    return reading.items[0].features


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.decoder(tmp_path_factory.mktemp("qwen3"), "qwen3")


def test_a_state_that_was_not_kept_is_described_as_one_that_was(qwen3: Path) -> None:
    model = loaded(qwen3)
    kept = [features(model, state) for state in (*STATES, LONG)]
    model.decoder.states = KvCache(0, 1)
    for state, wanted in zip((*STATES, LONG), kept, strict=True):
        assert features(model, state) == pytest.approx(wanted, abs=ALIKE)


def test_an_item_that_is_split_for_memory_is_described_too(qwen3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(qwen3)
    wanted, real = features(model, STATES[0]), model.forward

    def cramped(items: Any) -> Any:
        if len(items[0].questions) > 1:
            raise torch.OutOfMemoryError("no room")
        return real(items)

    monkeypatch.setattr(model, "forward", cramped)
    assert features(model, STATES[0]) == pytest.approx(wanted, abs=ALIKE)


def test_layers_that_cannot_share_a_state_give_no_features(tmp_path: Path) -> None:
    assert not loaded(checkpoints.decoder(tmp_path, "mamba", state_size=8)).gives_features


def labels(path: Path) -> Path:
    chance = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "topic"])
        for number in range(40):
            topic = list(WORDS)[number % 2]
            writer.writerow([f"{' '.join(chance.permutation(WORDS[topic])[:3])} {number}", topic])
    return path


@pytest.mark.parametrize("kind", ["opendecider", "causal"])
def test_a_tiny_model_is_taught_and_served(kind: str, tmp_path: Path, qwen3: Path) -> None:
    folder = qwen3 if kind == "causal" else checkpoints.opendecider(tmp_path / "model")
    (tmp_path / "questions.json").write_text(json.dumps({"topic": TOPIC}))
    command = [sys.executable, "-m", "decided", "teach", labels(tmp_path / "labels.csv"), "--model", folder]
    more = ["--device", "cpu", "--questions", tmp_path / "questions.json", "--out", tmp_path / "profiles"]
    done = subprocess.run([*map(str, (*command, *more))], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "kept: a head on its features" in done.stdout
    served = ("--model", str(folder), "--device", "cpu", "--profiles", str(tmp_path / "profiles"))
    with running_server(*served, module="decided") as server:
        for topic, words in WORDS.items():
            for asked in ({"q": TOPIC}, {"r": {"type": "noul", "instructions": "Is it late?"}, "q": TOPIC}):
                answer = server.ask(" ".join(words), asked).json["answers"]["q"]
                assert answer["choice"] == topic
                assert answer["profile"].startswith("topic@")
