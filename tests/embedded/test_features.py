"""What the models' features are for: a few labels teach what no model can know."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from decided.contract.types import Choice
from decided.engines.api import run_to_end
from decided.engines.embedded.model import Embedded
from decided.engines.embedded.weights import locate
from decided.evaluation.teaching import HEAD, LabelledSet, learn_from
from tests.embedded.asking import Probabilities

TUTORIAL = Path(__file__).parents[2] / "docs/tutorials/labels.md"
TEAMS = ["atlas", "comet", "harbor"]
QUESTION = Choice(dict.fromkeys(TEAMS), "Which team takes this message?")
"""Deliveries, money, accounts: the names of the teams tell nothing."""
UNSEEN = {
    "atlas": """\
        Nobody was at home when you came. Will you try again?
        The tracking number does not exist.
        I moved. Can the order still go to the new address?
        The lamp was broken when I unpacked it.
        It says out for delivery since yesterday morning.
        The wrong neighbour has my parcel.
        You sent me the order twice.
        Where can I pick up my package?""",
    "comet": """\
        My card was charged although I cancelled.
        The price in the mail is not the price on the bill.
        Which currency will you charge me in?
        I was promised ten percent off and paid the full price.
        Do you take PayPal?
        I need a receipt for my tax return.
        You still owe me forty pounds.
        Can I pay in three instalments?""",
    "harbor": """\
        I never get the confirmation mail when I register.
        How do I close my account?
        Can my colleague have her own login?
        The app logs me out every hour.
        I typed my date of birth wrong when I signed up.
        Please stop sending me your weekly mail.
        Who can see my wish list?
        The link to confirm my address leads nowhere.""",
}


def looked_at(model: Embedded, text: str) -> tuple[Probabilities, Probabilities]:
    """Its logits and its features."""
    (item,) = model.encode(model.prepare([QUESTION]), text).items
    item.wants_features = True
    [[weights]] = run_to_end(model, [item])
    return np.log(np.asarray(weights)), item.features


def rows_of(model: Embedded, labelled: list[tuple[str, str]]) -> LabelledSet:
    logits, features = zip(*(looked_at(model, text) for text, _ in labelled), strict=True)
    right = np.array([TEAMS.index(team) for _, team in labelled])
    return LabelledSet(np.array(logits), np.array(features, np.float64), right, np.arange(len(labelled)))


@pytest.mark.parametrize("name", ["ensemble", "small"])  # the features of two are those of the base model
def test_ten_labels_of_each_teach_which_team_takes_a_message(name: str) -> None:
    model = Embedded(locate(name), exact=True, threads=1)
    found = re.search(r"```csv labels.csv\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert found
    labels = [(row["text"], row["team"]) for row in csv.DictReader(found[1].splitlines())]
    lesson = learn_from(rows_of(model, labels), 0.95, None)
    assert lesson.kept == HEAD
    new = rows_of(model, [(line.strip(), team) for team, lines in UNSEEN.items() for line in lines.splitlines()])
    right = lesson.fitted.logits(new.logits, new.features).argmax(axis=1) == new.right
    assert (new.logits.argmax(axis=1) == new.right).mean() < 0.6, "without labels it can only guess"
    assert right.mean() >= 0.8
