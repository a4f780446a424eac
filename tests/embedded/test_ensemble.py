"""Models that answer together: their logits are added up by their shares, and nothing else changes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decided.contract.types import Choice, Noul, Question, Score
from decided.engines.api import run_to_end
from decided.engines.embedded import weights
from decided.engines.embedded.calibration import Scale
from decided.engines.embedded.model import Embedded, EncodedQuestion
from decided.engines.embedded.weights import digest, locate, read_card
from decided.errors import ModelError
from tests.embedded.asking import Probabilities, ask, shares

ASKED: list[Question] = [
    Choice({"delivery": "a parcel is late", "billing": None, "other": None}, "What is it about?"),
    Score(["it can wait", "this week", "today"], "How urgent is it?"),
    Noul("Is the parcel late?"),
]
STATES = ("The parcel was due on Monday, and nobody answers.", "On day one the van was late. " * 66)  # in two windows


@pytest.fixture(scope="module")
def together() -> Embedded:
    return Embedded(locate("ensemble"), exact=True, threads=1)


def log_shares(model: Embedded, state: str) -> list[Probabilities]:
    """As the network says it, before temperatures."""
    plain: Sequence[EncodedQuestion] = [asked._replace(scale=Scale()) for asked in model.prepare(ASKED)]
    [found] = run_to_end(model, model.encode(plain, state).items)
    return [np.log(np.asarray(each) / np.sum(each)) for each in found]


def test_the_logits_of_both_are_added_up_by_their_shares(together: Embedded) -> None:
    base, small = (Embedded(locate(name), exact=True, threads=1) for name in ("base", "small"))
    members = read_card(locate("ensemble"))["members"]
    for state in STATES:
        found = zip(log_shares(together, state), log_shares(base, state), log_shares(small, state), strict=True)
        for both, one, other in found:
            mean = members["base"]["share"] * one + members["small"]["share"] * other
            assert both - both[0] == pytest.approx(mean - mean[0], abs=1e-4)
            assert np.abs((one - one[0]) - (other - other[0])).max() > 0.01, "two models that say the same show nothing"


def test_alone_or_in_company_it_gives_the_same_bits(together: Embedded) -> None:
    alone = [ask(together, state, *ASKED) for state in STATES]
    company = shares(together, [(state, ASKED) for state in STATES])
    for one, other in zip(alone, company, strict=True):
        assert [answer.tolist() for answer in one] == [answer.tolist() for answer in other]


def test_the_first_of_them_describes_the_state(together: Embedded) -> None:
    (item,) = together.encode(together.prepare(ASKED), STATES[0]).items
    item.wants_features = True
    together.run([item])
    assert item.features.shape == (768,)


def test_other_weights_than_those_it_was_made_of_are_refused(tmp_path: Path) -> None:
    card: dict[str, Any] = read_card(locate("ensemble"))
    card["members"]["small"]["weights"] = "0" * 12
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match=r"other weights than those of decided-small-\d+.*make install"):
        Embedded(tmp_path, exact=True, threads=1)


def test_its_digest_hangs_on_members_shares_and_temperatures() -> None:
    card = read_card(locate("ensemble"))
    changes: list[dict[str, Any]] = [json.loads(json.dumps(card)) for _ in range(3)]
    changes[0]["members"]["base"]["weights"] = "0" * 12
    changes[1]["members"]["base"]["share"] += 0.01
    changes[2]["temperatures"]["noul"][0] += 0.1
    assert len({digest(card), *map(digest, changes)}) == 4


def test_a_damaged_member_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = locate("small")
    for file in small.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"damaged")
    monkeypatch.setattr(weights, "locate", lambda name: tmp_path if name == "small" else locate(name))
    with pytest.raises(ModelError, match=r"file weights\.bin is damaged"):
        Embedded(locate("ensemble"), exact=True, threads=1)
