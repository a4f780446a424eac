"""`decided run`: tables in and out, errors beside their rows, and what is refused."""

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from decided.backend import open_backend
from decided.progress import bar
from tests.commands.conftest import Run
from tests.support.scripted_server import ReceivedRequest, Scripted, scripted_server
from tests.support.server import ROOT, Server

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "criteria": {"billing": "invoices", "delivery": None}},
    "urgency": {"type": "score", "criteria": ["low", "high"]},
    "refund": {"type": "noul", "instructions": "A refund?"},
}
ADDED = [
    "team", "team.confidence", "team.p.billing", "team.p.delivery",
    "urgency", "urgency.level", "urgency.score", "urgency.confidence", "urgency.p.0", "urgency.p.1",
    "refund", "refund.confidence", "refund.p.true", "refund.p.false",
    "warning", "error",
]  # fmt: skip


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS))
    return path


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def expected(server: Server, state: Any) -> dict[str, Any]:
    answers = server.ask(state, QUESTIONS).json["answers"]
    team, urgency, refund = answers["team"], answers["urgency"], answers["refund"]
    found = {"team": team["choice"], "team.confidence": team["confidence"]}
    found |= {f"team.p.{name}": share for name, share in team["probabilities"].items()}
    found |= {
        "urgency": urgency["level"],
        "urgency.level": QUESTIONS["urgency"]["criteria"][urgency["level"]],
        "urgency.score": urgency["score"],
        "urgency.confidence": urgency["confidence"],
    }
    found |= {f"urgency.p.{name}": share for name, share in urgency["probabilities"].items()}
    found |= {"refund": refund["noul"] >= 0.5, "refund.confidence": refund["confidence"]}
    found |= {f"refund.p.{name}": share for name, share in refund["probabilities"].items()}
    rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in found.items()}
    return {**rounded, "warning": None, "error": None}


# --- every format in, every format out ---


def test_lines_of_json(decided: Run, tmp_path: Path, questions: Path, server: Server) -> None:
    rows = [{"id": n, "state": {"text": f"état {n}", "n": n}, "extra": [None, True]} for n in range(300)]
    out = tmp_path / "out.jsonl"
    done = decided("run", jsonl(tmp_path / "in.jsonl", rows), "--questions", questions, "--out", out)
    assert done == (0, "", "")
    found = read_jsonl(out)
    assert [row["id"] for row in found] == list(range(300))
    assert list(found[0]) == ["id", "state", "extra", *ADDED]
    for n in (0, 17, 299):
        assert found[n] == {**rows[n], **expected(server, rows[n]["state"])}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "questions.json"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_csv(decided: Run, tmp_path: Path, questions: Path, server: Server, suffix: str) -> None:
    source, out = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    states = ['say "hi",\nplease\ttwice', "plain", " spaces ", "x" * 150_000]
    delimiter = "," if suffix == "csv" else "\t"
    with source.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=delimiter).writerows([["id", "text"], *([str(n), s] for n, s in enumerate(states))])
    done = decided("run", source, "--questions", questions, "--out", out, "--state-column", "text")
    assert (done.code, done.err) == (0, "")
    csv.field_size_limit(10**6)
    with out.open(newline="") as file:
        found = list(csv.DictReader(file, delimiter=delimiter))
    assert list(found[0]) == ["id", "text", *ADDED]
    for row, state in zip(found, states, strict=True):
        answers = {name: row[name] for name in ADDED}
        shown = {name: "" if value is None else value for name, value in expected(server, state).items()}
        assert row["text"] == state
        assert answers == {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in shown.items()
        }


def test_parquet_keeps_the_types_of_its_columns(decided: Run, tmp_path: Path, questions: Path, server: Server) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pyarrow.table(
        {
            "text": [f"text {n}" for n in range(2500)],
            "when": pyarrow.array(range(2500), pyarrow.timestamp("ms", "UTC")),
            "tags": [[str(n)] for n in range(2500)],
            "small": pyarrow.array([n % 100 for n in range(2500)], pyarrow.int8()),
        }
    )
    pyarrow.parquet.write_table(table, source, row_group_size=700)
    done = decided("run", source, "--questions", questions, "--out", out, "--state-column", "text")
    assert (done.code, done.err) == (0, "")
    found = pyarrow.parquet.read_table(out)
    assert found.select(table.column_names).equals(table)
    assert found.column_names == [*table.column_names, *ADDED]
    assert found.schema.field("team").type == pyarrow.string()
    assert found.schema.field("urgency").type == pyarrow.int64()
    assert found.schema.field("refund").type == pyarrow.bool_()
    assert found.slice(1234, 1).to_pylist()[0]["team.p.billing"] == expected(server, "text 1234")["team.p.billing"]
    assert not list(tmp_path.glob("out.parquet.*"))


def test_formats_may_change_on_the_way(decided: Run, tmp_path: Path, questions: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"state": "a", "n": 1, "mixed": 1, "big": 2**70, "flag": True, "deep": {"x": 1}},
        {"state": "b", "n": 2.5, "mixed": "two", "big": 1, "flag": False, "later": "only here"},
    ]
    source = jsonl(tmp_path / "in.jsonl", rows)
    for suffix in ("csv", "parquet"):
        assert decided("run", source, "--questions", questions, "--out", tmp_path / f"out.{suffix}").code == 0
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.select(["state", "n", "mixed", "big", "flag", "deep", "later"]).to_pylist() == [
        {"state": "a", "n": 1.0, "mixed": "1", "big": str(2**70), "flag": True, "deep": '{"x":1}', "later": None},
        {"state": "b", "n": 2.5, "mixed": "two", "big": "1", "flag": False, "deep": None, "later": "only here"},
    ]
    first, second = read_csv(tmp_path / "out.csv")
    assert (first["deep"], first["later"], second["later"], second["flag"]) == ('{"x":1}', "", "only here", "false")
    assert [row["team"] for row in (first, second)] == table["team"].to_pylist()


def test_standard_input_and_output(decided: Run, questions: Path, server: Server, tmp_path: Path) -> None:
    lines = "".join(f'{{"state": "line {n}"}}\n\n' for n in range(40)).encode()
    done = decided("run", "-", "--questions", questions, stdin=lines)
    assert (done.code, done.err) == (0, "")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert found[39] == {"state": "line 39", **expected(server, "line 39")}
    table = b"state,n\r\none,1\r\ntwo,2\r\n"
    out = tmp_path / "out.csv"
    assert decided("run", "-", "--input-format", "csv", "--questions", questions, "--out", out, stdin=table).code == 0
    assert [(row["state"], row["n"]) for row in read_csv(out)] == [("one", "1"), ("two", "2")]


@pytest.mark.parametrize(
    ("row", "flags", "state"),
    [
        ({"a": 1, "b": ["x"], "state": "S", "text": "T"}, (), "S"),
        ({"a": 1, "text": "T"}, (), "T"),
        ({"a": 1, "b": ["x"]}, (), {"a": 1, "b": ["x"]}),
        ({"a": 1, "state": "S"}, ("--state-column", "a"), 1),
        ({"a": 1, "b": ["x"]}, ("--state-column", "b", "--state-column", "a"), {"b": ["x"], "a": 1}),
    ],
)
def test_what_the_state_is(
    decided: Run, questions: Path, server: Server, row: Any, flags: tuple[str, ...], state: Any
) -> None:
    done = decided("run", "-", "--questions", questions, *flags, stdin=json.dumps(row).encode())
    assert json.loads(done.out)["team.confidence"] == expected(server, state)["team.confidence"]


def test_a_table_without_rows(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.touch()
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        assert decided("run", source, "--questions", questions, "--out", out) == (0, "", f"{source} is empty\n")
        assert out.exists()
    assert decided("run", "-", "--questions", questions) == (0, "", "standard input is empty\n")
    for name, content in (("in.csv", b""), ("bom.csv", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(content)
        done = decided("run", tmp_path / name, "--questions", questions)
        assert done == (0, "", f"{tmp_path / name} is empty\n")


def test_the_columns_of_a_table_without_rows_stay(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,text\n")
    for suffix, read in (("csv", _csv_header), ("parquet", _parquet_header), ("xlsx", _excel_header)):
        out = tmp_path / f"out.{suffix}"
        assert decided("run", source, "--questions", questions, "--out", out, "--state-column", "text").code == 0
        assert read(out) == ["id", "text", *ADDED]
        piped = tmp_path / f"piped.{suffix}"
        flags = ("--input-format", "csv", "--questions", questions, "--out", piped)
        assert decided("run", "-", *flags, stdin=source.read_bytes()).code == 0
        assert read(piped) == ["id", "text", *ADDED]


def _csv_header(path: Path) -> list[str]:
    return path.read_text().strip().split(",")


def _parquet_header(path: Path) -> list[str]:
    names: list[str] = pyarrow.parquet.read_schema(path).names
    return names


def _excel_header(path: Path) -> list[str]:
    return [cell.value for cell in openpyxl.load_workbook(path).active[1]]


def test_against_a_server_the_output_is_the_same(decided: Run, tmp_path: Path, questions: Path, server: Server) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"state": f"row {n}"} for n in range(700)])
    assert decided("run", source, "--questions", questions, "--out", tmp_path / "a.jsonl").code == 0
    flags = ("--server", server.url, "--concurrency", "300")
    assert decided("run", source, "--questions", questions, "--out", tmp_path / "b.jsonl", *flags).code == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_bytes_and_nan_of_a_table_are_read_alike_here_and_by_a_server(
    decided: Run, tmp_path: Path, questions: Path, server: Server
) -> None:
    source = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"raw": [b"abc", b"\xff"], "share": [float("nan"), 0.5]}), source)
    for name, flags in (("a.jsonl", ()), ("b.jsonl", ("--server", server.url))):
        done = decided("run", source, "--questions", questions, "--out", tmp_path / name, *flags)
        assert done == (0, "", "")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


# --- errors stay beside their rows ---


def test_rows_that_fail_keep_their_place_and_say_why(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = tmp_path / "in.jsonl"
    states = ["fine", "FAIL", "y" * 200_001, "NAN", "word " * 2000, "fine"]
    lines = [json.dumps({"state": state}) for state in states] + ["{broken", '{"other": 1}', "[]", '{"state": "end"}']
    source.write_text("\n".join(lines))
    out = tmp_path / "out.jsonl"
    done = decided("run", source, "--questions", questions, "--out", out, "--state-column", "state")
    assert done == (0, "", "10 rows in 0:00; 6 have an error, see the column 'error'\n")
    found = read_jsonl(out)
    assert [row["error"] for row in found] == [
        None,
        "inference failed: the model failed while running",
        "state is too long: 200001 characters, at most 200000",
        "inference failed: the model gave no distribution over the options",
        None,
        None,
        "line 7 is not valid JSON: JSON is malformed: object keys must be strings (byte 1)",
        "the column 'state' is missing",
        "line 9 must be a JSON object",
        None,
    ]
    assert found[1]["team"] is None
    assert found[6]["unreadable"] == "{broken"
    assert "1000 of 2000 tokens" in found[4]["warning"]


def test_csv_rows_that_are_none(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(b'id,state\n1,fine\n2\n3,too,many,"a \xff\nb"\n4,\xff\xfe\n5,fine\n')
    assert decided("run", source, "--questions", questions, "--out", tmp_path / "out.csv").code == 0
    found = read_csv(tmp_path / "out.csv")
    assert [(row["id"], row["error"]) for row in found] == [
        ("1", ""),
        ("2", "line 3: 1 cells in place of 2"),
        ("3", 'line 5: 4 cells in place of 2; without a column: ["many","a \ufffd\\nb"]'),
        ("4", "line 6: not valid UTF-8"),
        ("5", ""),
    ]


def test_bytes_that_are_no_text_stop_no_run_wherever_they_stand(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(b"id,\xff,state\n1,a,fine\n\xff2,a\n3,\xff,too,many\n4,a,fine\n")
    assert decided("run", source, "--questions", questions, "--out", tmp_path / "out.csv").code == 0
    found = read_csv(tmp_path / "out.csv")
    assert [(row["id"], row["\ufffd"], row["error"]) for row in found] == [
        ("1", "a", ""),
        ("\ufffd2", "a", "line 3: 2 cells in place of 3"),
        ("3", "\ufffd", 'line 4: 4 cells in place of 3; without a column: ["many"]'),
        ("4", "a", ""),
    ]


def test_a_first_row_that_is_too_short_hides_no_column(decided: Run, tmp_path: Path, questions: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,state\n1\n2,fine\n")
    assert decided("run", source, "--questions", questions, "--out", out).code == 0
    assert [(row["state"], bool(row["error"])) for row in read_csv(out)] == [("", True), ("fine", False)]


def test_one_slow_row_does_not_change_the_order(decided: Run, tmp_path: Path, questions: Path) -> None:
    rows = [{"state": "SLEEP=0.3" if n == 3 else f"row {n}", "n": n} for n in range(200)]
    source, out = jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    for concurrency in (1, 2, 33):
        out.unlink(missing_ok=True)
        assert decided("run", source, "--questions", questions, "--out", out, "--concurrency", concurrency).code == 0
        assert [row["n"] for row in read_jsonl(out)] == list(range(200))


# --- what is refused ---


def test_mistakes_are_found_before_the_model_is_loaded(decided: Run, tmp_path: Path, questions: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"state": "x", "team": 1}])
    good = jsonl(tmp_path / "good.jsonl", [{"state": "x"}])
    there = jsonl(tmp_path / "there.jsonl", [])
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "header.csv").write_text("id,team\n")
    (tmp_path / "short.csv").write_text("id,team\n1\n")
    pyarrow.parquet.write_table(pyarrow.table({"id": []}), tmp_path / "header.parquet")
    for arguments, said in (
        (["no.jsonl", "--questions", questions], "no.jsonl cannot be read"),
        ([tmp_path / "x.xls", "--questions", questions], "must end in one of"),
        ([good, "--questions", "no.yaml"], "no.yaml cannot be read"),
        ([good, "--questions", questions, "--out", "x.doc"], "--out x.doc: the name must end in"),
        ([good, "--questions", questions, "--out", tmp_path / "no" / "x.csv"], "the directory does not exist"),
        ([source, "--questions", questions], "has a column 'team' already"),
        ([good, "--questions", questions, "--state-column", "text"], "the input has no column 'text'; it has 'state'"),
        ([good, "--questions", questions, "--concurrency", "0"], "must be a whole number from 1"),
        ([tmp_path / "twice.csv", "--questions", questions], "duplicate column"),
        ([tmp_path / "header.csv", "--questions", questions], "has a column 'team' already"),
        ([tmp_path / "short.csv", "--questions", questions], "has a column 'team' already"),
        ([tmp_path / "header.parquet", "--questions", questions, "--state-column", "text"], "no column 'text'"),
    ):
        done = decided("run", *arguments, "--model", "fake:broken")
        assert (done.code, done.out) == (2, ""), done.err
        assert said in done.err
    done = decided("run", good, "--questions", questions, "--out", there, "--model", "fake:broken")
    assert (done.code, "there.jsonl already exists" in done.err) == (2, True)
    assert decided("run", good, "--questions", questions, "--model", "fake:broken").code == 3


def test_a_server_that_goes_away_ends_the_run_and_leaves_what_was_done(
    decided: Run, tmp_path: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decided.tables.run.open_backend", partial(open_backend, retries=1))
    answers = {"refund": {"type": "noul", "noul": 0.75}}
    left = [5]

    def script(asked: ReceivedRequest) -> Scripted | None:
        if asked.path == "/v1/models":
            return Scripted(body={"models": [{"name": "m", "description": "", "release_date": "", "kind": ""}]})
        left[0] -= 1
        line = {"model": "m", "answers": answers, "usage": {"input_tokens": 1, "output_tokens": 0}}
        numbers = range(len(asked.body["states"]))
        return Scripted(lines=[{"index": index, **line} for index in numbers]) if left[0] >= 0 else None

    questions.write_text(json.dumps({"refund": QUESTIONS["refund"]}))
    source = jsonl(tmp_path / "in.jsonl", [{"state": str(n)} for n in range(200)])
    out = tmp_path / "out.jsonl"
    with scripted_server(script) as (url, _):
        command = ("run", source, "--questions", questions, "--out", out, "--server", url, "--concurrency", "1")
        done = decided(*command)
        assert (done.code, done.out) == (3, "")
        assert "5 rows saved: run the same command to resume" in done.err
        assert f"decided: the server at {url}: unreachable" in done.err
        left[0] = 200
        assert decided(*command).code == 0
    assert len(read_jsonl(out)) == 200


def test_progress_of_a_run_that_goes_on_counts_its_own_rate() -> None:
    assert bar(150, 200, 10.0, "rows", before=100) == "[##################......] 150/200 rows  5.0/s  0:10 left"
    assert bar(150, None, 10.0, "rows", before=100) == "150 rows  5.0/s"


def test_on_a_terminal_a_line_tells_how_far_it_is(tmp_path: Path, questions: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"state": f"SLEEP=0.001 {n}"} for n in range(300)])
    inner, outer = os.openpty()
    command = [sys.executable, "-m", "tests.support.fake_server", "run", source, "--questions", questions]
    process = subprocess.Popen(
        [*map(str, command), "--out", str(tmp_path / "out.jsonl"), "--model", "fake"], cwd=ROOT, stderr=outer
    )
    os.close(outer)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(inner, 4096):
            shown += part
    os.close(inner)
    assert process.wait(30) == 0
    assert re.search(rb"\[#+\.*\] \d+/300 rows  [\d.]+/s  \d+:\d\d left", shown)
