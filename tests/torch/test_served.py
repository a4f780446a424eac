"""From the command line: a folder of model files, served; devices and precisions, refused or remapped with a word."""

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from decided.engines import api as engine
from decided.engines.torch import placement
from decided.errors import ModelError
from decided.settings import Settings
from tests.support.questions import LONG, QUESTIONS, STATES
from tests.support.server import running_server, start
from tests.torch import checkpoints

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def laya(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.laya(tmp_path_factory.mktemp("tiny-laya"))


def test_a_folder_is_served_and_says_what_it_is(laya: Path) -> None:
    with running_server("--model", str(laya), "--device", "cpu", module="decided") as server:
        (entry,) = server.get("/v1/models").json["models"]
        assert (entry["name"], entry["kind"]) == (laya.name, "laya")
        assert "256 tokens" in entry["description"]
        assert "float32, temperatures of the checkpoint" in entry["description"]
        assert server.get("/health").json["device"] == "cpu"
        for path in ("/health", "/v1/models"):
            assert str(laya.parent) not in server.get(path).body.decode()
        reply = server.ask(STATES[0], QUESTIONS).json
        assert list(reply["answers"]) == list(QUESTIONS)
        assert "warnings" not in reply
        cut = server.ask(LONG, QUESTIONS).json
        assert len(cut["warnings"]) == len(QUESTIONS)
        assert all(answer["truncated"] for answer in cut["answers"].values())
        many = {"type": "choice", "criteria": {str(number): None for number in range(62)}}
        assert server.ask("x", {"q": many}).status == 422  # this model has room for 61


def test_a_broken_model_ends_the_start_with_a_word(laya: Path, tmp_path: Path) -> None:
    for name in ("rl_agent_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((laya / name).read_bytes())
    server = start("--port", "0", "--model", str(tmp_path), module="decided")
    assert server.process.wait(60) == 3
    assert "encoder/config.json" in server.log()


def test_what_is_local_is_not_looked_for_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*arguments: Any) -> None:
        raise AssertionError("a network call")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    makers = (checkpoints.opendecider, lambda folder: checkpoints.decoder(folder, "qwen3"), checkpoints.gliclass)
    for number, maker in enumerate(makers):
        (tmp_path / str(number)).mkdir()
        engine.load(Settings(model=str(maker(tmp_path / str(number))), device="cpu"))


def test_eight_bits_are_refused(laya: Path) -> None:
    with pytest.raises(ModelError, match="other clients"):
        engine.load(Settings(model=str(laya), dtype="int8"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_here_is_refused(laya: Path) -> None:
    with pytest.raises(ModelError, match="--device cuda: PyTorch finds no such device"):
        engine.load(Settings(model=str(laya), device="cuda"))


@pytest.mark.parametrize(("ratio", "used"), [(90.0, torch.float32), (0.5, torch.bfloat16)])
def test_short_numbers_are_used_only_where_they_are_quicker(
    ratio: float, used: torch.dtype, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(placement, "slowdown", lambda dtype: ratio)
    chosen = placement.place(Settings(device="cpu", dtype="bfloat16"))
    assert chosen.dtype is used
    assert ("90.0 times slower than float32" in caplog.text) == (used is torch.float32)


def test_the_cpu_is_looked_at() -> None:
    assert placement.slowdown(torch.bfloat16) > 0


def test_bfloat16_changes_answers_little(laya: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.conformance import decide
    from tests.support.questions import typed

    monkeypatch.setattr(placement, "slowdown", lambda dtype: 1.0)
    exact, short = (
        engine.load(Settings(model=str(laya), device="cpu", dtype=dtype)) for dtype in ("float32", "bfloat16")
    )
    assert engine.is_model(exact)
    assert engine.is_model(short)
    assert "bfloat16" in short.card.provenance
    for one, other in zip(*(decide(model, STATES, typed(), True) for model in (exact, short)), strict=True):
        for here, there in zip(one, other, strict=True):
            assert here == pytest.approx(there, abs=0.1)
