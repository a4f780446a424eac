"""The product owner has labels in a table and wants to know whether to trust the answers, in a sentence."""

import json
import re
from pathlib import Path

import pytest

from tests.personas.conftest import Program
from tests.support.server import Server

ROWS = [
    ("My parcel is two days late.", "delivery", "no"),
    ("The courier lost my box.", "delivery", "no"),
    ("I was charged twice, give me my money back.", "billing", "yes"),
    ("The invoice has the wrong date.", "billing", "no"),
    ("Thank you, I love the lamp!", "praise", "no"),
    ("Best shop ever.", "praise", "no"),
]
FIRST = """\
topic: {type: choice, instructions: What is it about, criteria: [delivery, billing, praise]}
refund: {type: noul, instructions: Does the customer want money back}
"""
SECOND = """\
topic:
  type: choice
  instructions: Which team should read the message?
  criteria: {billing: invoices and payments, praise: the customer is happy, delivery: late or lost parcels}
refund: {type: noul, instructions: Is a refund asked for}
"""


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    (tmp_path / "a.yaml").write_text(FIRST)
    (tmp_path / "b.yaml").write_text(SECOND)
    path = tmp_path / "labels.csv"
    rows = [*ROWS * 4, ("", "billing", "no"), ("What?", "bills", "no"), ("Only one label.", "praise", "")]
    path.write_text("text;topic;refund\n" + "".join(f'"{text}";{topic};{refund}\n' for text, topic, refund in rows))
    return path


def test_a_verdict_in_sentences(decided: Program, labels: Path, small: Server, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = decided("eval", labels, "--questions", "a.yaml", "--server", small.url, "--html", page)
    assert done.returncode == 0, done.stderr
    first, with_, _, verdict, *_ = done.stdout.splitlines()
    assert re.fullmatch(rf"decided-small-8 on {labels}, \d{{4}}-\d\d-\d\d: 25 rows, 2 skipped", first)
    assert with_ == f"with questions a.yaml, server {small.url}"
    assert re.match(r"topic: \d+% right \(\d+%-\d+%\)\. ", verdict)
    assert "Next: Label more: 24 rows" in done.stdout.replace("\n", " ") or "Next: Label more: 25 rows" in done.stdout
    assert 'skipped row 26: question "topic": "bills" is not one of the options; did you mean "billing"?' in done.stderr
    assert "skipped row 25: it has no text" in done.stderr
    text = page.read_text()
    for said in ("Brier score", "Calibration error", "Next: ", "a.yaml", "max-width: 600px"):
        assert said in text


def test_wrong_rows_are_listed_the_surest_first(decided: Program, labels: Path, small: Server) -> None:
    wrong = labels.with_name("wrong.csv")
    wrong.write_text(labels.read_text().replace(";delivery;", ";praise;").replace('"";billing;no\n', ""))
    done = decided("eval", wrong, "--questions", "a.yaml", "--server", small.url, "--json")
    topic = next(section for section in json.loads(done.stdout)["sections"] if section["name"] == "topic")
    mistakes = topic["mistakes"]
    assert len(mistakes) >= 4
    assert {mistake["truth"] for mistake in mistakes} >= {"praise"}
    assert [one["confidence"] for one in mistakes] == sorted((one["confidence"] for one in mistakes), reverse=True)
    assert all(mistake["text"] for mistake in mistakes)


def test_two_wordings_on_the_same_rows(decided: Program, labels: Path, small: Server) -> None:
    command = ("eval", labels, "--questions", "a.yaml", "--server", small.url)
    done = decided(*command, "--against-questions", "b.yaml", "--json")
    report = json.loads(done.stdout)
    assert report["names"] == ["a.yaml", "b.yaml"]
    for section in report["sections"]:
        difference = section["a"]["scores"]["accuracy"]["value"] - section["b"]["scores"]["accuracy"]["value"]
        assert section["comparison"]["accuracy"]["value"] == pytest.approx(difference)
    alone = json.loads(decided("eval", labels, "--questions", "b.yaml", "--server", small.url, "--json").stdout)
    for one, two in zip(alone["sections"], report["sections"], strict=True):
        for figure in ("brier", "log_loss"):  # whatever the order of the options
            assert one["a"]["scores"][figure] == pytest.approx(two["b"]["scores"][figure])
        assert one["a"]["scores"]["accuracy"] == pytest.approx(two["b"]["scores"]["accuracy"])


def test_a_thing_against_itself_is_named(decided: Program, labels: Path, small: Server) -> None:
    command = ("eval", labels, "--questions", "a.yaml", "--server", small.url)
    done = decided(*command, "--against-questions", "a.yaml")
    assert "Both are right on the same rows." in done.stdout
    done = decided(*command, "--against", small.url)
    assert "Both are the same model with the same settings: there is nothing to compare." in done.stdout


def test_what_is_missing_is_said(decided: Program, labels: Path, tmp_path: Path) -> None:
    done = decided("eval", labels)
    assert (done.returncode, "a table needs --questions FILE" in done.stderr) == (2, True)
    done = decided("teach", labels)
    assert (done.returncode, "a table needs --questions FILE" in done.stderr) == (2, True)
    done = decided("calibrate", labels)
    assert (done.returncode, "tables are for `decided teach` and `decided eval`" in done.stderr) == (2, True)
    (tmp_path / "c.yaml").write_text(FIRST.replace("topic:", "topics:"))
    done = decided("eval", labels, "--questions", "c.yaml")
    assert (done.returncode, "no column 'topics'; did you mean 'topic'?" in done.stderr) == (2, True)
    done = decided("eval", labels, "--questions", "a.yaml", "--against-questions", "c.yaml")
    assert (done.returncode, "the question 'topic' is not in both files" in done.stderr) == (2, True)
    (tmp_path / "d.yaml").write_text(FIRST.replace("praise]", "thanks]"))
    done = decided("eval", labels, "--questions", "a.yaml", "--against-questions", "d.yaml")
    assert (done.returncode, "must have the same type and options" in done.stderr) == (2, True)
