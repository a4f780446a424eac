"""A model's files: recognised, named, and refused where they could run code. No PyTorch is needed for it."""

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest

from decided.engines import api as engine
from decided.engines.checkpoint import Checkpoint, locate, recognise
from decided.errors import ModelError
from decided.settings import Settings

CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}
FILES: dict[str, tuple[str, dict[str, dict[str, object]]]] = {
    "nano": ("opendecider", {"opendecider.json": {"kind": "nano"}, "config.json": {}}),
    "laya": ("laya", {"rl_agent_config.json": {}, "encoder/config.json": {}}),
    "adapter": ("causal", {"adapter_config.json": {"base_model_name_or_path": "a/b"}}),
    "adapter of a decider": ("causal", {"opendecider.json": {"kind": "small"}, "adapter_config.json": {}}),
    "decoder": ("causal", {"config.json": {"architectures": ["Qwen3ForCausalLM"]}}),
    "old decoder": ("causal", {"config.json": {"architectures": ["GPT2LMHeadModel"]}}),
    "classifier": ("nli", {"config.json": CLASSIFIER | {"id2label": {"0": "ENTAILMENT", "1": "NEUTRAL"}}}),
    "gliclass": ("gliclass", {"config.json": {"model_type": "GLiClass", "architectures": ["GLiClassModel"]}}),
}


def made(folder: Path, files: dict[str, dict[str, object]]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", FILES)
def test_kinds_are_recognised_by_their_files(name: str, tmp_path: Path) -> None:
    kind, files = FILES[name]
    found = locate(str(made(tmp_path, files)), Settings())
    assert recognise(found) == kind
    assert found.name == tmp_path.name  # what everybody may read of it: never the path


def test_a_gguf_file_is_a_language_model(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    found = locate(str(tmp_path / "tiny.gguf"), Settings())
    assert (found.name, found.gguf, recognise(found)) == ("tiny", "tiny.gguf", "causal")


@pytest.mark.parametrize(
    "files",
    [{}, {"config.json": {"architectures": ["T5Model"]}}, {"config.json": CLASSIFIER | {"id2label": {"0": "spam"}}}],
    ids=["nothing", "neither this nor that", "no entailment"],
)
def test_what_is_not_recognised_is_said(files: dict[str, dict[str, object]], tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        recognise(locate(str(made(tmp_path, files)), Settings()))


def test_weights_that_can_run_code_are_read_only_when_trusted(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickled")
    with pytest.raises(ModelError, match="--trust-remote-code on"):
        locate(str(tmp_path), Settings()).weight_files()
    trusted = locate(str(tmp_path), Settings(trust_remote_code=True))
    assert [path.name for path in trusted.weight_files()] == ["pytorch_model.bin"]
    (tmp_path / "model.safetensors").write_bytes(b"safe")
    assert [path.name for path in trusted.weight_files()] == ["model.safetensors"]


def test_weights_are_named_by_what_is_in_them(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, content in ((one, b"weights"), (other, b"weights!")):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(content)
    assert Checkpoint("a", one).fingerprint() != Checkpoint("a", other).fingerprint()
    linked = tmp_path / "linked"
    linked.mkdir()
    blob = tmp_path / hashlib.sha256(b"weights").hexdigest()
    blob.write_bytes(b"weights")
    (linked / "model.safetensors").symlink_to(blob)  # as in the cache of the Hub
    assert Checkpoint("b", linked).fingerprint() == Checkpoint("a", one).fingerprint()


@pytest.mark.parametrize("name", ["nosuch", "nosuch:model", "nosuch:owner/model"])
def test_an_unknown_kind_is_no_name_on_the_hub(name: str) -> None:
    with pytest.raises(ModelError, match="unknown kind; the kinds are causal, "):
        engine.load(Settings(model=name))


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_kind_that_needs_an_extra_says_which(tmp_path: Path) -> None:
    folder = made(tmp_path, FILES["nano"][1])
    with pytest.raises(ModelError, match=r"needs torch: .* -m pip install .*\[torch\]"):
        engine.load(Settings(model=str(folder)))
