"""`decided run` on a disk that is full, read-only or damaged: one sentence says so, and the same command goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from decided.errors import InputError
from decided.tables.resumable import Spool
from decided.tables.tables import Row, RowText, Table
from tests.commands.conftest import Run
from tests.support.disk import room_for
from tests.support.server import ROOT

QUESTIONS = {"n": {"type": "noul", "instructions": "So?"}}
ROWS = [(Row({"id": n, "text": f'a "b",\nc {n}'}), {"x": n / 3}) for n in range(12)]
RESUME = "rows saved: run the same command to resume"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS))
    return path


def table(path: Path, rows: int) -> Path:
    path.write_text("id,state\n" + "".join(f'{n},"row {n},\nand a line"\n' for n in range(rows)))
    return path


def left_over(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in (".part", ".journal", ".making")]


# --- the file itself ---


def written(out: Path, kind: str, at_a_time: int) -> None:
    """Go on with a file until all rows are in it."""
    spool = Spool(out, {"it": "same"}, RowText(kind, ["id", "text", "x"]))
    try:
        spool.skip(iter(row for row, _ in ROWS))
        for begin in range(spool.rows, len(ROWS), at_a_time):
            spool.add(ROWS[begin : begin + at_a_time])
            if begin % 2:
                spool.commit()
        spool.finish()
    except BaseException:
        spool.close()
        raise


def problem_of(out: Path, kind: str, at_a_time: int) -> str:
    try:
        written(out, kind, at_a_time)
    except InputError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("at_a_time", [1, 5])
def test_wherever_the_disk_is_full_no_row_is_lost_doubled_or_torn(tmp_path: Path, kind: str, at_a_time: int) -> None:
    """Every size at which the rows or the journal may hit the end, and every one at which they do so again."""
    undisturbed = tmp_path / "undisturbed"
    written(undisturbed, kind, at_a_time)
    whole = undisturbed.read_bytes()
    said: list[str] = []
    for size in range(len(whole)):
        out = tmp_path / f"out{size}"
        for room in (size, size + 1, size + 40, size + 200):
            if not out.exists():
                with room_for(room):
                    said += [problem_of(out, kind, at_a_time)]
        if not out.exists():
            written(out, kind, at_a_time)
        assert out.read_bytes() == whole, size
    assert all("cannot be written: File too large" in problem for problem in said if problem)
    assert not left_over(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_head_that_was_never_sealed_is_no_row(tmp_path: Path, kind: str) -> None:
    """Killed between the head, or the first rows, and the first mark of the journal."""
    written(tmp_path / "undisturbed", kind, 1)
    whole = (tmp_path / "undisturbed").read_bytes()
    out, journal = tmp_path / "out", tmp_path / "out.journal"
    Spool(out, {"it": "same"}, RowText(kind, ["id", "text", "x"])).close()
    first = journal.read_bytes().splitlines(keepends=True)[0]
    for size in range(len(whole) if kind == "jsonl" else len("id,text,x\n") + 1):
        out.unlink(missing_ok=True)
        (tmp_path / "out.part").write_bytes(whole[:size])
        journal.write_bytes(first)
        written(out, kind, 1)
        assert out.read_bytes() == whole, size


def test_after_a_disk_that_failed_nothing_more_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed fsync is told once: the next one succeeds, whatever was lost."""
    out, journal = tmp_path / "out", tmp_path / "out.journal"
    spool = Spool(out, {"it": "same"}, RowText("csv", ["id", "text", "x"]))
    spool.add(ROWS[:3])
    spool.commit()
    sealed = journal.read_bytes()
    spool.add(ROWS[3:5])

    def fails(number: int) -> None:
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(InputError, match=f"No space left on device; 5 {RESUME}"):
        spool.commit()
    spool.close()
    assert journal.read_bytes() == sealed


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\n", b"\x00\x00", b"garbage\n", b'{"it": \n', b"5\n", b"\xff\xfe\n", b'{"it":"same"}', b'{"it":[1]}\n']
    + [b'{"it":"same"}\n' + mark for mark in (b"\n", b"1 2\n", b"a b c\n", b"-3 20 x\n", b"1 2 3 4\n", b"\xff \n")],
)
def test_a_damaged_journal_is_named_and_nothing_is_touched(tmp_path: Path, damaged: bytes) -> None:
    out, part, journal = tmp_path / "out.csv", tmp_path / "out.csv.part", tmp_path / "out.csv.journal"
    spool = Spool(out, {"it": "same"}, RowText("csv", ["id", "text", "x"]))
    spool.add(ROWS[:3])
    spool.close()
    rows = part.read_bytes()
    journal.write_bytes(damaged)
    with pytest.raises(InputError) as said:
        Spool(out, {"it": "same"}, RowText("csv", ["id", "text", "x"]))
    assert str(said.value) == f"{journal} is damaged: to begin anew, remove it and {part.name}"
    assert (part.read_bytes(), journal.read_bytes()) == (rows, damaged)


def test_rows_that_were_sealed_torn_are_not_gone_on_with(tmp_path: Path) -> None:
    """As did a version that took no notice of a write cut short."""
    out, part = tmp_path / "out.csv", tmp_path / "out.csv.part"
    spool = Spool(out, {"it": "same"}, RowText("csv", ["id", "text", "x"]))
    spool.add(ROWS[:3])
    spool.close()
    journal = tmp_path / "out.csv.journal"
    size = part.stat().st_size
    os.truncate(part, size - 3)
    journal.write_bytes(journal.read_bytes().replace(f" {size} ".encode(), f" {size - 3} ".encode()))
    with pytest.raises(InputError, match=f"{part} is not as it was written: remove it and out.csv.journal"):
        Spool(out, {"it": "same"}, RowText("csv", ["id", "text", "x"]))


def test_before_any_row_there_is_nothing_to_lose(tmp_path: Path) -> None:
    """What a crash of the machine leaves of a run that had only begun."""
    (tmp_path / "out.part").touch()
    (tmp_path / "out.journal").touch()
    written(tmp_path / "out", "csv", 1)
    assert not left_over(tmp_path)


# --- the command ---


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_a_run_on_a_full_disk_says_so_and_goes_on(decided: Run, tmp_path: Path, questions: Path, suffix: str) -> None:
    source = table(tmp_path / "in.csv", 150)
    out, undisturbed = tmp_path / f"out.{suffix}", tmp_path / "undisturbed.csv"
    assert decided("run", source, "--questions", questions, "--out", undisturbed).code == 0
    command = ("run", source, "--questions", questions, "--out", out)
    for room in (400, 3000, 3001, 5000):
        with room_for(room):
            done = decided(*command)
        said = done.err.splitlines()[-1]
        assert (done.code, said.startswith(f"decided: {out} cannot be written: File too large")) == (2, True), done.err
        assert said.endswith(RESUME) or room == 400
        assert "Traceback" not in done.err
    done = decided(*command)
    assert (done.code, "resuming after" in done.err) == (0, True)
    assert not left_over(tmp_path)
    if suffix == "csv":
        assert out.read_bytes() == undisturbed.read_bytes()
        return
    rows = [row.values for row in Table(str(out), suffix).rows()]
    assert [(int(row["id"]), row["state"]) for row in rows] == [(n, f"row {n},\nand a line") for n in range(150)]


@pytest.mark.parametrize(("suffix", "room"), [("parquet", 1000), *(("xlsx", room) for room in range(700, 5001, 430))])
def test_where_only_the_finished_table_has_no_room_nothing_is_asked_again(
    decided: Run, tmp_path: Path, questions: Path, suffix: str, room: int
) -> None:
    source, out = table(tmp_path / "in.csv", 3), tmp_path / f"out.{suffix}"
    command = ("run", source, "--questions", questions, "--out", out)
    with room_for(room):
        done = decided(*command)
    assert (done.code, done.err) == (2, f"decided: {out} cannot be written: File too large; 3 {RESUME}\n")
    assert not out.with_name(f"{out.name}.making").exists()
    assert decided(*command) == (0, "", "resuming after 3 rows\n")


def test_a_full_standard_output_is_told_in_one_sentence(tmp_path: Path, questions: Path) -> None:
    source = table(tmp_path / "in.csv", 5)
    command = [sys.executable, "-m", "tests.support.fake_server", "run", source, "--questions", questions]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*map(str, command), "--model", "fake"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    said = "decided: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("name", ["out.csv", "out.xlsx", "out.parquet"])
def test_where_nothing_can_be_written_it_is_told_in_one_sentence(
    decided: Run, tmp_path: Path, questions: Path, name: str
) -> None:
    """/proc takes no files, whoever asks."""
    source, out = table(tmp_path / "in.csv", 1), Path("/proc/self") / name
    done = decided("run", source, "--questions", questions, "--out", out)
    assert done == (2, "", f"decided: {out} cannot be written: No such file or directory\n")
    out = tmp_path / ("x" * 250 + name)  # a name that has room, and no room for what is added to it
    done = decided("run", source, "--questions", questions, "--out", out)
    assert done == (2, "", f"decided: {out} cannot be written: File name too long\n")
