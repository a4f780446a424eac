"""`decided run` on workbooks: one sheet in, one sheet out, as a spreadsheet would show them."""

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from decided.extras import install_command
from decided.tables import excel
from tests.commands.conftest import Run


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.yaml"
    path.write_text("happy: {type: noul, instructions: Is the customer happy}\nlate: {type: score, criteria: [a, b]}\n")
    return path


def workbook(path: Path, *rows: list[Any], other: list[list[Any]] | None = None) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for row in other or []:
        (book["more"] if "more" in book.sheetnames else book.create_sheet("more")).append(row)
    book.save(path)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    header, *rows = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_workbook_in_and_out(decided: Run, tmp_path: Path, questions: Path) -> None:
    day = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).replace(tzinfo=None)
    source = workbook(
        tmp_path / "in.xlsx",
        [],
        ["No", "Text", None, "Day"],
        [1, "Schön", None, day],
        [None, None, None, None],
        [2, "=SUM(A1)", 0.5, None],
        [3, None, None, None],
    )
    out = tmp_path / "out.xlsx"
    done = decided("run", source, "--questions", questions, "--out", out, "--state-column", "Text")
    assert done.code == 0, done.err
    rows = read(out)
    assert [*rows[0]][:8] == ["No", "Text", "C", "Day", "happy", "happy.confidence", "happy.p.true", "happy.p.false"]
    assert [(row["No"], row["Text"], row["C"], row["Day"]) for row in rows] == [
        (1, "Schön", None, "2026-03-01"),
        (2, None, 0.5, None),
        (3, None, None, None),
    ]  # fmt: skip - a formula that no spreadsheet has worked out has no value
    assert [row["error"] for row in rows] == [None, "empty", "empty"]
    assert isinstance(rows[0]["happy"], bool)
    assert rows[0]["late.level"] in ("a", "b")


def test_texts_stay_texts(decided: Run, tmp_path: Path, questions: Path) -> None:
    out = tmp_path / "out.xlsx"
    texts = ["=1+1", "#N/A", "bell \x07", "x" * 40_000, "-1"]
    lines = "".join(json.dumps({"state": text}) + "\n" for text in texts).encode()
    assert decided("run", "-", "--questions", questions, "--out", out, stdin=lines).code == 0
    assert [row["state"] for row in read(out)] == ["=1+1", "#N/A", "bell \ufffd", "x" * 32_767, "-1"]
    assert decided("run", out, "--questions", questions, "--out", tmp_path / "again.csv").code == 2  # columns are there


def test_the_sheet_can_be_named(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = workbook(tmp_path / "in.xlsx", ["state"], ["first"], other=[["state"], ["second"]])
    done = decided("run", source, "--questions", questions)
    assert json.loads(done.out)["state"] == "first"
    assert "reading the sheet 'Sheet' of 2; --sheet names another" in done.err
    done = decided("run", source, "--questions", questions, "--sheet", "more")
    assert (json.loads(done.out)["state"], done.err) == ("second", "")
    done = decided("run", source, "--questions", questions, "--sheet", "mor")
    assert (done.code, "has the sheets 'Sheet', 'more'" in done.err) == (2, True)


def test_what_cannot_be_used_is_said_before_the_model_is_loaded(
    decided: Run, tmp_path: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = workbook(tmp_path / "good.xlsx", ["state"], ["x"])
    (tmp_path / "no.xlsx").write_text("state\nx\n")
    twice = workbook(tmp_path / "twice.xlsx", ["a", "a"], [1, 2])
    for source, said in (
        (tmp_path / "no.xlsx", "no.xlsx is not an Excel workbook (.xlsx): "),
        (twice, "the first row has a duplicate column: 'a'"),
    ):
        done = decided("run", source, "--questions", questions, "--model", "fake:broken")
        assert (done.code, said in done.err) == (2, True), done.err
    monkeypatch.setattr(excel, "_MOST_ROWS", 0)
    done = decided("run", good, "--questions", questions, "--out", tmp_path / "out.xlsx", "--model", "fake:broken")
    assert (done.code, "an Excel sheet holds at most" in done.err) == (2, True)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for arguments in ([good], ["-", "--out", tmp_path / "out.xlsx"]):
        done = decided("run", *arguments, "--questions", questions, stdin=b'{"state": "x"}')
        assert (done.code, install_command("excel") in done.err) == (2, True)


def test_cells_without_a_header_are_the_problem_of_their_row(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = workbook(tmp_path / "in.xlsx", ["state"], ["x", "stray"], ["y"])
    errors = [json.loads(line)["error"] for line in decided("run", source, "--questions", questions).out.splitlines()]
    assert errors == ['row 2: cells beyond the last named column: ["stray"]', None]


def test_a_header_without_rows_is_a_table(decided: Run, tmp_path: Path, questions: Path) -> None:
    source, out = workbook(tmp_path / "in.xlsx", [], ["No", None, "Text"]), tmp_path / "out.csv"
    command = ("run", source, "--questions", questions, "--out", out, "--state-column")
    done = decided(*command, "Tekst")
    assert (done.code, "did you mean 'Text'? it has 'No', 'B', 'Text'" in done.err) == (2, True)
    assert decided(*command, "Text").code == 0
    assert out.read_text().startswith("No,B,Text,happy,")
