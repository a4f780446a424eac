"""`decided run` on tables as spreadsheets write them, on rows without a text, and with the columns one asks for."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from decided.client.protocol import BatchResult, Response
from decided.contract.answers import answer
from decided.contract.types import Choice, Noul, Usage
from decided.tables.columns import Columns
from decided.tables.summary import Summary
from tests.commands.conftest import Run

ROWS = [["Review ID", "Product", "Text"], ["1", "Kettle", "Schön, aber spät"], ["2", "Lamp", "a; b, c\td|e"]]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.yaml"
    path.write_text(
        "happy?: {type: noul, instructions: 'Is the customer happy?'}\n"
        "how late: {type: score, criteria: [on time, a bit, very]}\n"
    )
    return path


def write(path: Path, delimiter: str, encoding: str) -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(ROWS)
    return path


def answered(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_separator_and_encoding_are_found(
    decided: Run, tmp_path: Path, questions: Path, delimiter: str, encoding: str
) -> None:
    source, out = write(tmp_path / "in.csv", delimiter, encoding), tmp_path / "out.csv"
    done = decided("run", source, "--questions", questions, "--out", out, "--state-column", "Text")
    assert done.code == 0
    assert ("read as Windows-1252" in done.err) == (encoding == "latin-1")
    assert [(row["Review ID"], row["Text"], row["error"]) for row in answered(out, delimiter)] == [
        ("1", "Schön, aber spät", ""),
        ("2", "a; b, c\td|e", ""),
    ]


def test_separator_and_encoding_can_be_given(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = write(tmp_path / "in.csv", ":", "cp437")
    command = ("run", source, "--questions", questions, "--state-column", "Text")
    done = decided(*command, "--delimiter", ":", "--encoding", "cp437")
    assert json.loads(done.out.splitlines()[0])["Text"] == "Schön, aber spät"
    assert "one character, not '::'" in decided(*command, "--delimiter", "::").err
    assert "--encoding klingon: unknown" in decided(*command, "--encoding", "klingon").err


def test_a_column_that_is_not_there_is_named_with_those_that_are(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = write(tmp_path / "in.csv", ";", "utf-8")
    for content in (source.read_text(), "Review ID;Product;Text\n"):
        source.write_text(content)
        done = decided("run", source, "--questions", questions, "--state-column", "Tekst")
        assert done.code == 2
        assert "did you mean 'Text'? it has 'Review ID', 'Product', 'Text'" in done.err


def test_a_separator_that_the_file_does_not_have_is_told(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = write(tmp_path / "in.csv", ",", "utf-8")
    done = decided("run", source, "--questions", questions, "--state-column", "Text", "--delimiter", ";")
    said = "the first line has no ';': is --delimiter right? It is 'Review ID,Product,Text'"
    assert done == (2, "", f"decided: --state-column Text: {said}\n")


@pytest.mark.parametrize(
    ("state", "is_empty"),
    [("", True), (" \n", True), (None, True), ({"a": "", "b": None}, True), (0, False), ({"a": False}, False)],
)
def test_rows_without_a_text_are_not_asked(decided: Run, questions: Path, state: Any, is_empty: bool) -> None:
    line = json.dumps({"state": state}).encode()
    row = json.loads(decided("run", "-", "--questions", questions, stdin=line).out)
    assert (row["error"], row["happy"] is None) == (("empty", True) if is_empty else (None, False))
    row = json.loads(decided("run", "-", "--questions", questions, "--empty", "ask", stdin=line).out)
    assert (row["error"], row["happy"] is None) == (None, False)


def test_columns_have_safe_names_and_levels_their_label(decided: Run, questions: Path) -> None:
    row = json.loads(decided("run", "-", "--questions", questions, stdin=b'{"state": "x"}').out)
    assert [*row][1:8] == [
        "happy", "happy.confidence", "happy.p.true", "happy.p.false", "how_late", "how_late.level", "how_late.score",
    ]  # fmt: skip
    assert row["how_late.level"] == ["on time", "a bit", "very"][row["how_late"]]
    few = json.loads(decided("run", "-", "--questions", questions, "--no-probabilities", stdin=b'{"state": "x"}').out)
    assert {*row} - {*few} == {name for name in row if ".p." in name}


def test_names_that_would_be_one_are_told_apart(decided: Run, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    options = "{type: choice, criteria: [x y, x_y]}"
    path.write_text(f"a b: {options}\na_b: {options}\nerror: {options}\n")
    row = json.loads(decided("run", "-", "--questions", path, stdin=b'{"state": "x"}').out)
    assert {"a_b", "a_b_2", "a_b.p.x_y", "a_b.p.x_y_2", "error_2", "error"} <= {*row}


def test_a_question_that_is_called_like_a_column_of_another_overwrites_nothing(decided: Run, tmp_path: Path) -> None:
    team = "{type: choice, criteria: [a, b]}"
    late = "{type: score, criteria: [early, late]}"
    others = ("team.confidence", "team.p.a", "late.level", "late.score", "late.level_2")
    nouls = "".join(f"{name}: {{type: noul, instructions: {name}}}\n" for name in others)
    path, alone = tmp_path / "q.yaml", tmp_path / "alone.yaml"
    path.write_text(f"team: {team}\nlate: {late}\n{nouls}")
    alone.write_text(f"team: {team}\nlate: {late}\n")
    row = json.loads(decided("run", "-", "--questions", path, stdin=b'{"state": "x"}').out)
    plain = json.loads(decided("run", "-", "--questions", alone, stdin=b'{"state": "x"}').out)
    assert all(isinstance(row[name], bool) for name in others)
    kept = {"team.confidence": "team.confidence_2", "team.p.a": "team.p.a_2", "late.level": "late.level_3"}
    kept |= {"late.score": "late.score_2"}
    assert {name: row[kept.get(name, name)] for name in plain} == plain
    assert len(row) == len(plain) + 4 * len(others)


def test_the_summary_counts_the_answers_and_not_the_columns_that_look_like_theirs() -> None:
    columns = Columns({"team": Choice({"a": None, "b": None}), "team.level": Noul("x"), "team.confidence": Noul("y")})
    answers = {name: answer(question, [0.9, 0.1]) for name, question in columns.questions.items()}
    summary = Summary(columns)
    summary.add(columns.values(BatchResult(0, Response("m", answers, Usage(1, 0)), None)))
    lines = "\n".join(summary.lines(1.0))
    assert "team  (mean confidence 0.80)\n  a " in lines


def test_answers_below_a_confidence_are_unsure(decided: Run, questions: Path) -> None:
    command = ("run", "-", "--questions", questions, "--min-confidence")
    row = json.loads(decided(*command, "1", stdin=b'{"state": "x"}').out)
    assert (row["happy"], row["how_late"]) == ("unsure", "unsure")
    sure = json.loads(decided(*command, "0.000001", stdin=b'{"state": "x"}').out)
    assert sure["happy"] in ("True", "False")
    assert decided(*command, "2").code == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a,b\n1,x\n2,"open\n3,y\n', "the quote that opens a cell in line 3 is never closed"),
        ('a,b\n1,x\n2,"open', "the quote that opens a cell in line 3 is never closed"),
        ('a,b\n1,x\n2,"', "the quote that opens a cell in line 3 is never closed"),
        ('a,b\n1,x\n2,"\n', "the quote that opens a cell in line 3 is never closed"),
        ('a,b\n"1\n1","x"\n"2\n\n2",5" pipe,"open ""and""\n\n""so"" on\n', "cell in line 6 is never closed"),
        ('"a,b\n1,x\n', "the quote that opens a cell in line 1 is never closed"),
        ('a,b\n1,"x\ny"z\n2,w\n', "line 3: ',' expected after '\"' (the row begins in line 2); a quote within"),
    ],
)
def test_a_quote_that_is_not_closed_is_found(
    decided: Run, tmp_path: Path, questions: Path, text: str, said: str, end: str
) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(text.replace("\n", end).encode())
    done = decided("run", source, "--questions", questions)
    assert (done.code, done.err.startswith(f"decided: {source} cannot be read: ")) == (2, True)
    assert said in done.err
    done = decided("run", "-", "--input-format", "csv", "--questions", questions, stdin=source.read_bytes())
    assert (done.code, done.err.startswith("decided: standard input cannot be read: ")) == (2, True)
    assert said in done.err


def test_a_pipe_is_told_from_a_file_that_is_not_there(decided: Run, tmp_path: Path, questions: Path) -> None:
    os.mkfifo(source := tmp_path / "in.csv")
    done = decided("run", source, "--questions", questions)
    assert (done.code, f"give it as standard input: - < {source}" in done.err) == (2, True)
