"""The embedded models' files: the small one's in this package, the base one's in a package of its own, and there also
the card of the two together."""

import hashlib
import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from decided.errors import ModelError

NAMES = ("ensemble", "base", "small")
_BASE_PACKAGE = "decided_model_base"

Card = dict[str, Any]


def locate(name: str) -> Path:
    """The folder of the model of that name; without one, of the best that is installed."""
    if name not in ("", *NAMES):
        known = ", ".join(f"embedded:{each}" for each in NAMES)
        raise ModelError(f"--model embedded:{name}: the embedded models are {known}")
    installed = find_spec(_BASE_PACKAGE) is not None
    if name in ("base", "ensemble") and not installed:
        raise ModelError(f"--model embedded:{name} is not installed: run `make install`, or pip install ./models/base")
    if name == "small" or not installed:
        return Path(str(files("decided"))) / "weights"
    base = Path(str(files(_BASE_PACKAGE)))
    if name == "base":
        return base
    if not (base / "ensemble").is_dir():
        raise ModelError("decided-model-base is of an earlier release: run `make install`, or serve embedded:base")
    return base / "ensemble"


def read_card(folder: Path) -> Card:
    found: Card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    return found


def digest(card: Card) -> str:
    """Of all that an answer depends on but the numbers' precision: 8 bits and float32 share their weights."""
    sums = [sha256 for name, sha256 in sorted(card.get("sha256", {}).items()) if not name.endswith(".onnx")]
    parts = [*sums, *card.get("members", {}).values(), card["temperatures"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def members(folder: Path, card: Card) -> dict[Path, float]:
    """The folders of the encoders that answer, with the share of each."""
    if "members" not in card:
        return {folder: 1.0}
    found: dict[Path, float] = {}
    for name, member in card["members"].items():
        place = locate(name)
        own = read_card(place)
        if digest(own) != member["weights"]:
            raise ModelError(
                f"{card['name']} was made of other weights than those of {own['name']}, which is installed: "
                f"install both packages of one release (make install), or serve embedded:{name} alone"
            )
        found[place] = member["share"]
    return found


def check(folder: Path) -> None:
    """Raise ModelError where a file of an encoder is damaged."""
    for name, sha256 in read_card(folder)["sha256"].items():
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise ModelError(f"the embedded model's file {name} is damaged: its SHA-256 is not the one on the card")
