"""Weights have one name wherever the ones that come with the checkout are spoken of."""

import json
import re

import pytest

from tests.support.server import ROOT

BASE = "models/base/src/decided_model_base"
CARDS = ("src/decided/weights/card.json", f"{BASE}/card.json", f"{BASE}/ensemble/card.json")
PLACES = (
    "README.md",
    "NOTICE",
    "docs/upgrades.md",
    "models/base/README.md",
    "models/base/pyproject.toml",
    f"{BASE}/__init__.py",
)
NAME = re.compile(r"decided-(?:small|base|ensemble)-\d+")


@pytest.mark.parametrize("place", PLACES)
def test_only_the_weights_of_the_checkout_are_named(place: str) -> None:
    shipped = {json.loads((ROOT / card).read_text(encoding="utf-8"))["name"] for card in CARDS}
    named = set(NAME.findall((ROOT / place).read_text(encoding="utf-8")))
    assert named
    assert named <= shipped
