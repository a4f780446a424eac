"""A model's files: where they are, what kind of model they hold, and what they are called. Needs no torch.

Files that are on this machine are never looked for elsewhere. Weights come from safetensors, and no Python file that
came with a model is run, unless the operator trusts it (`--trust-remote-code on`).
"""

import datetime
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from decided.errors import ModelError
from decided.settings import Settings

_SAFE = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.gguf")
_TRUSTED = ("*.py", "*.bin", "*.pt")
_MARKS = ("opendecider.json", "rl_agent_config.json", "adapter_config.json", "config.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder of model files, or one GGUF file in it."""

    name: str
    folder: Path
    gguf: str | None = None
    trusted: bool = False

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = msgspec.json.decode((self.folder / name).read_bytes(), type=dict)
        except FileNotFoundError:
            raise ModelError(f"the model {self.name!r} has no {name}") from None
        except (OSError, ValueError) as error:
            raise ModelError(f"{name} of the model {self.name!r} cannot be read: {error}") from None
        return content

    def weight_files(self) -> list[Path]:
        """The files of weights, in order. Formats that run code when they are read count only when trusted."""
        if self.gguf:
            return [self.folder / self.gguf]
        found = sorted(self.folder.glob("*.safetensors"))
        if not found and self.trusted:
            found = sorted((*self.folder.glob("*.bin"), *self.folder.glob("*.pt")))
        if not found:
            raise ModelError(
                f"the model {self.name!r} has no weights in safetensors format; other formats can run code when they "
                "are read, and are read only with --trust-remote-code on"
            )
        return found

    def date(self) -> str:
        """The day on which the weights were written."""
        newest = max(path.stat().st_mtime for path in self.weight_files())
        return datetime.datetime.fromtimestamp(newest, datetime.UTC).date().isoformat()

    def fingerprint(self) -> str:
        """A short name for the weights: the same weights have the same name everywhere."""
        whole = hashlib.sha256()
        for path in self.weight_files():
            whole.update(_digest(path).encode())
        return whole.hexdigest()[:12]


def _digest(path: Path) -> str:
    stored = path.resolve().name
    if re.fullmatch(r"[0-9a-f]{64}", stored):  # the Hub's cache names a file of weights by its SHA-256
        return stored
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def locate(name: str, settings: Settings) -> Checkpoint:
    """The files of a local folder, of a local GGUF file, or of a name on the Hub."""
    trusted = settings.trust_remote_code
    path = Path(name).expanduser()
    if path.is_dir():
        return Checkpoint(path.resolve().name, path, trusted=trusted)
    if path.is_file() and path.suffix == ".gguf":
        return Checkpoint(path.stem, path.parent, path.name, trusted)
    if name.startswith((".", "/", "~")) or name.endswith("/") or path.suffix == ".gguf":
        raise ModelError(f"--model {name}: no such {'file' if path.suffix == '.gguf' else 'folder'}")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ModelError(f"{name!r} is neither a local folder nor a Hub name")
    return Checkpoint(name, _snapshot(name, settings), trusted=trusted)


def _snapshot(name: str, settings: Settings) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*_SAFE, *(_TRUSTED if settings.trust_remote_code else ())]
    try:
        local = Path(snapshot_download(name, revision=settings.revision, local_files_only=True))
        if any((local / mark).is_file() for mark in _MARKS):
            return local
    except OSError:  # not here, or not in this revision
        pass
    try:
        return Path(snapshot_download(name, revision=settings.revision, allow_patterns=patterns))
    except Exception as error:
        raise ModelError(f"{name!r} is not a local folder, and the download from the Hub failed: {error}") from error


def recognise(checkpoint: Checkpoint) -> str:
    """The kind of model that the files hold."""
    if checkpoint.has("opendecider.json"):
        return "causal" if checkpoint.has("adapter_config.json") else "opendecider"
    if checkpoint.has("rl_agent_config.json"):
        return "laya"
    if checkpoint.gguf or checkpoint.has("adapter_config.json"):
        return "causal"
    config = checkpoint.json("config.json")
    architectures = [str(name) for name in config.get("architectures") or ()]
    if any("GLiClass" in name for name in (*architectures, str(config.get("model_type")))):
        return "gliclass"
    if any(name.endswith("ForSequenceClassification") for name in architectures) and entailment_label(config) >= 0:
        return "nli"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        return "causal"
    raise ModelError(
        f"the kind of {checkpoint.name!r} cannot be recognised: its files ({', '.join(architectures) or 'no config'}) "
        "are not those of a decision encoder, a classifier with an entailment label or a causal language model. "
        "KIND:NAME forces a kind"
    )


def entailment_label(config: dict[str, Any]) -> int:
    """The number of the label that means 'it follows from the text', or -1."""
    labels = {int(number): str(label).lower() for number, label in (config.get("id2label") or {}).items()}
    for number, label in sorted(labels.items()):
        if label.startswith("entail"):
            return number
    return -1
