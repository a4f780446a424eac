"""The data analyst has a spreadsheet of reviews, exported with semicolons, and a morning."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import openpyxl
import pytest

from tests.personas.conftest import PATIENCE_S, Program, environment
from tests.support.server import Server

TEXTS = ["My parcel is two days late!", "I was charged twice.", "Schön, danke!", "", "   "]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="", encoding="utf-16") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Review ID", "Product", "Review Text"])
        writer.writerows([number, "Kettle", text] for number, text in enumerate(TEXTS))
    return path


def test_a_wrong_column_is_named_with_those_that_there_are(decided: Program, reviews: Path) -> None:
    done = decided("run", reviews, "--questions", "questions.yaml", "--state-column", "Text")
    assert done.returncode == 2
    assert "no column 'Text'; did you mean 'Review Text'? it has 'Review ID', 'Product', 'Review Text'" in done.stderr


def test_from_the_export_to_a_workbook(decided: Program, reviews: Path, small: Server, tmp_path: Path) -> None:
    out = tmp_path / "answered.xlsx"
    arguments = ("--questions", "questions.yaml", "--state-column", "Review Text", "--server", small.url)
    done = decided("run", reviews, *arguments, "--out", out, "--no-probabilities")
    assert done.returncode == 0, done.stderr
    assert "2 have an error" in done.stderr
    header, *rows = openpyxl.load_workbook(out).active.iter_rows(values_only=True)
    assert header == (
        "Review ID", "Product", "Review Text", "topic", "topic.confidence", "anger", "anger.level", "anger.score",
        "anger.confidence", "warning", "error",
    )  # fmt: skip
    found = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["error"] for row in found] == [None, None, None, "empty", "empty"]
    assert found[2]["Review Text"] == "Schön, danke!"
    assert {row["topic"] for row in found} <= {"delivery", "billing", "praise", None}
    assert found[0]["anger.level"] == ("calm", "annoyed", "furious")[found[0]["anger"]]


def test_what_is_not_sure_is_marked(decided: Program, reviews: Path, small: Server) -> None:
    arguments = ("--questions", "questions.yaml", "--state-column", "Review Text", "--server", small.url)
    done = decided("run", reviews, *arguments, "--min-confidence", "1")
    assert {json.loads(line)["topic"] for line in done.stdout.splitlines()} == {"unsure", None}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("topic: {type: choice, instruction: What, criteria: [a, b]}", 'line 1: question "topic": unknown field'),
        ("topic:\n  type: choice\n", "a choice needs options"),
        ("a: {type: noul, instructions: Is it so?, criteria: x}", "line 1: not valid YAML"),
        ("a: {type: noul, instructions: Is it so}\na: {type: noul}", "duplicate key 'a'"),
    ],
)
def test_a_mistake_in_the_questions_is_told_with_what_to_write(
    decided: Program, reviews: Path, tmp_path: Path, wrong: str, said: str
) -> None:
    (tmp_path / "questions.yaml").write_text(wrong)
    done = decided("run", reviews, "--questions", "questions.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_ctrl_c_keeps_what_was_answered(reviews: Path, small: Server, tmp_path: Path, decided: Program) -> None:
    """Of what the server has answered, all but what was under way is in the file."""
    source, out = tmp_path / "many.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"state": f"Order {n} is late."}) + "\n" for n in range(5000)))
    command = ["run", str(source), "--questions", "questions.yaml", "--server", small.url, "--out", str(out)]
    before = small.metric("service_questions_total")
    process = subprocess.Popen(
        [sys.executable, "-m", "decided", *command], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE
    )
    part = tmp_path / "out.jsonl.part"
    deadline = time.monotonic() + PATIENCE_S
    while not part.exists() or part.stat().st_size < 20_000:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    said = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert process.returncode == 130
    kept = len(part.read_text().splitlines())
    answered = (small.metric("service_questions_total") - before) / 2
    assert f"{kept:,} rows saved: run the same command to resume" in said
    assert answered - kept <= 128
    source.write_text("".join(source.read_text().splitlines(keepends=True)[: kept + 3]))  # the rest would take long
    done = decided(*command)
    assert f"resuming after {kept:,} rows" in done.stderr
    assert len(out.read_text().splitlines()) == kept + 3
